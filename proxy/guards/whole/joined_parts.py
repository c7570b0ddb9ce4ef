"""Texts that are inspected as one: the parts of a message, and the boundaries between messages.

Guards inspect them in addition to the single texts, for findings across a boundary and for findings
that need the context of a neighbor. Some servers join messages of one role before the model reads
them. Only the characters near such a boundary are inspected again, which bounds the cost of a long
chat.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from operator import itemgetter
from typing import NamedTuple

from proxy.guards.findings import TextMatch
from proxy.guards.text.normalize import View, build_views
from proxy.guards.text.walk import Text, joined_parts_depth
from proxy.runtime.frozen import frozen
from proxy.types.guard import Finding
from proxy.types.partial_matcher import is_cuttable

MAX_JOINED = 64 * 1024  # maximum characters of a message that are inspected again
WINDOW = 256  # characters of a message on either side of a boundary
RUN_WINDOW = 1024  # characters of the neighbors of a short text in a run of texts
SEPARATORS = ("", " ")  # a split key is joined without a space, a split phrase with one

_TURNS = frozenset({"input", "messages"})
_OF_CONTENT = 3  # steps to the content of a message: ``messages``, its index, ``content``


class Cut(NamedTuple):
    """The part of text ``number`` that begins after ``skipped`` characters."""

    number: int
    skipped: int
    text: str


Message = Sequence[Cut]


@frozen
class JoinedParts:
    """Parts of texts that are inspected as one ``text``, each at its position in ``starts``.

    ``data`` are the positions of parts whose base64 is inspected separately. If the parts are from
    several messages, ``shares`` are the spans of the messages: a finding within one span is
    ignored.
    """

    cuts: Sequence[Cut]
    starts: Sequence[int]
    text: Text
    data: frozenset[int]
    shares: Sequence[tuple[int, int]]

    @classmethod
    def of(
        cls,
        texts: Sequence[Text],
        messages: Sequence[Message],
        separator: str = "",
        run: tuple[int, str] | None = None,
    ) -> JoinedParts:
        cuts = [cut for message in messages for cut in message]
        starts: list[int] = []
        shares: list[tuple[int, int]] = []
        offset = 0
        for message in messages:
            share = offset
            for cut in message:
                starts.append(offset)
                offset += len(cut.text)
            shares.append((share, offset))
            offset += len(separator)
        joined = separator.join("".join(cut.text for cut in message) for message in messages)
        data = frozenset(place for place, cut in enumerate(cuts) if texts[cut.number].decoded)
        first_text = texts[cuts[0].number]
        text = Text(first_text.path, joined, first_text.kind, role=first_text.role, run=run)
        return cls(cuts, starts, text, data, shares if len(messages) > 1 else ())

    @property
    def numbers(self) -> Sequence[int]:
        """The indexes of the texts, in order."""
        return [cut.number for cut in self.cuts]

    def build_views(self) -> tuple[View, ...]:
        """Return the readings of the joined text, without the decoded data of a single text."""
        views = build_views(self.text.text)
        return tuple(
            view for view in views if view.whole is None or not self._is_in_data(*view.whole)
        )

    def _is_in_data(self, start: int, end: int) -> bool:
        place = bisect_right(self.starts, start) - 1
        return place in self.data and end <= self.starts[place] + len(self.cuts[place].text)

    def split_matches(self, matches: Iterable[TextMatch]) -> Iterator[list[tuple[int, TextMatch]]]:
        """Yield each match as its pieces in the original texts, each with the index of its text."""
        for match in matches:
            pieces: list[tuple[int, TextMatch]] = []
            place = bisect_right(self.starts, match.start) - 1
            while place < len(self.starts) and self.starts[place] < match.end:
                start, cut = self.starts[place], self.cuts[place]
                end = min(match.end, start + len(cut.text))
                if max(match.start, start) < end:
                    base = start - cut.skipped
                    piece = replace(match, start=max(match.start, start) - base, end=end - base)
                    pieces.append((cut.number, piece))
                place += 1
            yield pieces

    def is_single_finding(self, match: TextMatch, detector: object) -> bool:
        """Return True if a match across texts is one finding.

        At a boundary of messages, a detector may decide that it is two values side by side.
        """
        if not self.shares or not is_cuttable(detector):
            return True
        first_share = bisect_right(self.shares, match.start, key=lambda share: share[0]) - 1
        last_share = bisect_right(self.shares, match.end - 1, key=lambda share: share[0]) - 1
        ends = [
            (self.shares[index][1], self.shares[index + 1][0])
            for index in range(first_share, last_share)
        ]
        finding = Finding(start=match.start, end=match.end, kind=match.kind, score=match.score)
        return detector.is_split_value(self.text.text, finding, ends)

    def pieces_outside(
        self,
        match: TextMatch,
        pieces: Sequence[tuple[int, TextMatch]],
        text_number: int,
        detector: object,
    ) -> Sequence[tuple[int, TextMatch]]:
        """Return the pieces of a finding that are outside of the text ``text_number``.

        At a boundary of messages, pieces must contain a digit, as keys and numbers do. Otherwise an
        address at the end of a message would extend to the first word of the next one. Pieces in
        earlier texts are returned only if the detector decides that the value was cut.
        """
        if not self.shares:
            return pieces
        if is_cuttable(detector):
            remaining = [(number, piece) for number, piece in pieces if number < text_number]
            if not (remaining and self.is_single_finding(match, detector)):
                return ()
        else:
            remaining = [(number, piece) for number, piece in pieces if number >= text_number]
        for number, piece in remaining:
            cut = self.cuts[bisect_left(self.cuts, number, key=itemgetter(0))]
            shown = cut.text[piece.start - cut.skipped : piece.end - cut.skipped]
            if any(map(str.isdigit, shown)):
                return remaining
        return ()


@frozen
class FoundSpans:
    """Spans of a text in which one rule has findings. Overlapping and touching spans are joined."""

    starts: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def of(cls, matches: Iterable[TextMatch]) -> FoundSpans:
        starts: list[int] = []
        ends: list[int] = []
        for match in sorted(matches, key=lambda item: item.start):
            if ends and match.start <= ends[-1]:
                ends[-1] = max(ends[-1], match.end)
            else:
                starts.append(match.start)
                ends.append(match.end)
        return cls(starts, ends)

    def overlaps(self, match: TextMatch) -> bool:
        """Return True if a match overlaps a span."""
        index = bisect_right(self.ends, match.start)
        return index < len(self.starts) and self.starts[index] < match.end

    def contains(self, match: TextMatch) -> bool:
        """Return True if a match is within a span."""
        index = bisect_right(self.ends, match.start)
        return (
            index < len(self.starts)
            and self.starts[index] <= match.start
            and match.end <= self.ends[index]
        )


def iter_joined_texts(texts: Sequence[Text]) -> Iterator[JoinedParts]:
    """Yield the joined texts that are inspected in addition to the single texts."""
    return chain(iter_joined_parts(texts), iter_message_boundaries(texts))


def iter_joined_parts(texts: Sequence[Text]) -> Iterator[JoinedParts]:
    """Yield the messages with several parts, and the runs of several texts.

    In a run that is too long, only the characters near the ends of its texts are joined.
    """
    groups: dict[object, list[int]] = {}
    for number, text in enumerate(texts):
        steps = joined_parts_depth(text.path)
        if text.run is not None:
            groups.setdefault(text.run, []).append(number)
        elif steps is not None:
            groups.setdefault(text.path[:steps], []).append(number)
    for numbers in groups.values():
        run = texts[numbers[0]].run
        if sum(len(texts[number].text) for number in numbers) > MAX_JOINED:
            pairs = pairwise(numbers if run is not None else ())
            yield from (_join_ends(texts, *pair) for pair in pairs)
        elif len(numbers) > 1:
            message = [Cut(number, 0, texts[number].text) for number in numbers]
            yield JoinedParts.of(texts, [message], run=run)


def _join_ends(texts: Sequence[Text], number: int, next_number: int) -> JoinedParts:
    """Join the end of a text with the beginning of the next one."""
    text = texts[number].text
    skipped = max(0, len(text) - RUN_WINDOW)
    next_cut = Cut(next_number, 0, texts[next_number].text[:RUN_WINDOW])
    return JoinedParts.of(texts, [[Cut(number, skipped, text[skipped:]), next_cut]])


def iter_message_boundaries(texts: Sequence[Text]) -> Iterator[JoinedParts]:
    """Yield the joined text around the boundaries between messages of one role.

    A short message is included whole, so that a value cut in three is found.
    """
    for row in _iter_cut_runs(texts):
        ends_in_space = all(
            message[-1].text[-1:].isspace() or next_message[0].text[:1].isspace()
            for message, next_message in pairwise(row)
        )
        for separator in SEPARATORS[:1] if ends_in_space else SEPARATORS:
            yield JoinedParts.of(texts, row, separator)


def _iter_cut_runs(texts: Sequence[Text]) -> Iterator[list[Message]]:
    """Yield runs of two or more messages of one role, cut to the characters near a boundary."""
    for run in _iter_message_runs(texts):
        row: list[Message] = [_cut_message(run[0], from_end=True)]
        size = WINDOW
        for place, message in enumerate(run[1:], start=2):
            length = sum(len(cut.text) for cut in message)
            if place < len(run) and length <= 2 * WINDOW and size + length <= MAX_JOINED:
                row.append(message)
                size += length
                continue
            yield [*row, _cut_message(message, from_end=False)]
            row, size = [_cut_message(message, from_end=True)], WINDOW


def _iter_message_runs(texts: Sequence[Text]) -> Iterator[list[Message]]:
    """Yield two or more messages of one role without a text of another role between them."""
    run: list[list[Cut]] = []
    role, message = None, None
    for number, text in enumerate(texts):
        path = text.path
        if path[0] not in _TURNS or len(path) < _OF_CONTENT:
            continue
        if text.role != role:
            if len(run) > 1:
                yield [*run]
            run, role, message = [], text.role, None
        if role is None or joined_parts_depth(path) != _OF_CONTENT:
            continue
        if path[1] != message:
            run.append([])
            message = path[1]
        run[-1].append(Cut(number, 0, text.text))
    if len(run) > 1:
        yield [*run]


def _cut_message(message: Message, *, from_end: bool) -> Message:
    """Return the first or the last ``WINDOW`` characters of a message."""
    cuts: list[Cut] = []
    remaining = WINDOW
    for cut in reversed(message) if from_end else message:
        skipped = max(0, len(cut.text) - remaining) if from_end else 0
        cuts.append(Cut(cut.number, skipped, cut.text[skipped : skipped + remaining]))
        remaining -= len(cut.text)
        if remaining <= 0:
            break
    return cuts[::-1] if from_end else cuts
