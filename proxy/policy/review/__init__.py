"""Reviews of policies: check, explain, diff and candidate."""

MAX_CALLS = 1000
"""Last calls that the console, their explanations and the results of a candidate cover."""
MAX_UNAUTHORIZED = 20
"""Calls without a valid key that they cover besides."""
