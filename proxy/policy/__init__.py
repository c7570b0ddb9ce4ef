"""Policies: from YAML files to a decision about each call, and the tools that review them."""
