"""Reads and writes JSON of many megabytes in pieces.

The C parsers hold the interpreter lock for a whole document, which would block the event loop.
Results and errors are the same as theirs.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Callable
from dataclasses import dataclass
from json.decoder import JSONDecoder, scanstring  # type: ignore[attr-defined]  # typeshed lacks it
from typing import Any

import orjson

from proxy.errors import BadRequest, ResponseTooLarge
from proxy.runtime.frozen import frozen

PIECE_BYTES = 64 * 1024  # bytes or characters per call into C, which takes less than 1 ms
SHORT_LENGTH = 1024  # characters that are scanned first, because most values are short
MAX_FLAT_VALUES = 16  # values of a list or an object that are written in one call
MAX_DEPTH = 254  # maximum depth that orjson can write

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_CUT_ESCAPE = re.compile(
    r"\\(?:u[0-9a-fA-F]{0,3}|u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?)?\Z"
)
MAX_CUT_LENGTH = 11  # two escapes of a surrogate pair without their last character
_NOT_IN_NUMBERS = '"{[tfn'
_PLAIN = frozenset({int, float, bool, type(None)})
_WORDS = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}


def decode_large_utf8(raw: bytes, size: int = PIECE_BYTES) -> str:
    """Return UTF-8 as text, decoded in pieces. Raises ``ValueError``."""
    decoder = getincrementaldecoder("utf-8")()
    pieces = [decoder.decode(raw[start : start + size]) for start in range(0, len(raw), size)]
    return "".join([*pieces, decoder.decode(b"", final=True)])


@dataclass(slots=True)
class ValueBudget:
    """The remaining number of values that a response may have."""

    remaining: int

    def count_value(self) -> None:
        self.remaining -= 1
        if self.remaining < 0:
            raise make_too_many_values_error()


def make_too_many_values_error() -> ResponseTooLarge:
    return ResponseTooLarge("The upstream's response exceeds max_answer_values.")


@frozen
class LargeJsonReader:
    """Reads one JSON document with the hooks of ``decoder``.

    Raises ``ValueError`` for malformed JSON, and ``RecursionError`` for deep nesting. With
    ``budget`` a list of numbers is kept as text; each other value reduces the budget.
    """

    text: str
    decoder: JSONDecoder
    size: int = PIECE_BYTES
    budget: ValueBudget | None = None

    def read(self) -> Any:
        value, position = self._read_value(self._skip_space(0), 0)
        if self._skip_space(position) < len(self.text):
            raise ValueError("more than one document")
        return value

    def _skip_space(self, position: int) -> int:
        while True:
            match = _SPACE.match(self.text, position, position + self.size)
            end = match.end() if match else position
            if end < position + self.size:
                return end
            position = end

    def _read_value(self, position: int, depth: int) -> tuple[Any, int]:
        mark = self.text[position : position + 1]
        if self.budget is not None:
            self.budget.count_value()
        if mark == '"':
            return self._read_string(position + 1)
        if mark in ("{", "["):
            if self.budget is None:
                value_end = self._read_short_value(position)
            else:
                value_end = self._read_number_list(position) if mark == "[" else None
            read = self._read_object if mark == "{" else self._read_array
            return value_end or read(position + 1, depth + 1)
        word, value = _WORDS.get(mark, ("", None))
        if word and self.text.startswith(word, position):
            return value, position + len(word)
        return self._read_number(position)

    def _read_number_list(self, position: int) -> tuple[orjson.Fragment, int] | None:
        """Return a list of numbers as text, or None for any other list."""
        begin, size = position + 1, min(SHORT_LENGTH, self.size)
        while True:
            part = self.text[begin : begin + size]
            end = part.find("]")
            cut = end if end >= 0 else part.rfind(",")
            if cut < 0 or not _is_number_list(part[:cut]):
                return None
            begin, size = begin + cut + 1, self.size
            if end >= 0:
                return orjson.Fragment(self.text[position:begin]), begin

    def _read_short_value(self, position: int) -> tuple[Any, int] | None:
        """Return an object or a list of a few bytes, None if it is longer or malformed."""
        text = self.text[position : position + min(SHORT_LENGTH, self.size)]
        try:
            value, end = self.decoder.raw_decode(text)
        except (ValueError, RecursionError, BadRequest):
            return None
        return value, position + end

    def _read_number(self, position: int) -> tuple[float, int]:
        match = _NUMBER.match(self.text, position)
        if match is None:
            raise ValueError("no value")
        integer, fraction, power = match.groups()
        if fraction or power:
            return self.decoder.parse_float(match.group()), match.end()
        return self.decoder.parse_int(integer), match.end()

    def _read_array(self, position: int, depth: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        position = self._enter_container(position, depth)
        if self.text[position : position + 1] == "]":
            return values, position + 1
        while True:
            value, position = self._read_value(position, depth)
            values.append(value)
            mark, position = self._read_punctuation(position)
            if mark == "]":
                return values, position
            position = self._skip_comma(mark, position)

    def _read_object(self, position: int, depth: int) -> tuple[Any, int]:
        members: list[tuple[str, Any]] = []
        build = self.decoder.object_pairs_hook
        position = self._enter_container(position, depth)
        if self.text[position : position + 1] == "}":
            return build(members), position + 1
        while True:
            if self.text[position : position + 1] != '"':
                raise ValueError("expected a field name")
            name, position = self._read_string(position + 1)
            mark, position = self._read_punctuation(position)
            if mark != ":":
                raise ValueError("expected a colon after a field name")
            value, position = self._read_value(self._skip_space(position), depth)
            members.append((name, value))
            mark, position = self._read_punctuation(position)
            if mark == "}":
                return build(members), position
            position = self._skip_comma(mark, position)

    def _enter_container(self, position: int, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise RecursionError("too deep")
        return self._skip_space(position)

    def _read_punctuation(self, position: int) -> tuple[str, int]:
        position = self._skip_space(position)
        return self.text[position : position + 1], position + 1

    def _skip_comma(self, mark: str, position: int) -> int:
        if mark != ",":
            raise ValueError("expected a comma or the end of the value")
        return self._skip_space(position)

    def _read_string(self, position: int) -> tuple[str, int]:
        # Each piece gets a quote; if the scanner stops at that quote, the string continues.
        parts: list[str] = []
        size = min(SHORT_LENGTH, self.size)
        while True:
            piece = trim_incomplete_escape(self.text[position : position + size])
            if not piece:
                raise ValueError("a string has no closing quote")
            part, end = scanstring(piece + '"', 0, True)
            parts.append(part)
            if end <= len(piece):
                return ("".join(parts) if len(parts) > 1 else part), position + end
            position, size = position + len(piece), self.size


def _is_number_list(part: str) -> bool:
    if any(mark in part for mark in _NOT_IN_NUMBERS):
        return False
    try:
        return bool(orjson.loads(f"[{part}]"))
    except orjson.JSONDecodeError:
        return False


def trim_incomplete_escape(piece: str) -> str:
    """Return a piece of a JSON string without an incomplete escape or surrogate pair at its end."""
    position = max(0, len(piece) - MAX_CUT_LENGTH)
    while cut := _CUT_ESCAPE.search(piece, position):
        prefix = piece[: cut.start()]
        if (len(prefix) - len(prefix.rstrip("\\"))) % 2 == 0:
            return prefix
        position = cut.start() + 1  # this backslash is escaped itself
    return piece


def serialize_to_pieces(value: Any, size: int = PIECE_BYTES) -> list[bytes]:
    """Return the pieces of a value as JSON. Raises ``TypeError`` as ``orjson`` does."""
    pieces: list[bytes] = []
    buffer = bytearray()  # orjson allocates at least 4 KiB for each result

    def put(piece: bytes) -> None:
        buffer.extend(piece)
        if len(buffer) >= size:
            pieces.append(bytes(buffer))
            buffer.clear()

    _JsonWriter(put, size).write(value, 0)
    return [*pieces, bytes(buffer)]


def check_serializable(value: Any) -> None:
    """Raise ``TypeError`` if the value cannot be written as JSON."""
    _JsonWriter(lambda piece: None, PIECE_BYTES).write(value, 0)


def serialize_large(value: Any) -> bytes:
    return b"".join(serialize_to_pieces(value))


def _is_short_and_flat(container: dict[str, Any] | list[Any]) -> bool:
    """Return True for a few short values, none of them nested, which one call writes quickly."""
    if len(container) > MAX_FLAT_VALUES:
        return False
    values = (*container, *container.values()) if isinstance(container, dict) else container
    return all([type(v) in _PLAIN or (type(v) is str and len(v) <= SHORT_LENGTH) for v in values])


@frozen
class _JsonWriter:
    emit: Callable[[bytes], None]
    size: int

    def write(self, value: Any, depth: int) -> None:
        if isinstance(value, str):
            self._write_text(value)
        elif isinstance(value, dict | list) and depth < MAX_DEPTH and _is_short_and_flat(value):
            self.emit(orjson.dumps(value))
        elif isinstance(value, dict | list | tuple):
            self._write_items(value, depth + 1)
        else:
            self.emit(orjson.dumps(value))

    def _write_items(self, container: Any, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise TypeError("too deep")
        is_object = isinstance(container, dict)
        begin, end = (b"{", b"}") if is_object else (b"[", b"]")
        mark = begin
        for item in container:
            self.emit(mark)
            if is_object:
                self._write_text(item)
                self.emit(b":")
            self.write(container[item] if is_object else item, depth)
            mark = b","
        self.emit(end if mark is not begin else begin + end)

    def _write_text(self, text: str) -> None:
        if len(text) <= self.size:
            self.emit(orjson.dumps(text))
            return
        self.emit(b'"')
        for position in range(0, len(text), self.size):
            self.emit(orjson.dumps(text[position : position + self.size])[1:-1])
        self.emit(b'"')
