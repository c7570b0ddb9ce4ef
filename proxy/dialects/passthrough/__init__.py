"""Calls for paths that are forwarded without conversion."""
