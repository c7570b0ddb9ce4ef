"""Reviews of policies: check, explain, diff and candidate."""

MAX_CALLS = 1000
"""Number of last calls that the console shows, and that can be explained and compared."""
MAX_UNAUTHORIZED = 20
"""Number of last calls without a valid key, in addition."""
