"""Reviews of policies: check, explain, diff and candidate."""
