"""What runs beside calls and between them: turns, threads, spools, connections."""
