"""How many values a JSON document holds, names not counted: in its bytes, before the first of them
is made, and once it is read. A document that has more of them in its bytes repeats a name."""

from __future__ import annotations

from typing import Any

import orjson

from proxy.dialects.pieces import PIECE

SPACE = b" \t\r\n"


def read_distinct(raw: bytes) -> Any:
    """Read JSON from outside. Raise ``ValueError`` also if an object has the same name twice, as
    another reader may take the other value."""
    whole = orjson.loads(raw)
    written = _write(whole)
    if written == raw or written.translate(None, SPACE) == raw.translate(None, SPACE):
        return whole  # every token of it would be written again
    if count_values(raw, len(raw)) != values_of(whole):
        raise ValueError("an object has the same name twice")
    return whole


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these names and values. Raise ``ValueError`` for a name twice."""
    whole = dict(pairs)
    if len(whole) < len(pairs):
        raise ValueError("an object has the same name twice")
    return whole


def _write(whole: Any) -> bytes:
    """Return a document as JSON, nothing of one that is too deep."""
    try:
        return orjson.dumps(whole)
    except TypeError:
        return b""


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
        outside = b"x".join(parts[inside::2]).translate(None, SPACE)
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
