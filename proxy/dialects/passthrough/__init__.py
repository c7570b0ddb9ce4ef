"""Passthrough: calls for listed paths, which are forwarded without conversion."""
