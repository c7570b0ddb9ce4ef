"""The arguments of a tool call: JSON inside of a string, which a mask must leave JSON.

What a string of it says is looked at by itself, escapes and all; so is a word outside of strings,
a number above all, which becomes a string when it is masked. What does not begin like an object, an
array or a string is looked at as plain text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from proxy.guards.findings import Replace, RuleTally, named
from proxy.guards.stream.text_filter import ReleasedPiece, WholeTextFilter
from proxy.guards.stream.window import Window
from proxy.guards.text.documents import EACH, weight_of
from proxy.guards.text.json_strings import LITERALS, MOST_BARE, Kind, Splitter, quoted


def weight_of_parts(arguments: str) -> int:
    """Return what the texts of arguments weigh by themselves, about: each string of JSON is one,
    and each word outside of them."""
    return EACH * (arguments.count('"') + arguments.count(","))


@dataclass(slots=True)
class _Released:
    """Pieces in their order; those that are as they came are put together, as there are many."""

    unchanged: list[str] = field(default_factory=list)
    _pieces: list[ReleasedPiece] = field(default_factory=list)

    def add(self, pieces: Sequence[ReleasedPiece]) -> None:
        for piece in pieces:
            if piece.changed:
                self._join()
                self._pieces.append(piece)
            else:
                self.unchanged.append(piece.text)

    def all(self) -> list[ReleasedPiece]:
        self._join()
        return self._pieces

    def _join(self) -> None:
        if self.unchanged:
            text = "".join(self.unchanged)
            self._pieces.append(ReleasedPiece(text, len(text), changed=False))
            self.unchanged.clear()


class ArgumentsWindow:
    """A window on the arguments of one call, as they come, made of one for what strings of JSON
    say, and one for all else."""

    __slots__ = ("_bare", "_in_string", "_plain", "_splitter", "_string", "_tallies")

    def __init__(
        self, string: WholeTextFilter, plain: WholeTextFilter, tallies: Sequence[RuleTally] = ()
    ) -> None:
        self._tallies = tallies
        self._splitter = Splitter()
        self._string = string
        self._plain = plain
        self._bare = ""
        self._in_string = False  # a string of which some was fed

    @classmethod
    def under(cls, tallies: Sequence[RuleTally], replace: Replace = named) -> Self:
        string = Window(tallies, escaped=True, replace=replace)
        return cls(string, Window(tallies, replace=replace), tallies)

    @property
    def lookback(self) -> int:
        return self._plain.lookback

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

    def feed(self, text: str) -> list[ReleasedPiece]:
        """Take the next characters, return the pieces that they release. A string that begins and
        ends in them is read once."""
        released = _Released()
        start = ""
        for kind, part in self._splitter.feed(text):
            if kind == "frame":
                released.unchanged.append(part)
            elif kind == "string" and not (start or self._in_string):
                start = part
            elif kind == "end" and start:
                released.add(self._string.take(start))
                self._count()
                start = ""
            else:
                if start:
                    released.add(self._going_on(start))
                    start = ""
                released.add(self._fed(kind, part))
        if start:
            released.add(self._going_on(start))
        return released.all()

    def _going_on(self, text: str) -> list[ReleasedPiece]:
        """Take the beginning of a string that goes on."""
        self._in_string = True
        return self._string.feed(text)

    def _fed(self, kind: Kind, part: str) -> list[ReleasedPiece]:
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

    def let_go(self) -> list[ReleasedPiece]:
        """End the arguments: they do not go on behind anything else."""
        return self.flush()

    def flush(self) -> list[ReleasedPiece]:
        """End the arguments, return all that is left of them."""
        self._splitter = Splitter()
        return [*self._ended(), *self._plain.flush()]

    def _count(self) -> None:
        """Let rules fail that have looked at as many texts as they may."""
        for tally in self._tallies:
            if tally.fields > tally.most_texts and tally.error is None:
                tally.fail("too_many_texts")

    def _ended(self) -> list[ReleasedPiece]:
        if not self._bare:
            self._in_string = False
            return self._string.flush()
        bare, self._bare = self._bare, ""
        if bare in LITERALS:
            return [ReleasedPiece(bare, len(bare), changed=False)]
        pieces = self._plain.take(bare)
        if not any(piece.changed for piece in pieces):
            return pieces
        text = "".join(piece.text for piece in pieces)
        return [ReleasedPiece(quoted("bare", text), len(bare), changed=True)]
