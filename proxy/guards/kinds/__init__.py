"""Guard kinds with a detector of their own, and the table of all kinds."""
