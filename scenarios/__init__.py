"""The shipped scenarios: one JSON file each (planned: they come with the lab and the faults)."""
