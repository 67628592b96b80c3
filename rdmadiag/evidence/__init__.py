"""What is known about nodes: documented tables in one SQLite database, each row with its node and origin."""
