"""Streams: splits chunks into texts, and holds, inspects and releases them."""
