"""Requests to upstreams: field rules, translation, parameters, URL and headers."""
