"""Finds partial matches at the end of a text that may continue.

It applies to texts that end with white space or a letter of a script without spaces. Most patterns
match neither, and have no partial match there. For other patterns, a pattern of their beginnings is
derived, in which each repeat and branch may stop at such a character. It may match too much, but
never too little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from proxy.guards.matching.pattern_syntax import (
    UNSPACED_LETTER,
    Edge,
    Either,
    Node,
    One,
    Repeat,
    Several,
    max_length,
    parse,
    relaxed,
    repeated,
)
from proxy.guards.matching.re2set import MANY_BYTES, Pattern, PatternSet, encoded
from proxy.runtime.frozen import frozen
from proxy.types.guard import is_preparable
from proxy.types.hold import PartialMatcher

ANY_CASE = "(?i)"
LEAST = 2  # characters of a beginning: a single space is withheld anyway
EXACT_COUNT = 256  # of a repeat in a pattern of beginnings; a higher one compiles too slowly
_COUNTED = re.compile(r"\{\d+,(\d+)\}")

OpenPart = Callable[[bytes, int], int]
"""Returns the first byte, from an offset on, of an incomplete finding; the end if there is none."""
LastCharacter = Callable[[One], str | None]
"""Returns the pattern of a character at the end of a text, None if it cannot be the last one."""


@frozen
class Shape:
    """Pattern that all findings of a kind match.

    ``after`` is the number of characters behind a match that may decide about it. For a pattern
    that is too large for a set, ``sign`` is a part of all its matches, and ``signs`` are parts of
    all its partial matches. ``shared`` is the compiled pattern, if the owner already has one.
    """

    pattern: str
    after: int = 0
    sign: str = ""
    signs: tuple[str, ...] | None = None
    shared: Pattern | None = None

    @property
    def open_ends(self) -> tuple[str, ...]:
        if self.signs is not None:
            return self.signs
        beginning = beginnings(self.pattern)
        return () if beginning is None else (beginning,)


class Shapes:
    """Partial matches of several shapes.

    ``found`` selects the shapes that match a text, or may match when it continues. ``translated``
    maps characters before matching. ``opened`` finds other incomplete findings, by the index of a
    shape. ``has_words`` is False if no finding consists of plain words. Raises ``ValueError`` as
    ``PatternSet`` does.
    """

    __slots__ = (
        "_beginnings", "_opened", "_owners", "_patterns", "_translated", "_unspaced", "found",
        "has_words", "is_open", "shapes",
    )  # fmt: skip

    def __init__(
        self,
        shapes: Sequence[Shape],
        memory: int = MANY_BYTES,
        translated: Mapping[int, str] | None = None,
        opened: Mapping[int, OpenPart] | None = None,
        *,
        has_words: bool = True,
    ) -> None:
        self.has_words = has_words
        self.shapes = shapes
        self._translated = translated
        self._opened = opened or {}
        ends = [(index, end) for index, shape in enumerate(shapes) for end in shape.open_ends]
        self._owners = [*range(len(shapes)), *(index for index, _ in ends)]
        patterns = [shape.sign or shape.pattern for shape in shapes]
        self.found = PatternSet(patterns, memory, [end for _, end in ends])
        self.is_open = self.found.may_hit
        self._unspaced: tuple[PatternSet, list[int]] | None = None
        self._beginnings: dict[tuple[int, bool], Pattern | None] = {}
        self._patterns: dict[int, Pattern] = {}

    def is_found(self, data: bytes) -> bool:
        return bool(self.found.hits(data))

    def encoded(self, text: str) -> bytes:
        if self._translated is not None and not text.isascii():
            text = text.translate(self._translated)
        return encoded(text)

    def is_open_at(self, text: str) -> bool:
        data = self.encoded(text)
        return self.is_open(data) or (_is_unspaced(text) and self._unspaced_ends()[0].may_hit(data))

    def begins(self, text: str, since: int) -> int:
        data, is_ascii = self.encoded(text), text.isascii()
        start = since if is_ascii else len(self.encoded(text[:since]))
        indexes = {self._owners[hit] for hit in self.found.all_hits(data)}
        unspaced = _is_unspaced(text)
        if unspaced:
            ends, owners = self._unspaced_ends()
            indexes.update(owners[hit] for hit in ends.all_hits(data))
        offsets = (self._offset(index, data, start, unspaced=unspaced) for index in indexes)
        offset = min(offsets, default=len(data))
        return offset if is_ascii else len(data[:offset].decode("utf-8", "replace"))

    def _offset(self, index: int, data: bytes, start: int, *, unspaced: bool) -> int:
        """Return the offset of the first incomplete finding of one shape."""
        opened = self._opened.get(index)
        offset = opened(data, start) if opened else len(data)
        for kind in (False, True) if unspaced else (False,):
            beginning = self._beginning(index, unspaced=kind)
            if beginning is not None and (spans := beginning.search(data, start)) is not None:
                offset = min(offset, spans[0][0])
        if shape_after := self.shapes[index].after:
            after = shape_after if data.isascii() else 4 * shape_after
            while spans := self._pattern(index).search(data, start):
                first, end = spans[0]
                if end + after > len(data):
                    return min(offset, first)
                start = max(end, first + 1)
        return offset

    def prepare(self) -> None:
        """Compile the set for texts that end in scripts without spaces."""
        self._unspaced_ends()

    def load_rest(self) -> Iterator[None]:
        """Compile the patterns of single shapes, one per step."""
        for index, shape in enumerate(self.shapes):
            for unspaced in (False, True):
                self._beginning(index, unspaced=unspaced)
                yield
            if shape.after:
                self._pattern(index).prepare()
                yield

    def _unspaced_ends(self) -> tuple[PatternSet, list[int]]:
        """Return the set of beginnings that end with a letter of a script without spaces, and
        the indexes of their shapes."""
        if self._unspaced is None:
            ends = [beginnings(shape.pattern, unspaced=True) for shape in self.shapes]
            owners = [index for index, end in enumerate(ends) if end is not None]
            self._unspaced = PatternSet([], open_ends=filter(None, ends)), owners
        return self._unspaced

    def _beginning(self, index: int, *, unspaced: bool) -> Pattern | None:
        key = index, unspaced
        if key not in self._beginnings:
            pattern = beginnings(self.shapes[index].pattern, unspaced=unspaced)
            if pattern and any(int(most) > EXACT_COUNT for most in _COUNTED.findall(pattern)):
                pattern = relaxed(pattern)
            self._beginnings[key] = None if pattern is None else Pattern(pattern)
        return self._beginnings[key]

    def _pattern(self, index: int) -> Pattern:
        if index not in self._patterns:
            shape = self.shapes[index]
            self._patterns[index] = shape.shared or Pattern(shape.pattern)
        return self._patterns[index]


def _is_unspaced(text: str) -> bool:
    return UNSPACED_LETTER.match(text, len(text) - 1) is not None if text else False


@frozen
class Holds:
    """Combines partial matchers that encode texts alike."""

    several: Sequence[PartialMatcher]

    def prepare(self) -> None:
        for each in self.several:
            if is_preparable(each):
                each.prepare()

    def load_rest(self) -> Iterator[None]:
        for each in self.several:
            if is_preparable(each):
                yield from each.load_rest()

    @property
    def has_words(self) -> bool:
        return any(each.has_words for each in self.several)

    def is_open(self, data: bytes) -> bool:
        for each in self.several:  # noqa: SIM110  # called for each word: a generator costs more
            if each.is_open(data):
                return True
        return False

    def is_open_at(self, text: str) -> bool:
        return any(each.is_open_at(text) for each in self.several)

    def is_found(self, data: bytes) -> bool:
        return any(each.is_found(data) for each in self.several)

    def encoded(self, text: str) -> bytes:
        return self.several[0].encoded(text)

    def begins(self, text: str, since: int) -> int:
        return min(each.begins(text, since) for each in self.several)


def beginnings(pattern: str, *, unspaced: bool = False) -> str | None:
    """Return the pattern of partial matches of at least two characters that end with white
    space, or None if there are none.

    With ``unspaced``, the partial matches end with a letter of a script without spaces instead.
    """
    return _beginnings(pattern)[unspaced]


@lru_cache(maxsize=2048)
def _beginnings(pattern: str) -> tuple[str | None, str | None]:
    lead = ANY_CASE if pattern.startswith(ANY_CASE) else ""  # once, not at each letter
    tree = parse(pattern.removeprefix(lead), frozenset("i" if lead else ""))
    with_space, with_letter = (
        _stopped(tree, LEAST, last, more=False)
        for last in (lambda one: one.text if one.takes_space else None, lambda one: one.unspaced)
    )
    return (
        with_space and rf"{lead}(?:{with_space})\z",
        with_letter and rf"{lead}(?:{with_letter})\z",
    )


def _stopped(node: Node, least: int, last: LastCharacter, *, more: bool) -> str | None:
    """Return the pattern of a node's beginnings with at least ``least`` characters, or None.

    With ``more``, other nodes follow, so that the whole node is also a beginning.
    """
    match node:
        case One():
            return last(node) if more and least <= 1 else None
        case Edge():
            return None
        case Several(parts):
            return _stopped_within(parts, least, last, more=more)
        case Either(branches):
            return _either(_stopped(branch, least, last, more=more) for branch in branches)
        case Repeat():
            return _stopped_repeat(node, least, last, more=more)


def _stopped_repeat(node: Repeat, least: int, last: LastCharacter, *, more: bool) -> str | None:
    part, most = node.part, node.most
    if isinstance(part, One):
        upto, least, end = most if more else most - 1, max(1, least), last(part)
        if end is None or upto < least:
            return None
        if end == part.text:
            return repeated(part, least, upto)
        return repeated(part, least - 1, upto - 1) + end
    first = _stopped(part, least, last, more=more or most > 1)
    if most <= 1:
        return first
    remaining = int(max(0, least - max_length(part))) if least else 0
    later = _stopped(part, remaining, last, more=True)
    return _either((first, later and repeated(part, 1, most - 1) + later))


def _stopped_within(
    parts: Sequence[Node], least: int, last: LastCharacter, *, more: bool
) -> str | None:
    lead = []  # single characters before the first part that may stop
    for index, part in enumerate(parts, 1):
        stopped = _stopped(part, least, last, more=more or index < len(parts))
        if stopped is None and isinstance(part, One | Edge):
            lead.append(part.text)
            least = max(0, least - isinstance(part, One))
            continue
        ways = [stopped]
        for passed, remaining in _passed(part, least):
            rest = _stopped_within(parts[index:], remaining, last, more=more)
            ways.append(rest and passed + rest)
        way = _either(ways)
        return way and "".join(lead) + way
    return None


def _passed(node: Node, least: int) -> Iterator[tuple[str, int]]:
    """Yield patterns of the whole node, each with the characters that are still required of
    ``least``."""
    if isinstance(node, Repeat) and isinstance(node.part, One):
        for times in range(node.least, int(min(least, node.most + 1))):
            yield repeated(node.part, times, times), least - times
        if node.most >= least:
            yield repeated(node.part, max(node.least, least), node.most), 0
        return
    yield str(node), int(max(0, least - max_length(node)))


def _either(ways: Iterable[str | None]) -> str | None:
    patterns = [*dict.fromkeys(way for way in ways if way is not None)]
    if len(patterns) < 2:
        return patterns[0] if patterns else None
    return f"(?:{'|'.join(patterns)})"
