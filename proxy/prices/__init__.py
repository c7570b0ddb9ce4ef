"""Prices as operators see them: what is in force, what is doubtful, and how they are renewed."""
