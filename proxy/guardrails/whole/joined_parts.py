"""The joined parts of a message: each is a text of its own, but a model reads them as one.

Parts are looked at together as well: for what goes across from one to the next, and for what is
found in one of them only by what another says before or after it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from proxy.frozen import frozen
from proxy.guardrails.findings.mask import TextMatch
from proxy.guardrails.text.normalize import View, variants
from proxy.guardrails.text.walk import Path, Text, parts_of

MOST = 64 * 1024  # characters of a message that are read once more


@frozen
class JoinedParts:
    """The texts of one message, by their numbers; ``starts`` is where each begins in ``text``, and
    ``data`` are the places of those whose base64 is read beside them."""

    numbers: tuple[int, ...]
    starts: tuple[int, ...]
    text: Text
    data: frozenset[int] = frozenset()

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

    def _is_data(self, start: int, end: int) -> bool:
        place = bisect_right(self.starts, start) - 1
        return place in self.data and end <= min(self.starts[place + 1 : place + 2], default=end)

    def _pieces(self, match: TextMatch) -> Iterator[tuple[int, TextMatch]]:
        for place in range(bisect_right(self.starts, match.start) - 1, len(self.starts)):
            start = self.starts[place]
            if start >= match.end:
                return
            next_start = self.starts[place + 1 : place + 2]
            first, last = max(match.start, start), min(match.end, *next_start, len(self.text.text))
            if first < last:
                number = self.numbers[place]
                yield number, replace(match, start=first - start, end=last - start)


def joined_parts(texts: Sequence[Text]) -> Iterator[JoinedParts]:
    """Return the messages that have several parts."""
    messages: dict[Path, list[int]] = {}
    for number, text in enumerate(texts):
        steps = parts_of(text.path)
        if steps is not None:
            messages.setdefault(text.path[:steps], []).append(number)
    for message, numbers in messages.items():
        parts = [texts[number].text for number in numbers]
        if len(parts) > 1 and sum(map(len, parts)) <= MOST:
            first = texts[numbers[0]]
            joined = Text(path=message, text="".join(parts), kind=first.kind, role=first.role)
            data = frozenset(at for at, number in enumerate(numbers) if texts[number].decoded)
            yield JoinedParts(
                numbers=tuple(numbers), starts=tuple(_starts(parts)), text=joined, data=data
            )


def _starts(parts: Sequence[str]) -> Iterator[int]:
    at = 0
    for each in parts:
        yield at
        at += len(each)


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


def _start(match: TextMatch) -> int:
    return match.start
