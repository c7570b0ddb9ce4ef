"""Dashboards, rules and the code that writes them."""
