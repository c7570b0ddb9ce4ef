"""RE2 over UTF-8: which of many patterns hit a text, in one pass, before any is asked where.

Everything here takes time linear in the text. Texts are encoded once, and places found in the bytes
are given back as places in the characters.
"""

from __future__ import annotations

import re
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import re2

from proxy.frozen import frozen
from proxy.guardrails.matching.relaxed import relaxed
from proxy.types.guard import MayFind, Sieve

Span = tuple[int, int]

# What an automaton may hold; it is built as texts are read, and begins anew when full.
ONE_BYTES = 8 << 20
MANY_BYTES = 64 << 20
_COMPILING = threading.Lock()  # as there is one interpreter


def encoded(text: str) -> bytes:
    """The text as UTF-8; half of a surrogate pair, which has no such form, becomes ``?``."""
    return text.encode("utf-8", "replace")


@contextmanager
def giving_way() -> Iterator[None]:
    """Compile within it. RE2 does so with the interpreter held, for which an event loop asks many
    times a round and would wait as often: threads beside the main one compile one at a time, and
    each lets the others run afterwards, for as long as it has worked."""
    if threading.current_thread() is threading.main_thread():
        yield
        return
    with _COMPILING:
        began = time.thread_time()
        try:
            yield
        finally:
            time.sleep(time.thread_time() - began)


def compiled(pattern: str) -> re2._Regexp:
    """Compile one pattern. Raise ``ValueError``, in the words of RE2, for one that it does not know
    or that takes too much memory."""
    try:
        with giving_way():
            return re2.compile(pattern, _options(ONE_BYTES))
    except re2.error as wrong:
        words = wrong.args[0] if wrong.args else ""
        text = words.decode(errors="replace") if isinstance(words, bytes) else str(words)
        raise ValueError(text) from None


class Pattern:
    """One pattern, searched in bytes; ``ValueError`` if RE2 does not know its syntax.

    One of our own that few texts ask for may be ``late``: it is compiled by ``prepare``, or when it
    is first searched for.
    """

    __slots__ = ("_found", "written")

    def __init__(self, pattern: str, *, late: bool = False) -> None:
        self.written = pattern
        self._found: re2._Regexp | None = None
        if not late:
            self.prepare()

    def prepare(self) -> re2._Regexp:
        """Return the pattern compiled, which takes a millisecond with the interpreter held."""
        found = self._found
        if found is None:
            try:
                found = self._found = compiled(self.written)
            except ValueError as wrong:
                raise ValueError(f"not a valid RE2 pattern: {self.written[:80]}") from wrong
        return found

    def search(self, data: bytes, start: int = 0, end: int | None = None) -> Sequence[Span] | None:
        """The first match between ``start`` and ``end``: spans of the whole and of its groups.

        A group that took no part is at (-1, -1).
        """
        found = (self._found or self.prepare()).search(data, start, end)
        return None if found is None else _spans(found)

    def match(self, data: bytes) -> Span | None:
        """The span of a match at the beginning of the bytes."""
        found = (self._found or self.prepare()).match(data)
        return None if found is None else _spans(found)[0]

    def every(self, data: bytes) -> Iterator[Sequence[Span]]:
        """All matches that do not overlap, from the left."""
        return map(_spans, (self._found or self.prepare()).finditer(data))

    @property
    def names_groups(self) -> bool:
        return bool((self._found or self.prepare()).groupindex)


def compiling(patterns: Iterable[Pattern]) -> Iterator[None]:
    """Compile patterns that are ``late``, one for each step. Raise ``ValueError`` for one that RE2
    does not know."""
    for each in patterns:
        each.prepare()
        yield


_ESCAPES = re.compile(r"\\(.)", re.DOTALL)
_EDGES = {"A": "^", "z": "$"}
_BY_TEXT = re.compile(r"\(\?[imsU]*-[imsU]*m|\\Q")  # what may unsay that lines are read


