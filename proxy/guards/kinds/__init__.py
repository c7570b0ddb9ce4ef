"""Guard kinds with a local detector, and the table of all kinds."""
