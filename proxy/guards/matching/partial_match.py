"""Finds partial matches at the end of a text that may continue.

Texts are checked when they end with white space or a letter of a script without spaces. Most
patterns match neither, and have no partial match there. For other patterns, a pattern of their
beginnings is derived, in which each repeat and branch may stop at such a character. It may match
too much, but never too little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from proxy.guards.matching import re2set
from proxy.guards.matching.pattern_syntax import (
    UNSPACED_LETTER,
    Alternation,
    Assertion,
    Character,
    Concatenation,
    Node,
    Repeat,
    build_repeat_pattern,
    compute_max_match_length,
    parse_pattern,
    relax_repetitions,
)
from proxy.guards.matching.re2set import Pattern, PatternSet, Span
from proxy.runtime.frozen import frozen

CASE_FLAG = "(?i)"
MIN_PARTIAL_CHARS = 2  # minimum characters of a partial match; a single space is withheld anyway
# Maximum count of a repeat in a pattern for partial matches; higher counts compile too slowly.
MAX_EXACT_COUNT = 256
_COUNTED = re.compile(r"\{\d+,(\d+)\}")

PartialFinder = Callable[[bytes, int], int]
"""Returns the offset of an incomplete finding from a given offset on, or the end of the data."""
Ending = Callable[[Character], str | None]
"""Returns the pattern of a character at the end of a text, None if it cannot be the last one."""


@frozen
class StreamPattern:
    """Pattern that matches every finding of a kind, in whole texts and in streams.

    - ``chars_after`` is the number of characters behind a match that may change the decision.
    - ``marker_pattern`` replaces a pattern that is too large for a set. Every match contains it.
    - ``partial_marker_patterns`` likewise: every partial match contains one of them.
    - ``compiled`` finds the matches, if another pattern than ``pattern`` does.
    """

    pattern: str
    chars_after: int = 0
    marker_pattern: str = ""
    partial_marker_patterns: tuple[str, ...] | None = None
    compiled: Pattern | None = None


class StreamPatternMatcher:
    """Detects matches of several patterns, and their partial matches at the end of a text.

    ``pattern_set`` selects the patterns that match a text, or may match when it continues.
    ``translation`` maps characters before matching. ``partial_finders`` find other incomplete
    findings, by the index of a pattern. Raises ``ValueError`` as ``PatternSet`` does.
    """

    def __init__(
        self,
        patterns: Sequence[StreamPattern],
        memory: int = re2set.SET_MEMORY_BYTES,
        translation: Mapping[int, str] | None = None,
        partial_finders: Mapping[int, PartialFinder] | None = None,
    ) -> None:
        self._patterns = patterns
        self._translation = translation
        self._partial_finders = partial_finders or {}
        partials = [
            (index, partial)
            for index, item in enumerate(patterns)
            for partial in item.partial_marker_patterns or [build_partial_pattern(item.pattern)]
            if partial is not None
        ]
        self._owners = [*range(len(patterns)), *(index for index, _ in partials)]
        sources = [item.marker_pattern or item.pattern for item in patterns]
        self.pattern_set = PatternSet(sources, memory, [partial for _, partial in partials])
        self.ends_in_partial_match = self.pattern_set.may_match_or_begin
        self.prefilter = re2set.build_line_prefilter([self.pattern_set], translation)
        self._unspaced: tuple[PatternSet, list[int]] | None = None
        self._partials = [
            [
                _compile_partial_pattern(item.pattern, unspaced=unspaced)
                for unspaced in (False, True)
            ]
            for item in patterns
        ]
        self._compiled = [item.compiled or Pattern(item.pattern, lazy=True) for item in patterns]

    def find_all(self, data: bytes) -> Iterator[tuple[int, Sequence[Span]]]:
        """Yield the index of a pattern and the spans of a match and its groups, by pattern."""
        for index in self.pattern_set.find_candidates(data):
            for spans in self._compiled[index].find_all(data):
                yield index, spans

    def may_contain_match(self, text: str) -> bool:
        return bool(self.pattern_set.find_candidates(self._translate_and_encode(text)))

    def _translate_and_encode(self, text: str) -> bytes:
        if self._translation is not None and not text.isascii():
            text = text.translate(self._translation)
        return re2set.encode_utf8(text)

    def may_end_in_partial_match(self, text: str) -> bool:
        data = self._translate_and_encode(text)
        return self.ends_in_partial_match(data) or (
            _ends_in_unspaced_script(text)
            and self._load_unspaced_partials()[0].may_match_or_begin(data)
        )

    def find_partial_match(self, text: str, start: int) -> int:
        data, is_ascii = self._translate_and_encode(text), text.isascii()
        byte_start = start if is_ascii else len(self._translate_and_encode(text[:start]))
        indexes = {self._owners[hit] for hit in self.pattern_set.find_candidates_or_partials(data)}
        unspaced = _ends_in_unspaced_script(text)
        if unspaced:
            partial_set, owners = self._load_unspaced_partials()
            indexes.update(owners[hit] for hit in partial_set.find_candidates_or_partials(data))
        offsets = (
            self._find_partial_offset(index, data, byte_start, unspaced=unspaced)
            for index in indexes
        )
        offset = min(offsets, default=len(data))
        return offset if is_ascii else len(data[:offset].decode("utf-8", "replace"))

    def _find_partial_offset(self, index: int, data: bytes, start: int, *, unspaced: bool) -> int:
        find_partial = self._partial_finders.get(index)
        offset = find_partial(data, start) if find_partial else len(data)
        for partial in self._partials[index][: 1 + unspaced]:
            if partial is not None and (spans := partial.search(data, start)) is not None:
                offset = min(offset, spans[0][0])
        if chars_after := self._patterns[index].chars_after:
            bytes_after = chars_after if data.isascii() else 4 * chars_after
            while spans := self._compiled[index].search(data, start):
                match_start, match_end = spans[0]
                if match_end + bytes_after > len(data):
                    return min(offset, match_start)
                start = max(match_end, match_start + 1)
        return offset

    def prepare(self) -> None:
        self._load_unspaced_partials()

    def iter_loading_steps(self) -> Iterator[None]:
        partials = filter(None, chain.from_iterable(self._partials))
        yield from re2set.iter_compile_steps(chain(partials, self._compiled))

    def _load_unspaced_partials(self) -> tuple[PatternSet, list[int]]:
        if self._unspaced is None:
            ends = [build_partial_pattern(item.pattern, unspaced=True) for item in self._patterns]
            owners = [index for index, end in enumerate(ends) if end is not None]
            self._unspaced = PatternSet([], partial_patterns=filter(None, ends)), owners
        return self._unspaced


def _compile_partial_pattern(pattern: str, *, unspaced: bool) -> Pattern | None:
    """Return the pattern of partial matches, relaxed if a count exceeds ``MAX_EXACT_COUNT``."""
    partial = build_partial_pattern(pattern, unspaced=unspaced)
    if partial is None:
        return None
    if any(int(max_count) > MAX_EXACT_COUNT for max_count in _COUNTED.findall(partial)):
        partial = relax_repetitions(partial)
    return Pattern(partial, lazy=True)


def _ends_in_unspaced_script(text: str) -> bool:
    return UNSPACED_LETTER.match(text, len(text) - 1) is not None if text else False


@frozen
class CombinedPartialMatcher:
    """Combines several partial matchers."""

    matchers: Sequence[StreamPatternMatcher]

    def prepare(self) -> None:
        for matcher in self.matchers:
            matcher.prepare()

    def iter_loading_steps(self) -> Iterator[None]:
        for matcher in self.matchers:
            yield from matcher.iter_loading_steps()

    def ends_in_partial_match(self, data: bytes) -> bool:
        for matcher in self.matchers:  # noqa: SIM110  # for each word, and a generator costs more
            if matcher.ends_in_partial_match(data):
                return True
        return False

    def may_end_in_partial_match(self, text: str) -> bool:
        return any(matcher.may_end_in_partial_match(text) for matcher in self.matchers)

    def may_contain_match(self, text: str) -> bool:
        return any(matcher.may_contain_match(text) for matcher in self.matchers)

    def find_partial_match(self, text: str, start: int) -> int:
        return min(matcher.find_partial_match(text, start) for matcher in self.matchers)


def build_partial_pattern(pattern: str, *, unspaced: bool = False) -> str | None:
    """Return the pattern of partial matches, None if there are none.

    Partial matches have at least two characters and end with white space. With ``unspaced``, they
    end with a letter of a script without spaces instead.
    """
    return _build_partial_patterns(pattern)[unspaced]


@lru_cache(maxsize=2048)
def _build_partial_patterns(pattern: str) -> tuple[str | None, str | None]:
    lead = CASE_FLAG if pattern.startswith(CASE_FLAG) else ""  # the flag once, not for each letter
    tree = parse_pattern(pattern.removeprefix(lead), frozenset("i" if lead else ""))
    with_space, with_letter = (
        _build_prefix_pattern(tree, MIN_PARTIAL_CHARS, ending, is_followed=False)
        for ending in (
            lambda character: character.text if character.can_be_space else None,
            lambda character: character.unspaced_script_pattern,
        )
    )
    return (
        with_space and rf"{lead}(?:{with_space})\z",
        with_letter and rf"{lead}(?:{with_letter})\z",
    )


def _build_prefix_pattern(
    node: Node, min_length: int, ending: Ending, *, is_followed: bool
) -> str | None:
    """Return the pattern of a node's prefixes of at least ``min_length`` characters, or None.

    With ``is_followed``, other nodes follow, so that the whole node is also a beginning.
    """
    match node:
        case Character():
            return ending(node) if is_followed and min_length <= 1 else None
        case Assertion():
            return None
        case Concatenation(parts):
            return _build_sequence_prefix(parts, min_length, ending, is_followed=is_followed)
        case Alternation(branches):
            return _join_known_alternatives(
                _build_prefix_pattern(branch, min_length, ending, is_followed=is_followed)
                for branch in branches
            )
        case Repeat():
            return _build_repeat_prefix(node, min_length, ending, is_followed=is_followed)


def _build_repeat_prefix(
    node: Repeat, min_length: int, ending: Ending, *, is_followed: bool
) -> str | None:
    part, max_count = node.part, node.max_count
    if isinstance(part, Character):
        max_before = max_count if is_followed else max_count - 1
        min_length, end = max(1, min_length), ending(part)
        if end is None or max_before < min_length:
            return None
        if end == part.text:
            return build_repeat_pattern(part, min_length, max_before)
        return build_repeat_pattern(part, min_length - 1, max_before - 1) + end
    first_round = _build_prefix_pattern(
        part, min_length, ending, is_followed=is_followed or max_count > 1
    )
    if max_count <= 1:
        return first_round
    remaining = int(max(0, min_length - compute_max_match_length(part))) if min_length else 0
    later_round = _build_prefix_pattern(part, remaining, ending, is_followed=True)
    return _join_known_alternatives(
        (first_round, later_round and build_repeat_pattern(part, 1, max_count - 1) + later_round)
    )


def _build_sequence_prefix(
    parts: Sequence[Node], min_length: int, ending: Ending, *, is_followed: bool
) -> str | None:
    lead = []  # single characters before the first part at which the text may end
    for index, part in enumerate(parts, 1):
        prefix = _build_prefix_pattern(
            part, min_length, ending, is_followed=is_followed or index < len(parts)
        )
        if prefix is None and isinstance(part, Character | Assertion):
            lead.append(part.text)
            min_length = max(0, min_length - isinstance(part, Character))
            continue
        branches = [prefix]
        for full_text, remaining in _iter_patterns_with_remaining_length(part, min_length):
            tail = _build_sequence_prefix(parts[index:], remaining, ending, is_followed=is_followed)
            branches.append(tail and full_text + tail)
        pattern = _join_known_alternatives(branches)
        return pattern and "".join(lead) + pattern
    return None


def _iter_patterns_with_remaining_length(node: Node, min_length: int) -> Iterator[tuple[str, int]]:
    """Yield patterns of the whole node with the length that the nodes after it must match."""
    if isinstance(node, Repeat) and isinstance(node.part, Character):
        for times in range(node.min_count, int(min(min_length, node.max_count + 1))):
            yield build_repeat_pattern(node.part, times, times), min_length - times
        if node.max_count >= min_length:
            yield (
                build_repeat_pattern(node.part, max(node.min_count, min_length), node.max_count),
                0,
            )
        return
    yield str(node), int(max(0, min_length - compute_max_match_length(node)))


def _join_known_alternatives(branches: Iterable[str | None]) -> str | None:
    patterns = [*dict.fromkeys(branch for branch in branches if branch is not None)]
    if len(patterns) < 2:
        return patterns[0] if patterns else None
    return f"(?:{'|'.join(patterns)})"
