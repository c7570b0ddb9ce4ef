"""What of a text that goes on may still be part of a finding, by the shapes that findings have.

It is asked at white space, and behind letters of scripts without spaces: most shapes have neither
inside, so that of these nothing is open there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from proxy.frozen import frozen
from proxy.guardrails.matching.re2set import MANY_BYTES, Pattern, PatternSet, encoded
from proxy.guardrails.matching.relaxed import relaxed
from proxy.guardrails.matching.scripts import UNSPACED_LETTER
from proxy.guardrails.matching.within_match import beginnings
from proxy.types.guard import MayFind, is_preparable
from proxy.types.hold import Hold

MOST_COUNTED = 256
_COUNTED = re.compile(r"\{\d+,(\d+)\}")

Opened = Callable[[bytes, int], int]
"""Returns the first byte, from a place on, of what is open in a text; its end where nothing is."""


@frozen
class Shape:
    """A pattern that all findings of a kind match, and ``after``, the characters behind a match
    that decide about it.

    Of a pattern that is too large to be looked for together with others ``sign`` is what is in all
    of its matches, and ``signs`` are what is in all of their beginnings with white space inside.
    ``shared`` is the pattern where its owner compiles it anyway: some take ten milliseconds.
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
        begun = beginnings(self.pattern)
        return () if begun is None else (begun,)

    @property
    def unspaced_end(self) -> str | None:
        return beginnings(self.pattern, unspaced=True)


class Shapes:
    """The shapes of findings: ``found`` tells which of them are in a text, in their order, and
    with what is open at its end. Raises ``ValueError`` as ``PatternSet`` does."""

    __slots__ = (
        "_begun", "_matched", "_opened", "_owners", "_translated", "_unspaced", "found",
        "has_words", "is_open", "shapes",
    )  # fmt: skip

    def __init__(
        self,
        shapes: Sequence[Shape],
        memory: int = MANY_BYTES,
        translated: Mapping[int, str] | None = None,
        opened: Mapping[int, Opened] | None = None,
        *,
        has_words: bool = True,
    ) -> None:
        """``translated`` are characters that the patterns know by others; ``opened`` is, by the
        number of a shape, what tells what else is open where that is seen; without ``has_words``
        no finding, nor a beginning of one, is in plain words alone."""
        self.has_words = has_words
        self.shapes = shapes
        self._translated = translated
        self._opened = opened or {}
        open_ends = [(own, end) for own, shape in enumerate(shapes) for end in shape.open_ends]
        self._owners = [*range(len(shapes)), *(own for own, _ in open_ends)]
        patterns = [shape.sign or shape.pattern for shape in shapes]
        self.found = PatternSet(patterns, memory, [end for _, end in open_ends])
        self.is_open: MayFind = self.found.may_hit
        self._unspaced: tuple[PatternSet, list[int]] | None = None
        self._begun: dict[tuple[int, bool], Pattern | None] = {}
        self._matched: dict[int, Pattern] = {}

    def is_found(self, data: bytes) -> bool:
        return bool(self.found.hits(data))

    def encoded(self, text: str) -> bytes:
        if self._translated is not None and not text.isascii():
            text = text.translate(self._translated)
        return encoded(text)

    def is_open_at(self, text: str) -> bool:
        data = self.encoded(text)
        if self.is_open(data):
            return True
        return _is_unspaced(text) and self._unspaced_ends()[0].may_hit(data)

    def begins(self, text: str, since: int) -> int:
        data, plain = self.encoded(text), text.isascii()
        start = since if plain else len(self.encoded(text[:since]))
        owners = {self._owners[hit] for hit in self.found.all_hits(data)}
        unspaced = _is_unspaced(text)
        if unspaced:
            ends, numbers = self._unspaced_ends()
            owners.update(numbers[hit] for hit in ends.all_hits(data))
        places = (self._of_shape(own, data, start, unspaced=unspaced) for own in owners)
        place = min(places, default=len(data))
        return place if plain else len(data[:place].decode("utf-8", "replace"))

    def _of_shape(self, own: int, data: bytes, start: int, *, unspaced: bool) -> int:
        shape, place = self.shapes[own], len(data)
        if own in self._opened:
            place = self._opened[own](data, start)
        for each in (False, True) if unspaced else (False,):
            begun = self._beginnings(own, unspaced=each)
            if begun is not None and (spans := begun.search(data, start)) is not None:
                place = min(place, spans[0][0])
        if shape.after:
            after = shape.after if data.isascii() else 4 * shape.after
            while spans := self._pattern(own).search(data, start):
                first, end = spans[0]
                if end + after > len(data):
                    return min(place, first)
                start = max(end, first + 1)
        return place

    def prepare(self) -> None:
        """Compile what tells whether anything is open behind letters of any script."""
        self._unspaced_ends()

    def load_rest(self) -> Iterator[None]:
        """Compile what tells where it is that is open."""
        for own, shape in enumerate(self.shapes):
            self._beginnings(own)
            yield
            self._beginnings(own, unspaced=True)
            yield
            if shape.after:
                self._pattern(own).prepare()
                yield

    def _unspaced_ends(self) -> tuple[PatternSet, list[int]]:
        """Return what tells of a text whose last letter is of a script without spaces which shapes
        may be under way there, and the numbers of these shapes."""
        if self._unspaced is None:
            ends = [(own, shape.unspaced_end) for own, shape in enumerate(self.shapes)]
            known = [(own, end) for own, end in ends if end is not None]
            begun = PatternSet([], open_ends=[end for _, end in known])
            self._unspaced = begun, [own for own, _ in known]
        return self._unspaced

    def _beginnings(self, own: int, *, unspaced: bool = False) -> Pattern | None:
        """Return the pattern of a shape's beginnings, compiled when it is first asked for. One that
        counts far is relaxed: it would hold up the interpreter while it compiles."""
        key = own, unspaced
        if key not in self._begun:
            begun = beginnings(self.shapes[own].pattern, unspaced=unspaced)
            if begun is not None and any(
                int(most) > MOST_COUNTED for most in _COUNTED.findall(begun)
            ):
                begun = relaxed(begun)
            self._begun[key] = None if begun is None else Pattern(begun)
        return self._begun[key]

    def _pattern(self, own: int) -> Pattern:
        if own not in self._matched:
            shape = self.shapes[own]
            self._matched[own] = shape.shared or Pattern(shape.pattern)
        return self._matched[own]


def _is_unspaced(text: str) -> bool:
    return UNSPACED_LETTER.match(text, len(text) - 1) is not None if text else False


@frozen
class Holds:
    """Several holds as one, which read texts alike."""

    several: Sequence[Hold]

    def prepare(self) -> None:
        """Compile what tells of each whether anything is open."""
        for each in self.several:
            if is_preparable(each):
                each.prepare()

    def load_rest(self) -> Iterator[None]:
        """Compile what tells of each where it is that is open."""
        for each in self.several:
            if is_preparable(each):
                yield from each.load_rest()

    @property
    def has_words(self) -> bool:
        return any(each.has_words for each in self.several)

    def is_open(self, data: bytes) -> bool:
        for each in self.several:  # noqa: SIM110  # for each word, and a generator costs more
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
