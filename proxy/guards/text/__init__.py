"""Texts of a document: finds, normalizes, decodes and replaces them."""
