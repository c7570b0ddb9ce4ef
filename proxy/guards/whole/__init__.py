"""Inspects whole texts in batches, and the parts of a message also joined."""
