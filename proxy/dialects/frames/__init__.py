"""Frames of a response: read from bytes, put in sequence, and checked for their shape."""
