"""Hostile requests and responses against the guarantees of the whole proxy."""
