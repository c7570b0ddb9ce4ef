"""Reads policy files: finds them, parses YAML with locations, merges and validates them."""
