"""Streams: how chunks are taken apart, held, inspected and released."""
