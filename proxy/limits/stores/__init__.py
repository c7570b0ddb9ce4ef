"""Stores of counters: of this process, of a server that several share, and both in one."""
