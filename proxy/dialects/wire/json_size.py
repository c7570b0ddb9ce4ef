"""Counts the values of a JSON document, in its bytes or after parsing.

A document with more values in its bytes than after parsing repeats a name.
"""

from __future__ import annotations

from typing import Any

import orjson

from proxy.dialects.wire.large_json import PIECE

SPACE = b" \t\r\n"


def read_distinct(raw: bytes) -> Any:
    """Read JSON from outside. Raise ``ValueError`` also if an object has the same name twice, as
    another reader may take the other value."""
    document = orjson.loads(raw)
    written = _write(document)
    if written == raw or written.translate(None, SPACE) == raw.translate(None, SPACE):
        return document  # every token of it would be written again
    if count_values(raw, len(raw)) != values_of(document):
        raise ValueError("an object has the same name twice")
    return document


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these names and values. Raise ``ValueError`` for a name twice."""
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("an object has the same name twice")
    return result


def _write(document: Any) -> bytes:
    """Return a document as JSON, nothing of one that is too deep."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return b""


def count_values(raw: bytes, maximum: int, size: int = PIECE) -> int:
    """Return the number of values in JSON bytes. Counting stops above ``most``.

    A value follows a comma, or is the first one of an object or a list. Strings are skipped.
    """
    inside, values, position, previous = False, 1, 0, b""
    while (
        position < len(raw) and values <= maximum + 1
    ):  # the last may be the first of what is empty
        piece = raw[position : position + size]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:  # what is escaped belongs to its escape
            piece = raw[position : position + size + 1]
        position += len(piece)
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"x".join(parts[inside::2]).translate(None, SPACE)
        values += sum(map(outside.count, (b",", b"[", b"{")))
        values -= sum(map((previous + outside).count, (b"[]", b"{}")))  # which have no first
        inside ^= len(parts) % 2 == 0
        previous = b"" if inside else outside[-1:] or previous
    return values - (previous in (b"[", b"{"))


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
