"""How many values a JSON document holds, names not counted: in its bytes, before the first of them
is made, and once it is read."""

from __future__ import annotations

from typing import Any

from proxy.dialects.pieces import PIECE


def count_values(raw: bytes, most: int, size: int = PIECE) -> int:
    """Return how many values JSON has; of more than ``most`` no more than that it has more.

    Each value is the first of an object or a list that is not empty, or follows a comma. What
    stands in texts does not count, so texts are told apart, piece by piece.
    """
    inside, values, at, begun = False, 1, 0, b""
    while at < len(raw) and values <= most + 1:  # the last may be the first of what is empty
        piece = raw[at : at + size]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # what is escaped belongs to its escape
            piece = raw[at : at + size + 1]
        at += len(piece)
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"x".join(parts[inside::2]).translate(None, b" \t\r\n")
        values += sum(map(outside.count, (b",", b"[", b"{")))
        values -= sum(map((begun + outside).count, (b"[]", b"{}")))  # which have no first
        inside ^= len(parts) % 2 == 0
        begun = b"" if inside else outside[-1:] or begun
    return values - (begun in (b"[", b"{"))


def values_of(value: Any) -> int:
    """Return how many values there are in one that is read, itself included."""
    count, stack = 0, [value]
    while stack:  # no recursion: an upstream chooses how deep its answers are
        item = stack.pop()
        count += 1
        if isinstance(item, dict):
            stack += item.values()
        elif isinstance(item, list):
            stack += item
    return count
