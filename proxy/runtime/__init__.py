"""Event loop fairness, threads, background tasks, spools and store connections."""
