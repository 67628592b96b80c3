"""The shipped rules: one JSON file each, below the folder of its layer; docs/rules.md lists them, rule.schema.json is their format."""
