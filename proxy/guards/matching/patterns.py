"""Finds all matches of many RE2 patterns in linear time.

A ``PatternSet`` selects the patterns that occur in one pass, and only those are searched one by
one. RE2 bounds the memory of a pattern, and the deadline of the guard bounds the time.
"""

from __future__ import annotations

import heapq
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from proxy.guards.matching.partial_match import Shape, Shapes
from proxy.guards.matching.pattern_syntax import (
    WITHOUT_SPACES,
    check_syntax,
    max_match_length,
    parse_pattern,
)
from proxy.guards.matching.re2set import (
    SET_MEMORY,
    CharacterOffsets,
    PatternSet,
    compile_pattern,
    encode_utf8,
)
from proxy.runtime.frozen import frozen
from proxy.types.guard import Finding

UNSPACED = re.compile(f".?[{WITHOUT_SPACES}]", re.DOTALL)
WORD = re.compile(rf"[^\W{WITHOUT_SPACES}]+")  # no word begins between two of these letters
# Maximum matches of an unbounded pattern; the rest of the text counts as one more.
MAX_UNBOUNDED = 1000


@frozen
class NamedPattern:
    r"""RE2 pattern with the kind and the score of its findings.

    ``whole_words`` skips matches that start or end within a word of any alphabet, as ``\b`` of
    RE2 supports ASCII only. The search then continues at the next character, or after the match if
    its length is unbounded. ``is_linear`` removes the limit on the matches of an unbounded pattern,
    because its searches take linear time.
    """

    kind: str
    regex: str
    score: float = 1.0
    whole_words: bool = False
    is_linear: bool = False


class Patterns:
    """Detector of many patterns.

    ``shapes`` replace the patterns for partial matches, in their order. ``translated`` is passed to
    ``Shapes``. ``hold`` is None if partial matches need too much memory. Raises ``ValueError`` with
    the kind of an invalid pattern or one that matches the empty string, and for patterns that need
    more than ``memory_bytes`` together.
    """

    __slots__ = ("_singles", "lookback", "partial_matcher", "pattern_set")

    def __init__(
        self,
        patterns: Sequence[NamedPattern],
        *,
        memory_bytes: int = SET_MEMORY,
        shapes: Sequence[Shape] = (),
        translated: Mapping[int, str] | None = None,
    ) -> None:
        self._singles = tuple(_Single(pattern) for pattern in patterns)
        try:
            shapes = shapes or [Shape(pattern.regex) for pattern in patterns]
            self.partial_matcher: Shapes | None = Shapes(shapes, memory_bytes, translated)
            self.pattern_set = self.partial_matcher.pattern_set
        except ValueError:  # the set is too large with partial matches
            self.partial_matcher = None
            self.pattern_set = PatternSet([pattern.regex for pattern in patterns], memory_bytes)
        longest = max([single.longest for single in self._singles], default=0)
        # One more character on each side, for ^, $, \b and whole words.
        self.lookback: int | None = None if longest == inf else int(longest) + 1

    def find_overlapping(self, text: str) -> list[Finding]:
        """Return the findings of each pattern. They may overlap."""
        data = encode_utf8(text)
        return [
            finding
            for index in self.pattern_set.find_matching(data)
            for finding in self._singles[index].find(text, data)
        ]

    def find(self, text: str) -> Sequence[Finding]:
        """Return all findings by their start, without overlaps."""
        return resolve_overlaps(self.find_overlapping(text))


class _Single:
    __slots__ = ("_pattern", "_regex", "longest")

    def __init__(self, pattern: NamedPattern) -> None:
        self._pattern, excerpt = pattern, pattern.regex[:80]
        try:
            self._regex = compile_pattern(pattern.regex)
            check_syntax(pattern.regex)
        except ValueError as error:
            raise ValueError(
                f"{pattern.kind}: {excerpt} is not a valid RE2 pattern: {error}"
            ) from None
        self.longest = max_match_length(parse_pattern(pattern.regex))
        if self.longest == 0 or self._regex.search(b"") is not None:
            raise ValueError(f"{pattern.kind}: {excerpt} matches the empty string")

    def find(self, text: str, data: bytes) -> Iterator[Finding]:
        """Yield the findings in ``text``; ``data`` is the same text as UTF-8."""
        characters, searches, byte = CharacterOffsets(text, data), 0, 0
        limit = inf if self.longest < inf or self._pattern.is_linear else MAX_UNBOUNDED
        while byte < len(data):
            for match in self._regex.finditer(data, byte):
                searches += 1
                start, end = characters.to_character_span(*match.span())
                if searches > limit:
                    yield self._build_finding(start, len(text))
                    return
                if self._pattern.whole_words and not _is_whole_word(text, start, end):
                    byte = characters.seek(
                        end if self.longest == inf else _next_word_start(text, start)
                    )
                    break
                if start < end:
                    yield self._build_finding(start, end)
            else:
                return

    def _build_finding(self, start: int, end: int) -> Finding:
        return Finding(start, end, kind=self._pattern.kind, score=self._pattern.score)


def _is_whole_word(text: str, start: int, end: int) -> bool:
    return not (
        (start > 0 and _are_in_one_word(text[start - 1], text[start]))
        or (end < len(text) and _are_in_one_word(text[end - 1], text[end]))
    )


def _next_word_start(text: str, start: int) -> int:
    """Return the next position after ``start`` where a word may start."""
    word = WORD.match(text, start)
    if word and start and _are_in_one_word(text[start - 1], text[start]):
        return max(start + 1, word.end())
    return start + 1


def _are_in_one_word(first_text: str, second: str) -> bool:
    return (
        _is_word_character(first_text)
        and _is_word_character(second)
        and not UNSPACED.match(first_text + second)
    )


def _is_word_character(character: str) -> bool:
    return (
        character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")
    )


def resolve_overlaps(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings by their start that cover the same characters without overlaps.

    The higher score wins, then the earlier, then the longer finding. The uncovered rest of the
    other finding is kept, so that a mask hides everything.
    """
    pending: list[tuple[int, float, int, str, Finding]] = []
    result: list[Finding] = []

    def push(finding: Finding) -> None:
        if finding.start < finding.end:
            entry = (finding.start, -finding.score, -finding.end, finding.kind, finding)
            heapq.heappush(pending, entry)

    for finding in findings:
        push(finding)
    while pending:
        *_, current = heapq.heappop(pending)
        if not result or result[-1].end <= current.start:
            result.append(current)
            continue
        previous = result[-1]
        if current.score <= previous.score:
            push(replace(current, start=max(previous.end, current.start)))
            continue
        result.pop()
        if previous.start < current.start:
            result.append(replace(previous, end=current.start))
        result.append(current)
        push(replace(previous, start=current.end))
    return result
