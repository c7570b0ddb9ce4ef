"""RE2 for UTF-8 data: single patterns, and sets of patterns searched in one pass.

All searches take linear time.
"""

from __future__ import annotations

import re
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import re2

from proxy.guards.matching.pattern_syntax import relax_repetitions
from proxy.types.guard import Finding, PrefilterFunction

Span = tuple[int, int]

# Memory of an automaton, which is built while matching and reset when full.
PATTERN_MEMORY_BYTES = 8 << 20
SET_MEMORY_BYTES = 64 << 20
LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_COMPILE_LOCK = threading.Lock()  # RE2 compiles with the GIL held


def replace_surrogates(text: str) -> str:
    """Return a text with U+FFFD in place of lone surrogates.

    JSON may contain them, UTF-8 may not.
    """
    return text if text.isascii() else LONE_SURROGATES.sub("\ufffd", text)


def encode_utf8(text: str) -> bytes:
    """Return a text as UTF-8, with U+FFFD in place of lone surrogates."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return replace_surrogates(text).encode()


@contextmanager
def throttled_compilation() -> Iterator[None]:
    """Context manager that limits how long a compilation in it blocks the event loop.

    Threads other than the main thread compile one at a time, and then sleep for as long as the
    compilation took.
    """
    if threading.current_thread() is threading.main_thread():
        yield
        return
    with _COMPILE_LOCK:
        started_at = time.thread_time()
        try:
            yield
        finally:
            time.sleep(time.thread_time() - started_at)


def compile_pattern(pattern: str, memory: int = PATTERN_MEMORY_BYTES) -> re2._Regexp:
    """Compile a pattern.

    Raises ``ValueError`` with the message of RE2 for invalid syntax, or if the pattern needs
    more than ``memory`` bytes.
    """
    try:
        with throttled_compilation():
            return re2.compile(pattern, _build_re2_options(memory))
    except re2.error as error:
        message = error.args[0] if error.args else ""
        text = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
        raise ValueError(text) from None


class Pattern:
    """Pattern that is searched in bytes. Raises ``ValueError`` for invalid syntax.

    A ``lazy`` pattern is compiled by ``prepare`` or at the first search, which takes about 1 ms.
    """

    def __init__(
        self, pattern: str, *, lazy: bool = False, memory: int = PATTERN_MEMORY_BYTES
    ) -> None:
        self.source, self._memory = pattern, memory
        self._regex: re2._Regexp | None = None
        if not lazy:
            self.prepare()

    def prepare(self) -> re2._Regexp:
        if self._regex is None:
            try:
                self._regex = compile_pattern(self.source, self._memory)
            except ValueError as error:
                raise ValueError(f"not a valid RE2 pattern: {self.source[:80]}") from error
        return self._regex

    def search(self, data: bytes, start: int = 0, end: int | None = None) -> Sequence[Span] | None:
        """Return the spans of the first match between ``start`` and ``end``, and of its groups.

        An unmatched group has the span (-1, -1).
        """
        match = (self._regex or self.prepare()).search(data, start, end)
        return None if match is None else _get_group_spans(match)

    def match(self, data: bytes) -> Span | None:
        match = (self._regex or self.prepare()).match(data)
        return None if match is None else _get_group_spans(match)[0]

    def find_all(self, data: bytes) -> Iterator[Sequence[Span]]:
        """Return all matches without overlaps, from left to right."""
        return map(_get_group_spans, (self._regex or self.prepare()).finditer(data))

    @property
    def has_named_groups(self) -> bool:
        return bool((self._regex or self.prepare()).groupindex)


def iter_compile_steps(patterns: Iterable[Pattern]) -> Iterator[None]:
    """Compile ``lazy`` patterns, one per step. Raises ``ValueError`` for invalid syntax."""
    for pattern in patterns:
        pattern.prepare()
        yield


_ESCAPES = re.compile(r"\\(.)", re.DOTALL)
_LINE_EDGES = {"A": "^", "z": "$"}
_MAY_UNSET_MULTILINE = re.compile(
    r"\(\?[imsU]*-[imsU]*m|\\Q"
)  # pattern text that may unset the multiline flag


class PatternSet:
    """Set of patterns that finds which patterns may match a text, but not where.

    Each pattern is relaxed, so a hit is not always a match. ``^`` and ``$`` match at the edges of
    lines, so that texts on separate lines can be searched together, unless ``by_lines`` is False.

    ``partial_patterns`` match partial matches at the end of a text. ``find_candidates`` omits them.
    Raises ``ValueError`` for invalid syntax, and if all patterns need more than ``memory`` bytes.
    """

    def __init__(
        self,
        patterns: Iterable[str],
        memory: int = SET_MEMORY_BYTES,
        partial_patterns: Iterable[str] = (),
    ) -> None:
        set_ = re2.Set.SearchSet(_build_re2_options(memory))
        sources, partials = [*patterns], [*partial_patterns]
        self._count = len(sources)
        self.by_lines = not any(map(_MAY_UNSET_MULTILINE.search, sources))
        anchored = [_anchor_at_line_edges(relax_repetitions(pattern)) for pattern in sources]
        added = [*anchored, *map(relax_repetitions, partials)]
        for relaxed, source_pattern in zip(added, [*sources, *partials], strict=True):
            try:
                set_.Add(relaxed)
            except re2.error as error:
                raise ValueError(f"not a valid RE2 pattern: {source_pattern[:80]}") from error
        try:
            set_.Add(r"\z")  # matches every text: see ``find_candidates``
            with throttled_compilation():
                set_.Compile()  # an uncompiled set matches nothing
        except re2.error:
            raise ValueError("the patterns of this guard are too large together") from None
        # The function in C, without the wrapper that also accepts text.
        self._match: Callable[[bytes], list[int] | None] = getattr(set_, "_set", set_).Match
        self._nothing = [len(sources) + len(partials)]

    def find_candidates(self, data: bytes) -> Sequence[int]:
        """Return the indexes of the patterns that may match, in order."""
        matched = self._match(data)
        if matched == self._nothing:
            return []
        if not matched:
            # The last pattern always matches, so RE2 has run out of memory: any pattern may match.
            return range(self._count)
        indexes = sorted(matched)[:-1]
        if indexes and indexes[-1] >= self._count:
            return indexes[: bisect_left(indexes, self._count)]
        return indexes

    def find_candidates_or_partials(self, data: bytes) -> Sequence[int]:
        """Return the indexes of patterns that may match; partial patterns follow the others."""
        return sorted(self._match(data) or range(self._nothing[0] + 1))[:-1]

    def may_match_or_begin(self, data: bytes) -> bool:
        return self._match(data) != self._nothing


def _anchor_at_line_edges(pattern: str) -> str:
    """Return a pattern whose anchors of the whole text match at the edges of lines."""
    if _MAY_UNSET_MULTILINE.search(pattern):
        return pattern
    return "(?m)" + _ESCAPES.sub(lambda escape: _LINE_EDGES.get(escape[1], escape[0]), pattern)


def build_line_prefilter(
    sets: Sequence[PatternSet], translation: Mapping[int, str] | None = None
) -> PrefilterFunction | None:
    """Return a function that detects if one of several sets may match a line of a text.

    ``translation`` maps code points beyond ASCII to the text that is matched in their place. Return
    None if one of the sets cannot match line by line.
    """

    def may_match(lines: bytes) -> bool:
        if translation is not None and not lines.isascii():
            lines = lines.decode().translate(translation).encode()
        for pattern_set in sets:  # noqa: SIM110  # a generator costs a tenth of a search
            if pattern_set.find_candidates(lines):
                return True
        return False

    return may_match if all(pattern_set.by_lines for pattern_set in sets) else None


class CharacterOffsets:
    """Converts offsets in UTF-8 data to offsets in the text, from left to right."""

    def __init__(self, text: str, data: bytes) -> None:
        self._text, self._data = text, data
        self._is_ascii = len(text) == len(data)
        self._byte = self._character = 0

    def to_character_span(self, start: int, end: int) -> Span:
        """Convert a byte span to characters and move to its start.

        The start must not be before the current position.
        """
        if self._is_ascii:
            return start, end
        self._character += len(self._data[self._byte : start].decode("utf-8", "replace"))
        self._byte = start
        size = len(self._data[start:end].decode("utf-8", "replace"))
        return self._character, self._character + size

    def to_finding(self, start: int, end: int, kind: str, score: float = 1.0) -> Finding:
        start_index, end_index = self.to_character_span(start, end)
        return Finding(start_index, end_index, kind=kind, score=score)

    def seek_byte_offset(self, character: int) -> int:
        """Move to a character and return its offset in bytes."""
        if self._is_ascii:
            return character
        self._byte += len(encode_utf8(self._text[self._character : character]))
        self._character = character
        return self._byte


def _get_group_spans(match: re2._Match) -> Sequence[Span]:
    return [match.span(group) for group in range(match.re.groups + 1)]


def _build_re2_options(memory: int) -> re2.Options:
    options = re2.Options()
    options.max_mem = memory
    options.log_errors = False
    return options
