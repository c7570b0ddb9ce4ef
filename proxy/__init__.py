"""Headrace: an observability and policy proxy for LLM completion calls."""

__version__ = "0.1.0"
