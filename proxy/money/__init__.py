"""Usage of tokens, and estimates of it."""
