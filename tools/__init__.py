"""Generators of documentation and measurements of guards."""
