"""The demo: a small model of this machine, and the examples that are printed for it."""
