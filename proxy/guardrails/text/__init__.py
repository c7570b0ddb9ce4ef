"""Texts: where they stand in a document, how they are normalized, decoded and replaced."""
