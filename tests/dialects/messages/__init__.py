"""Tests of `proxy.dialects.messages`."""
