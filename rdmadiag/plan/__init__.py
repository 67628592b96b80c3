"""Sizing and models: each public module here is a topic of `rdmadiag plan`, from what a cluster has to what it needs.

A topic defines `HELP` (one line), `EXAMPLES` (argument tuples that it answers) and `decode(*words) -> dict`, a JSON-able
answer whose first keys matter most; its words are NAME=VALUE. A topic's name is its file name with '_' written as '-'.
"""
