"""Regular expressions over a text, in linear time: RE2, which cannot backtrack.

One pass of a ``PatternSet`` tells which patterns occur; only those are then searched one by one. On
a clean text, which nearly all are, nothing but that pass runs. RE2 limits the memory of a pattern,
and the deadline of the guard its time.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from math import inf

from proxy.frozen import frozen
from proxy.guardrails.matching.hold import Shape, Shapes
from proxy.guardrails.matching.merge_overlaps import apart
from proxy.guardrails.matching.re2set import MANY_BYTES, PatternSet, compiled
from proxy.guardrails.matching.scripts import WITHOUT_SPACES
from proxy.guardrails.matching.tokens import check_syntax
from proxy.guardrails.matching.within_match import longest
from proxy.types.guard import Finding

SURROGATES = re.compile("[\ud800-\udfff]")
UNSPACED = re.compile(f".?[{WITHOUT_SPACES}]", re.DOTALL)
# Letters of one word, for certain: between two of them no word begins.
RUN = re.compile(rf"[^\W{WITHOUT_SPACES}]+")

# So many matches of a pattern without bound are looked for; the rest of the text is one more.
MOST_UNBOUNDED = 1000


@frozen
class NamedPattern:
    """An RE2 pattern, and what its matches are called.

    ``whole_words`` passes a match over whose edge is within a word, of any alphabet; the ``\\b``
    of RE2 knows ASCII only. The search goes on at the next character, after the match if nothing
    bounds the pattern's length. ``is_linear`` says that all searches take linear time although
    nothing bounds the length, so that every match is found.
    """

    kind: str
    regex: str
    score: float = 1.0
    whole_words: bool = False
    is_linear: bool = False


class Patterns:
    """All matches of many patterns.

    Raises ValueError, naming the pattern's kind, for one that RE2 does not accept or that matches
    the empty string, and for patterns that together need more than ``memory_bytes``. ``shapes`` are
    those of findings where they are not the patterns', in their order, ``translated`` and
    ``has_words`` are as for ``Shapes``; ``hold`` is None where what may still become a match takes
    too much memory.
    """

    __slots__ = ("_set", "_singles", "hold", "patterns", "reach")

    def __init__(
        self,
        patterns: Sequence[NamedPattern],
        *,
        memory_bytes: int = MANY_BYTES,
        shapes: Sequence[Shape] = (),
        translated: Mapping[int, str] | None = None,
        has_words: bool = True,
    ) -> None:
        self.patterns = tuple(patterns)
        self._singles = tuple(_Single(pattern) for pattern in patterns)
        try:
            own = shapes or [Shape(pattern.regex) for pattern in patterns]
            self.hold: Shapes | None = Shapes(own, memory_bytes, translated, has_words=has_words)
            self._set = self.hold.found
        except ValueError:  # too large with what is open in them
            self.hold = None
            self._set = PatternSet([pattern.regex for pattern in patterns], memory_bytes)
        lengths = [single.longest for single in self._singles]
        known = [length for length in lengths if length is not None]
        # One more on each side: for ^, $, \b and whole words.
        self.reach: int | None = max(known, default=0) + 1 if known == lengths else None

    def __repr__(self) -> str:
        return f"Patterns({len(self.patterns)})"

    @property
    def sets(self) -> list[PatternSet]:
        """What tells whether there may be a match; nothing where there is no pattern."""
        return [self._set] if self._singles else []

    def which(self, text: str) -> Sequence[int]:
        """Return the indexes in ``patterns`` of those that may occur; the others do not."""
        return self._set.hits(_encoded(text))

    def hits(self, text: str) -> list[Finding]:
        """Return all findings of each pattern, one pattern after the other: they may overlap."""
        if not self._singles:
            return []
        data = _encoded(text)
        return [
            finding
            for index in self._set.hits(data)
            for finding in self._singles[index].find(text, data)
        ]

    def find(self, text: str) -> Sequence[Finding]:
        """Return all findings by their start, without overlaps."""
        return apart(self.hits(text))


class _Single:
    """One compiled pattern."""

    __slots__ = ("_regex", "longest", "pattern")

    def __init__(self, pattern: NamedPattern) -> None:
        self.pattern = pattern
        try:
            self._regex = compiled(pattern.regex)
            check_syntax(pattern.regex)
            self.longest = longest(pattern.regex)
        except ValueError as error:
            shown = pattern.regex[:80]
            raise ValueError(
                f"{pattern.kind}: {shown} is not a valid RE2 pattern: {error}"
            ) from None
        if self.longest == 0 or self._regex.search(b"") is not None:
            raise ValueError(f"{pattern.kind}: {pattern.regex[:80]} matches the empty string")

    def find(self, text: str, data: bytes) -> list[Finding]:
        """Return the findings in ``text``; ``data`` is the same text as UTF-8."""
        return [finding for finding in self._steps(text, data) if finding]

    def _steps(self, text: str, data: bytes) -> Iterator[Finding | None]:
        place, searches = _TextPosition(text, data), 0
        most = inf if self.longest is not None or self.pattern.is_linear else MOST_UNBOUNDED
        while place.character < len(text):
            for match in self._regex.finditer(data, place.byte):
                searches += 1
                start, end = place.characters(*match.span())
                if searches > most:
                    yield self._finding(start, len(text))
                    return
                if self.pattern.whole_words and not _whole(text, start, end):
                    yield None
                    place.move(end if self.longest is None else _past(text, start))
                    break
                if start < end:
                    yield self._finding(start, end)
            else:
                return

    def _finding(self, start: int, end: int) -> Finding:
        return Finding(start=start, end=end, kind=self.pattern.kind, score=self.pattern.score)


class _TextPosition:
    """A place in a text that only moves on, in characters and in bytes of its UTF-8."""

    __slots__ = ("_ascii", "_data", "_text", "byte", "character")

    def __init__(self, text: str, data: bytes) -> None:
        self._text = text
        self._data = data
        self._ascii = len(text) == len(data)
        self.byte = self.character = 0

    def characters(self, start: int, end: int) -> tuple[int, int]:
        """Return the span in characters of a span of bytes, and move to its start. It must
        not begin before this position."""
        if self._ascii:
            self.byte = self.character = start
            return start, end
        self.character += len(self._data[self.byte : start].decode())
        self.byte = start
        return self.character, self.character + len(self._data[start:end].decode())

    def move(self, character: int) -> None:
        if self._ascii:
            self.byte = self.character = character
            return
        self.byte += len(_encoded(self._text[self.character : character]))
        self.character = character


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Half of a pair, which JSON can carry and UTF-8 cannot: no pattern of letters means it.
        return SURROGATES.sub("\ufffd", text).encode()


def _whole(text: str, start: int, end: int) -> bool:
    return not (
        (start > 0 and _joined(text[start - 1], text[start]))
        or (end < len(text) and _joined(text[end - 1], text[end]))
    )


def _past(text: str, start: int) -> int:
    """The next place after ``start`` where a whole word can begin."""
    run = RUN.match(text, start)
    return max(
        start + 1, run.end() if run and start and _joined(text[start - 1], text[start]) else 0
    )


def _joined(left: str, right: str) -> bool:
    """True if two neighbours belong to one word."""
    return _in_word(left) and _in_word(right) and not UNSPACED.match(left + right)


def _in_word(character: str) -> bool:
    return (
        character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")
    )
