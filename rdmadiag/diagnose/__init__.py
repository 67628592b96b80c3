"""Rules over evidence: load and check them, evaluate them, and tell causes from symptoms."""
