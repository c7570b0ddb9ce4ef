"""The arguments of a tool call: JSON inside of a string, which a mask must leave JSON.

What a string of it says is looked at by itself, escapes and all; so is a word outside of strings,
a number above all, which becomes a string when it is masked. What does not begin like an object, an
array or a string is looked at as plain text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, NamedTuple, Self

from proxy.guardrails.masking import Replace, named
from proxy.guardrails.rule import Tally
from proxy.guardrails.weight import EACH, weight_of
from proxy.guardrails.window import Piece, WholePane, Window

Kind = Literal["frame", "string", "bare", "plain", "end"]

MOST_BARE = 4096  # characters of one word outside of strings that are held
PIECE = 64 * 1024  # characters of one call into C
_INSIDE = re.compile(r'(?:[^"\\]+|\\.)+|\\|"', re.DOTALL)
_OUTSIDE = re.compile(r'[\s{}\[\]:,]+|"|[^\s{}\[\]:,"]+')
_SPACE = " \t\r\n"
_END: tuple[Kind, str] = ("end", "")
_LITERALS = frozenset({"true", "false", "null"})


class Segment(NamedTuple):
    """A part of the arguments that says something, from ``start`` up to ``end``."""

    start: int
    end: int
    kind: Kind


class Splitter:
    """Feed it arguments in pieces; it tells frame from text, and where a text ends."""

    __slots__ = ("_escape", "_state")

    def __init__(self) -> None:
        self._state: Kind | None = None
        self._escape = False

    def feed(self, text: str) -> Iterator[tuple[Kind, str]]:
        at = 0
        if self._state is None:
            at = len(text) - len(text.lstrip(_SPACE))
            if at:
                yield "frame", text[:at]
            if at < len(text):
                self._state = "frame" if text[at] in '{["' else "plain"
        if self._state == "plain":
            yield "plain", text[at:]
            return
        while at < len(text):
            inside = self._state == "string"
            found = self._inside(text, at) if inside else self._outside(text, at)
            yield from found
            at += len(found[-1][1])

    def _inside(self, text: str, at: int) -> Sequence[tuple[Kind, str]]:
        if self._escape:
            self._escape = False
            return (("string", text[at]),)
        match = _INSIDE.match(text, at, at + PIECE)
        part = match.group() if match else text[at]
        if part == '"':
            self._state = "frame"
            return (_END, ("frame", part))
        self._escape = part == "\\"
        return (("string", part),)

    def _outside(self, text: str, at: int) -> Sequence[tuple[Kind, str]]:
        match = _OUTSIDE.match(text, at, at + PIECE)
        part = match.group() if match else text[at]
        bare = part[0] not in '{}[]:," \t\r\n' and not part[0].isspace()
        ends = self._state == "bare" and not bare
        self._state = "bare" if bare else "string" if part == '"' else "frame"
        found: tuple[Kind, str] = ("bare" if bare else "frame", part)
        return (_END, found) if ends else (found,)


def segments(arguments: str) -> Iterator[Segment]:
    """Yield the parts of whole arguments that say something."""
    return (each for each in values(arguments) if each is not None)


def values(arguments: str) -> Iterator[Segment | None]:
    """Yield the parts of whole arguments, one by one; None for one that says nothing: an empty
    string, true, false or null."""
    at = begun = 0
    open_kind: Kind | None = None
    for kind, part in chain(Splitter().feed(arguments), [_END]):
        if kind in ("frame", "end"):
            if open_kind is not None:
                says = arguments[begun:at] not in _LITERALS
                yield Segment(begun, at, open_kind) if says else None
            elif kind == "end":
                yield None
            open_kind = None
        elif open_kind is None:
            open_kind, begun = kind, at
        at += len(part)


def spliced(arguments: str, texts: Mapping[int, str]) -> str:
    """Put other texts for segments, by their number; strings are given escaped."""
    parts: list[str] = []
    past = 0
    for number, segment in enumerate(segments(arguments)):
        if number in texts:
            parts += (arguments[past : segment.start], _stead(segment.kind, texts[number]))
            past = segment.end
    return "".join([*parts, arguments[past:]])


def _stead(kind: Kind, text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if kind == "bare" else text


def weight_of_parts(arguments: str) -> int:
    """Return what the texts of arguments weigh by themselves, about: each string of JSON is one,
    and each word outside of them."""
    return EACH * (arguments.count('"') + arguments.count(","))


@dataclass(slots=True)
class _Released:
    """Pieces in their order; those that are as they came are put together, as there are many."""

    unchanged: list[str] = field(default_factory=list)
    _pieces: list[Piece] = field(default_factory=list)

    def add(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if piece.changed:
                self._join()
                self._pieces.append(piece)
            else:
                self.unchanged.append(piece.text)

    def all(self) -> list[Piece]:
        self._join()
        return self._pieces

    def _join(self) -> None:
        if self.unchanged:
            text = "".join(self.unchanged)
            self._pieces.append(Piece(text, len(text), changed=False))
            self.unchanged.clear()


class ArgumentsWindow:
    """A window on the arguments of one call, as they come, made of one for what strings of JSON
    say, and one for all else."""

    __slots__ = ("_bare", "_goes_on", "_plain", "_splitter", "_string", "_tallies")

    def __init__(self, string: WholePane, plain: WholePane, tallies: Sequence[Tally] = ()) -> None:
        self._tallies = tallies
        self._splitter = Splitter()
        self._string = string
        self._plain = plain
        self._bare = ""
        self._goes_on = False  # a string of which some was fed

    @classmethod
    def under(cls, tallies: Sequence[Tally], replace: Replace = named) -> Self:
        string = Window(tallies, escaped=True, replace=replace)
        return cls(string, Window(tallies, replace=replace), tallies)

    @property
    def reach(self) -> int:
        return self._plain.reach

    @property
    def held(self) -> int:
        return self._string.held + self._plain.held + len(self._bare)

    def weight(self, text: str) -> int:
        """Return how much there is to read when these characters come."""
        return weight_of_parts(text) + max(self._string.weight(text), self._plain.weight(text))

    def weight_of_end(self) -> int:
        """Return how much there is to read when the arguments end."""
        ends = self._string.weight_of_end() + self._plain.weight_of_end()
        return ends + weight_of(self._bare)

    def feed(self, text: str) -> list[Piece]:
        """Take the next characters, give what they release. A string that begins and ends in them
        is read once."""
        released = _Released()
        begun = ""
        for kind, part in self._splitter.feed(text):
            if kind == "frame":
                released.unchanged.append(part)
            elif kind == "string" and not (begun or self._goes_on):
                begun = part
            elif kind == "end" and begun:
                released.add(self._string.take(begun))
                self._count()
                begun = ""
            else:
                if begun:
                    released.add(self._going_on(begun))
                    begun = ""
                released.add(self._fed(kind, part))
        if begun:
            released.add(self._going_on(begun))
        return released.all()

    def _going_on(self, text: str) -> list[Piece]:
        """Take the beginning of a string that goes on."""
        self._goes_on = True
        return self._string.feed(text)

    def _fed(self, kind: Kind, part: str) -> list[Piece]:
        if kind == "string":
            return self._string.feed(part)
        if kind == "plain":
            return self._plain.feed(part)
        self._bare += part
        if kind == "end" or len(self._bare) > MOST_BARE:
            pieces = self._ended()
            self._count()
            return pieces
        return []

    def flush(self) -> list[Piece]:
        """The arguments have ended: give all that is left of them."""
        self._splitter = Splitter()
        return [*self._ended(), *self._plain.flush()]

    def _count(self) -> None:
        """Let rules fail that have looked at as many texts as they may."""
        for tally in self._tallies:
            if tally.fields > tally.most_texts and tally.error is None:
                tally.fail("too_many_texts")

    def _ended(self) -> list[Piece]:
        if not self._bare:
            self._goes_on = False
            return self._string.flush()
        said, self._bare = self._bare, ""
        if said in _LITERALS:
            return [Piece(said, len(said), changed=False)]
        pieces = self._plain.take(said)
        if not any(piece.changed for piece in pieces):
            return pieces
        text = "".join(piece.text for piece in pieces)
        return [Piece(_stead("bare", text), len(said), changed=True)]
