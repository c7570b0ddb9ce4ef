"""Bytes and JSON of clients and upstreams: server-sent events and bounded documents."""
