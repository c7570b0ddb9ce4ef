"""Tests of `proxy.dialects.responses`."""
