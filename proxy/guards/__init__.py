"""Guards: what is read of a call, what is found in it, and what becomes of it."""
