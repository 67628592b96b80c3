"""Scenarios: read and check one, run it, judge what it left behind."""
