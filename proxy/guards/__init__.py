"""Guards: inspect the texts of calls and apply actions to findings."""
