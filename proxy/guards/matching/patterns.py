"""Finds all matches of many RE2 patterns in linear time.

A ``PatternSet`` selects the patterns that occur in one pass, and only those are searched one by
one. RE2 bounds the memory of a pattern, and the deadline of the guard bounds the time.
"""

from __future__ import annotations

import heapq
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from proxy.guards.matching import pattern_syntax, re2set
from proxy.guards.matching.partial_match import StreamPattern, StreamPatternMatcher
from proxy.guards.matching.pattern_syntax import UNSPACED_SCRIPTS
from proxy.guards.matching.re2set import CharacterOffsets, PatternSet, Span
from proxy.types.guard import Finding

UNSPACED_PAIR = re.compile(f".?[{UNSPACED_SCRIPTS}]", re.DOTALL)
WORD_CHARACTERS = re.compile(
    rf"[^\W{UNSPACED_SCRIPTS}]+"
)  # no word begins between two of these letters
# Maximum matches of an unbounded pattern; the rest of the text counts as one more.
MAX_UNBOUNDED_MATCHES = 1000


class Patterns:
    r"""Detector of RE2 patterns whose findings have the same ``kind``.

    ``whole_words`` skips matches that start or end within a word of any alphabet, because ``\b`` of
    RE2 supports ASCII only. ``partial_matcher`` is None if partial matches need too much memory.

    Raises ``ValueError`` with the kind for a pattern that is invalid or matches the empty string,
    and for patterns that need more than ``memory_bytes`` together.
    """

    def __init__(
        self,
        kind: str,
        regexes: Sequence[str],
        *,
        whole_words: bool = False,
        memory_bytes: int = re2set.SET_MEMORY_BYTES,
    ) -> None:
        self._kind, self._whole_words = kind, whole_words
        self._compiled = [_compile_nonempty(kind, regex) for regex in regexes]
        self.partial_matcher: StreamPatternMatcher | None = None
        try:
            self.partial_matcher = StreamPatternMatcher(
                [*map(StreamPattern, regexes)], memory_bytes
            )
            self.pattern_set = self.partial_matcher.pattern_set
        except ValueError:  # the set is too large with partial matches
            self.pattern_set = PatternSet(regexes, memory_bytes)
        longest = max((max_chars for _, max_chars in self._compiled), default=0)
        # One more character on each side, for ^, $, \b and whole words.
        self.lookback: int | None = None if longest == inf else int(longest) + 1

    def find_overlapping(self, text: str) -> list[Finding]:
        """Return the findings of each pattern. They may overlap."""
        data = re2set.encode_utf8(text)
        return [
            Finding(start, end, kind=self._kind)
            for index in self.pattern_set.find_candidates(data)
            for start, end in self._find_spans(*self._compiled[index], text, data)
        ]

    def find(self, text: str) -> Sequence[Finding]:
        """Return all findings by their start, without overlaps."""
        return trim_overlaps(self.find_overlapping(text))

    def _find_spans(self, regex: Any, max_chars: float, text: str, data: bytes) -> Iterator[Span]:
        """Yield the matches of a pattern in ``text``; ``data`` is the same text as UTF-8.

        After a match within a word, the search continues at the next character, or behind the
        match if its length is unbounded.
        """
        characters, match_count, byte = CharacterOffsets(text, data), 0, 0
        max_matches = inf if max_chars < inf else MAX_UNBOUNDED_MATCHES
        while byte < len(data):
            for match in regex.finditer(data, byte):
                match_count += 1
                start, end = characters.to_character_span(*match.span())
                if match_count > max_matches:
                    yield start, len(text)
                    return
                if self._whole_words and not _is_whole_word(text, start, end):
                    next_start = end if max_chars == inf else _find_next_word_start(text, start)
                    byte = characters.seek_byte_offset(next_start)
                    break
                if start < end:
                    yield start, end
            else:
                return


def _compile_nonempty(kind: str, regex: str) -> tuple[Any, float]:
    """Return a compiled pattern with the maximum length of its matches."""
    excerpt = regex[:80]
    try:
        compiled = re2set.compile_pattern(regex)
        pattern_syntax.reject_deep_groups_and_bytes(regex)
    except ValueError as error:
        raise ValueError(f"{kind}: {excerpt} is not a valid RE2 pattern: {error}") from None
    max_chars = pattern_syntax.compute_max_match_length(pattern_syntax.parse_pattern(regex))
    if max_chars == 0 or compiled.search(b"") is not None:
        raise ValueError(f"{kind}: {excerpt} matches the empty string")
    return compiled, max_chars


def _is_whole_word(text: str, start: int, end: int) -> bool:
    return not (
        (start > 0 and _are_in_one_word(text[start - 1], text[start]))
        or (end < len(text) and _are_in_one_word(text[end - 1], text[end]))
    )


def _find_next_word_start(text: str, start: int) -> int:
    """Return the next position after ``start`` where a word may start."""
    word = WORD_CHARACTERS.match(text, start)
    if word and start and _are_in_one_word(text[start - 1], text[start]):
        return max(start + 1, word.end())
    return start + 1


def _are_in_one_word(first: str, second: str) -> bool:
    return (
        _is_word_character(first)
        and _is_word_character(second)
        and not UNSPACED_PAIR.match(first + second)
    )


def _is_word_character(character: str) -> bool:
    return (
        character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")
    )


def trim_overlaps(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings that cover the same characters without overlaps, sorted by start.

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
