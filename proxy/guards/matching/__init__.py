"""Matching for guards: pattern sets, word lists, checksums, learned weights."""
