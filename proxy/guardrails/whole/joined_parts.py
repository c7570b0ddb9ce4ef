"""The joined parts of a message: each is a text of its own, but a model reads them as one.

Parts are looked at together as well, for what goes across from one to the next.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

from proxy.frozen import frozen
from proxy.guardrails.findings.mask import TextMatch
from proxy.guardrails.text.walk import Path, Text, parts_of

MOST = 64 * 1024  # characters of a message that are read once more


@frozen
class JoinedParts:
    """The texts of one message, by their numbers; ``starts`` is where each begins in ``text``."""

    numbers: tuple[int, ...]
    starts: tuple[int, ...]
    text: Text

    def across(self, matches: Sequence[TextMatch]) -> Iterator[list[tuple[int, TextMatch]]]:
        """Return the parts of each match that spans several texts, by the number of the text."""
        for match in matches:
            pieces = [*self._pieces(match)]
            if len(pieces) > 1:
                yield pieces

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
            yield JoinedParts(tuple(numbers), tuple(_starts(parts)), joined)


def _starts(parts: Sequence[str]) -> Iterator[int]:
    at = 0
    for each in parts:
        yield at
        at += len(each)
