"""Texts within the arguments of a tool call, which is JSON that may come in pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, NamedTuple

Kind = Literal["frame", "string", "bare", "plain", "end"]
MAX_BARE_CHARS = 4096  # held characters of a word outside of strings
SLICE_CHARS = 64 * 1024  # characters per call into C
_INSIDE = {quote: re.compile(rf"(?:[^{quote}\\]+|\\.)+|\\|{quote}", re.DOTALL) for quote in "\"'"}
_OUTSIDE = re.compile(r"[\s{}\[\]:,]+|\"|[^\s{}\[\]:,\"]+")
_SPACE = " \t\r\n"
_END: tuple[Kind, str] = ("end", "")
JSON_LITERALS = frozenset({"true", "false", "null"})


class ArgumentTextSpan(NamedTuple):
    """Span of one text in the arguments of a tool call."""

    start: int
    end: int
    kind: Kind


@dataclass(slots=True)
class ArgumentSplitter:
    """Splits arguments that come in pieces into syntax and texts.

    A string may be in single quotes, as some models write it.
    """

    _state: Kind | None = None
    _escape: bool = False
    _quote: str = '"'

    def feed(self, text: str) -> Iterator[tuple[Kind, str]]:
        position = 0
        if self._state is None:
            position = len(text) - len(text.lstrip(_SPACE))
            if position:
                yield "frame", text[:position]
            if position < len(text):
                self._state = "frame" if text[position] in '{["' else "plain"
        if self._state == "plain":
            yield "plain", text[position:]
            return
        while position < len(text):
            inside = self._state == "string"
            split = self._split_in_string if inside else self._split_outside_string
            parts = split(text, position)
            yield from parts
            position += len(parts[-1][1])

    def _split_in_string(self, text: str, position: int) -> Sequence[tuple[Kind, str]]:
        if self._escape:
            self._escape = False
            return (("string", text[position]),)
        match = _INSIDE[self._quote].match(text, position, position + SLICE_CHARS)
        part = match.group() if match else text[position]
        if part == self._quote:
            self._state = "frame"
            return (_END, ("frame", part))
        self._escape = part == "\\"
        return (("string", part),)

    def _split_outside_string(self, text: str, position: int) -> Sequence[tuple[Kind, str]]:
        match = _OUTSIDE.match(text, position, position + SLICE_CHARS)
        part = match.group() if match else text[position]
        bare = part[0] not in '{}[]:," \t\r\n' and not part[0].isspace()
        if bare and part[0] == "'" and self._state == "frame":
            self._state, self._quote = "string", "'"
            return (("frame", "'"),)
        ends = self._state == "bare" and not bare
        self._state = "bare" if bare else "string" if part == '"' else "frame"
        self._quote = '"'
        piece: tuple[Kind, str] = ("bare" if bare else "frame", part)
        return (_END, piece) if ends else (piece,)


def iter_text_span_per_value(arguments: str) -> Iterator[ArgumentTextSpan | None]:
    """Yield the values of whole arguments; None for an empty string, true, false and null."""
    position = start = 0
    open_kind: Kind | None = None
    for kind, part in chain(ArgumentSplitter().feed(arguments), [_END]):
        if kind in ("frame", "end"):
            if open_kind is not None:
                is_literal = arguments[start:position] in JSON_LITERALS
                yield None if is_literal else ArgumentTextSpan(start, position, open_kind)
            elif kind == "end":
                yield None
            open_kind = None
        elif open_kind is None:
            open_kind, start = kind, position
        position += len(part)


def replace_text_spans(arguments: str, escaped_texts: Mapping[int, str]) -> str:
    """Replace the text spans at some indexes. Strings must be escaped."""
    parts: list[str] = []
    past = 0
    for number, span in enumerate(filter(None, iter_text_span_per_value(arguments))):
        if number in escaped_texts:
            parts += (arguments[past : span.start], quote_if_bare(span.kind, escaped_texts[number]))
            past = span.end
    return "".join([*parts, arguments[past:]])


def quote_if_bare(kind: Kind, text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if kind == "bare" else text
