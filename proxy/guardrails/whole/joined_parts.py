"""Texts that are read as one: the parts of a message, and what stands where two messages meet.

They are looked at together as well: for what goes across from one to the next, and for what is
found in one of them only by what another says before or after it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from proxy.frozen import frozen
from proxy.guardrails.findings.mask import TextMatch
from proxy.guardrails.text.normalize import View, variants
from proxy.guardrails.text.parts import parts_of
from proxy.guardrails.text.walk import Text
from proxy.types.guard import Finding
from proxy.types.hold import is_cuttable

MOST = 64 * 1024  # characters of a message that are read once more
WINDOW = 1024  # characters of a text near the end of another one of a longer run


@frozen
class JoinedParts:
    """Texts, by their numbers in order, that are read as one; ``starts`` and ``ends`` are where
    each stands in ``text``, and ``data`` are the places of those whose base64 is read beside them.

    Of texts that are cut ``skipped`` says from which character on each is there, and ``shares``
    where each message stands in ``text``: what one of them says by itself, cut as it is, counts for
    nothing.
    """

    numbers: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    text: Text
    data: frozenset[int] = frozenset()
    skipped: tuple[int, ...] = ()
    shares: tuple[tuple[int, int], ...] = ()

    def views(self) -> tuple[View, ...]:
        """Return the readings of all parts as one text, without what one of them says as data."""
        read = variants(self.text.text)
        if not self.data:
            return read
        return tuple(view for view in read if view.whole is None or not self._is_data(*view.whole))

    def in_parts(self, matches: Iterable[TextMatch]) -> Iterator[list[tuple[int, TextMatch]]]:
        """Return what of each match stands in which text, by the text's number."""
        for match in matches:
            yield [*self._pieces(match)]

    def is_one(self, match: TextMatch, detector: object) -> bool:
        """True if what no text has by itself is one finding: where messages meet a detector may
        know that it is two values beside each other."""
        if not self.shares or not is_cuttable(detector):
            return True
        first = bisect_right(self.shares, match.start, key=_begin) - 1
        last = bisect_right(self.shares, match.end - 1, key=_begin) - 1
        ends = [(self.shares[at][1], self.shares[at + 1][0]) for at in range(first, last)]
        found = Finding(start=match.start, end=match.end, kind=match.kind, score=match.score)
        return detector.is_cut(self.text.text, found, ends)

    def continued(
        self,
        match: TextMatch,
        pieces: Sequence[tuple[int, TextMatch]],
        since: int,
        detector: object,
    ) -> Sequence[tuple[int, TextMatch]]:
        """Return what is left of a finding that the text ``since`` has, and may be part of it.
        Where messages are cut it holds a digit, as keys and numbers do: an address at the end of
        one does not make a finding of the word that the next begins with. It is in the next ones,
        or before a value that is told to be cut."""
        if not self.shares:
            return pieces
        if is_cuttable(detector):
            more = [(number, piece) for number, piece in pieces if number < since]
            if not (more and self.is_one(match, detector)):
                return ()
        else:
            more = [(number, piece) for number, piece in pieces if number >= since]
        has_digit = any(any(map(str.isdigit, self._text_of(*each))) for each in more)
        return more if has_digit else ()

    def _text_of(self, number: int, piece: TextMatch) -> str:
        place = bisect_left(self.numbers, number)
        base = self.starts[place] - (self.skipped[place] if self.skipped else 0)
        return self.text.text[piece.start + base : piece.end + base]

    def _is_data(self, start: int, end: int) -> bool:
        place = bisect_right(self.starts, start) - 1
        return place in self.data and end <= self.ends[place]

    def _pieces(self, match: TextMatch) -> Iterator[tuple[int, TextMatch]]:
        for place in range(bisect_right(self.starts, match.start) - 1, len(self.starts)):
            start = self.starts[place]
            if start >= match.end:
                return
            first, last = max(match.start, start), min(match.end, self.ends[place])
            if first < last:
                base = start - self.skipped[place] if self.skipped else start
                yield self.numbers[place], replace(match, start=first - base, end=last - base)


def joined_parts(texts: Sequence[Text]) -> Iterator[JoinedParts]:
    """Return the messages that have several parts, and the runs of several texts. Of a run that is
    too long, what is near the ends of its texts is read as one."""
    groups: dict[object, list[int]] = {}
    for number, text in enumerate(texts):
        steps = parts_of(text.path)
        if text.run is not None:
            groups.setdefault(text.run, []).append(number)
        elif steps is not None:
            groups.setdefault(text.path[:steps], []).append(number)
    for numbers in groups.values():
        if sum(len(texts[number].text) for number in numbers) > MOST:
            yield from _near_ends(texts, numbers)
        elif len(numbers) > 1:
            whole = _joined(texts, numbers, [(0, len(texts[number].text)) for number in numbers])
            yield replace(whole, text=whole.text._replace(run=texts[numbers[0]].run))


def _near_ends(texts: Sequence[Text], numbers: Sequence[int]) -> Iterator[JoinedParts]:
    for first, second in pairwise(numbers if texts[numbers[0]].run is not None else ()):
        length = len(texts[first].text)
        yield _joined(texts, (first, second), [(max(0, length - WINDOW), length), (0, WINDOW)])


def _joined(
    texts: Sequence[Text], numbers: Sequence[int], cuts: Sequence[tuple[int, int]]
) -> JoinedParts:
    """Return some texts, each cut to the characters between two places, as one."""
    pairs = zip(numbers, cuts, strict=True)
    parts = [texts[number].text[start:end] for number, (start, end) in pairs]
    first = texts[numbers[0]]
    ends = tuple(accumulate(map(len, parts)))
    return JoinedParts(
        numbers=tuple(numbers),
        starts=(0, *ends[:-1]),
        ends=ends,
        text=Text(path=first.path, text="".join(parts), kind=first.kind, role=first.role),
        data=frozenset(at for at, number in enumerate(numbers) if texts[number].decoded),
        skipped=tuple(start for start, _ in cuts),
    )


@frozen
class FoundSpans:
    """Where one rule has found something in a text; what overlaps or touches is one span."""

    starts: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def of(cls, matches: Iterable[TextMatch]) -> FoundSpans:
        starts: list[int] = []
        ends: list[int] = []
        for match in sorted(matches, key=_start):
            if ends and match.start <= ends[-1]:
                ends[-1] = max(ends[-1], match.end)
            else:
                starts.append(match.start)
                ends.append(match.end)
        return cls(starts, ends)

    def meets(self, match: TextMatch) -> bool:
        """True if some of a match has been found."""
        at = bisect_right(self.ends, match.start)
        return at < len(self.starts) and self.starts[at] < match.end

    def has(self, match: TextMatch) -> bool:
        """True if all of a match has been found."""
        at = bisect_right(self.ends, match.start)
        return (
            at < len(self.starts) and self.starts[at] <= match.start and match.end <= self.ends[at]
        )


def _begin(share: tuple[int, int]) -> int:
    return share[0]


def _start(match: TextMatch) -> int:
    return match.start
