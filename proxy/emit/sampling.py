"""Decides for which calls spans and log lines are written."""

from __future__ import annotations


def in_share(sample_id: str, ratio: float) -> bool:
    """Return True if a call falls into a share of all, by its own number.

    The client's trace id and sampling flag do not count: with them a client could force the cost of
    tracing on the proxy, or hide its calls.
    """
    return int(sample_id[16:], 16) < ratio * 2**64
