"""Counts in words, as people read them: one call, two calls."""

from __future__ import annotations


def counted(count: int, one: str, several: str | None = None) -> str:
    """Return a count and what it counts: ``one``, or ``several``, else ``one`` with an s."""
    return f"{count} {one if count == 1 else several or one + 's'}"
