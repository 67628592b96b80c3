"""Measurements on real devices: a program at the devices (`end`), what is asked of it (`kv`), statistics, plots."""