class PatternSet:
    """Many patterns at once: which of them hit, not where.

    The edges of a text are taken for those of a line, so that texts are looked at together, each on
    lines of its own: what hits one hits all of them, unless ``by_lines`` is False. Each stands for
    its ``relaxed`` form, so a pattern that hits may be found nowhere.

    ``open_ends`` are patterns beside them of what is not complete where a text ends: they are not
    among ``hits``, and taken as they are.

    Raises ``ValueError`` for a pattern that RE2 does not know, and for patterns that together need
    more than ``memory`` bytes.
    """

    __slots__ = ("_all", "_count", "by_lines", "sieve")

    def __init__(
        self,
        patterns: Iterable[str],
        memory: int = MANY_BYTES,
        open_ends: Iterable[str] = (),
    ) -> None:
        made = re2.Set.SearchSet(_options(memory))
        self._count = 0
        self.by_lines = True
        for pattern in patterns:
            _add(made, _lined(relaxed(pattern)), pattern)
            self._count += 1
            self.by_lines = self.by_lines and not _BY_TEXT.search(pattern)
        self._all = self._count
        for pattern in open_ends:
            _add(made, relaxed(pattern), pattern)
            self._all += 1
        try:
            made.Add(r"\z")  # matches every text: see ``hits``
            with giving_way():
                made.Compile()  # without it, a set matches nothing, silently
        except re2.error:
            raise ValueError("the patterns of this guard are too large together") from None
        # What the library has in C, without its wrapper that would take text, too.
        self.sieve = Sieve(getattr(made, "_set", made).Match, [self._all])

    def hits(self, data: bytes) -> Sequence[int]:
        """Return the indices of the patterns that may hit, in order; the others do not."""
        matched = self.sieve.match(data)
        if not matched:
            # The last pattern always matches. If it does not, RE2 ran out of memory, for which it
            # has no other word than for a clean text: no pattern is known to be absent.
            return range(self._count)
        every = sorted(matched)[:-1]
        if every and every[-1] >= self._count:
            return every[: bisect_left(every, self._count)]
        return every

    def all_hits(self, data: bytes) -> Sequence[int]:
        """Return the same, and behind the patterns those of ``open_ends``."""
        return sorted(self.sieve.match(data) or range(self._all + 1))[:-1]

    def may_hit(self, data: bytes) -> bool:
        """True unless neither a pattern hits nor one of ``open_ends``."""
        return self.sieve.match(data) != self.sieve.nothing


def _add(made: re2.Set, pattern: str, written: str) -> None:
    try:
        made.Add(pattern)
    except re2.error as wrong:
        raise ValueError(f"not a valid RE2 pattern: {written[:80]}") from wrong


def _lined(pattern: str) -> str:
    """Return a pattern that matches within lines what another one does in a text."""
    if _BY_TEXT.search(pattern):
        return pattern
    return "(?m)" + _ESCAPES.sub(lambda escape: _EDGES.get(escape[1], escape[0]), pattern)


def prefilter(
    sets: Sequence[PatternSet], seen: Mapping[int, str] | None = None
) -> Prefilter | None:
    """Return what tells of texts, each on lines of its own, whether one of the sets may hit any,
    with other characters in the place of those ``seen`` otherwise; None where one of them does not
    read line by line."""
    if not all(each.by_lines for each in sets):
        return None
    return Prefilter(tuple(each.sieve for each in sets), seen)


@frozen
class Prefilter:
    """Pattern sets that are searched one after the other.

    ``seen`` maps code points beyond ASCII to the text that the sets read in their place.
    ``confirm`` is a costlier test of the lines in which a set has a match.
    """

    sieves: tuple[Sieve[Any], ...]
    seen: Mapping[int, str] | None = None
    confirm: MayFind | None = None

    def __call__(self, lines: bytes) -> bool:
        if self.seen is not None and not lines.isascii():
            lines = lines.decode().translate(self.seen).encode()
        for match, nothing in self.sieves:
            if match(lines) != nothing:
                return self.confirm is None or self.confirm(lines)
        return False


class Characters:
    """Turns places in bytes to places in characters; asked from the left to the right."""

    __slots__ = ("_at", "_data", "_plain", "_seen")

    def __init__(self, text: str, data: bytes) -> None:
        self._data = data
        self._plain = len(text) == len(data)
        self._at = self._seen = 0

    def before(self, place: int) -> int:
        """How many characters stand before this byte; no byte may be left of the last one asked."""
        if self._plain:
            return place
        self._seen += len(self._data[self._at : place].decode("utf-8", "replace"))
        self._at = place
        return self._seen


def _spans(found: re2._Match) -> Sequence[Span]:
    return [found.span(group) for group in range(found.re.groups + 1)]


def _options(memory: int) -> re2.Options:
    options = re2.Options()
    options.max_mem = memory
    options.log_errors = False
    return options
