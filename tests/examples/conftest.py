"""The example suites are run as their own users would run them: by pytest, in a process of its own (test_examples.py)."""

collect_ignore = ["own_engine"]
