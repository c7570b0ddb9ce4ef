"""Texts that are inspected as one: the parts of a message, and the boundaries between messages.

Guards inspect them in addition to the single texts, for findings across a boundary and for findings
that need the context of a neighbor. Some servers join messages of one role before the model reads
them. Only the characters near such a boundary are inspected again, which bounds the cost of a long
chat.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby, pairwise
from operator import attrgetter, itemgetter
from typing import NamedTuple

from proxy.guards.findings import TextMatch
from proxy.guards.text.normalize import View, build_views
from proxy.guards.text.walk import Text, find_joined_parts_depth
from proxy.runtime.frozen import frozen
from proxy.types.guard import Finding
from proxy.types.partial_matcher import is_split_value_checker

MAX_JOINED_CHARS = 64 * 1024  # maximum characters of a message that are inspected again
BOUNDARY_CHARS = 256  # characters of a message on either side of a boundary
JOINED_END_CHARS = 1024  # characters at the end of one long text and the start of the next
SEPARATORS = ("", " ")  # a split key is joined without a space, a split phrase with one

_TURNS = frozenset({"input", "messages"})
_OF_CONTENT = 3  # steps to the content of a message: ``messages``, its index, ``content``


class TextPart(NamedTuple):
    """The part of text ``text_index`` that begins after ``skipped_chars`` characters."""

    text_index: int
    skipped_chars: int
    text: str


Message = Sequence[TextPart]


@frozen
class JoinedParts:
    """Parts of texts that are inspected as one ``text``, each at its position in ``starts``.

    ``decoded_parts`` are the indexes of parts whose base64 is inspected separately.
    ``message_spans`` are the spans of the messages, empty for one message. A finding within one
    span is ignored.
    """

    parts: Sequence[TextPart]
    starts: Sequence[int]
    text: Text
    decoded_parts: frozenset[int]
    message_spans: Sequence[tuple[int, int]]

    @classmethod
    def from_messages(
        cls,
        texts: Sequence[Text],
        messages: Sequence[Message],
        separator: str = "",
        join_key: tuple[int, str] | None = None,
    ) -> JoinedParts:
        parts = [*chain.from_iterable(messages)]
        starts, message_spans, offset = list[int](), list[tuple[int, int]](), 0
        for message in messages:
            start = offset
            for part in message:
                starts.append(offset)
                offset += len(part.text)
            message_spans.append((start, offset))
            offset += len(separator)
        joined = separator.join("".join(part.text for part in message) for message in messages)
        data = frozenset(
            place for place, part in enumerate(parts) if texts[part.text_index].has_decoded_text
        )
        first = texts[parts[0].text_index]
        text = Text(first.path, joined, first.kind, role=first.role, join_key=join_key)
        return cls(parts, starts, text, data, message_spans if len(messages) > 1 else ())

    def build_views(self) -> tuple[View, ...]:
        """Return the readings of the joined text, without the decoded data of a single text."""
        views = build_views(self.text.text)
        return tuple(view for view in views if not self._is_in_decoded_part(view.encoded_span))

    def _is_in_decoded_part(self, span: tuple[int, int] | None) -> bool:
        if span is None:
            return False
        place = bisect_right(self.starts, span[0]) - 1
        end = self.starts[place] + len(self.parts[place].text)
        return place in self.decoded_parts and span[1] <= end

    def split_matches(self, matches: Iterable[TextMatch]) -> Iterator[list[tuple[int, TextMatch]]]:
        """Yield each match as its pieces in the original texts, each with the index of its text."""
        for match in matches:
            pieces: list[tuple[int, TextMatch]] = []
            place = bisect_right(self.starts, match.start) - 1
            while place < len(self.starts) and self.starts[place] < match.end:
                start, part = self.starts[place], self.parts[place]
                end = min(match.end, start + len(part.text))
                if max(match.start, start) < end:
                    base = start - part.skipped_chars
                    piece = replace(match, start=max(match.start, start) - base, end=end - base)
                    pieces.append((part.text_index, piece))
                place += 1
            yield pieces

    def is_one_value(self, match: TextMatch, detector: object) -> bool:
        """Return True if a match across texts is one finding.

        At a boundary of messages, a detector may decide that it is two values side by side.
        """
        if not self.message_spans or not is_split_value_checker(detector):
            return True
        first, last = (
            bisect_right(self.message_spans, position, key=itemgetter(0))
            for position in (match.start, match.end - 1)
        )
        spans = self.message_spans[first - 1 : last]
        ends = [(end, next_start) for (_, end), (next_start, _) in pairwise(spans)]
        finding = Finding(start=match.start, end=match.end, kind=match.kind, score=match.score)
        return detector.is_split_value(self.text.text, finding, ends)

    def list_pieces_outside_text(
        self,
        match: TextMatch,
        pieces: Sequence[tuple[int, TextMatch]],
        known_text_index: int,
        detector: object,
    ) -> Sequence[tuple[int, TextMatch]]:
        """Return the pieces of a match outside of the text that is known to contain the others.

        At a boundary of messages, a part must contain a digit, as keys and numbers do. Otherwise an
        address at the end of a message would extend to the first word of the next one. Parts in
        earlier texts are returned only if the detector decides that the value was cut.
        """
        if not self.message_spans:
            return pieces
        may_decide = is_split_value_checker(detector)
        remaining = [each for each in pieces if (each[0] < known_text_index) == may_decide]
        if may_decide and not (remaining and self.is_one_value(match, detector)):
            return ()
        for text_index, piece in remaining:
            part = self.parts[bisect_left(self.parts, text_index, key=itemgetter(0))]
            shown = part.text[piece.start - part.skipped_chars : piece.end - part.skipped_chars]
            if any(map(str.isdigit, shown)):
                return remaining
        return ()


@frozen
class MergedMatchSpans:
    """Spans of a text in which one rule has findings. Overlapping and touching spans are joined."""

    spans: Sequence[tuple[int, int]]

    @classmethod
    def from_matches(cls, matches: Iterable[TextMatch]) -> MergedMatchSpans:
        spans: list[tuple[int, int]] = []
        for match in sorted(matches, key=attrgetter("start")):
            if spans and match.start <= spans[-1][1]:
                spans[-1] = spans[-1][0], max(spans[-1][1], match.end)
            else:
                spans.append((match.start, match.end))
        return cls(spans)

    def find_overlap(self, match: TextMatch) -> tuple[int, int] | None:
        """Return the first span that overlaps a match, or None."""
        index = bisect_right(self.spans, match.start, key=itemgetter(1))
        overlaps = index < len(self.spans) and self.spans[index][0] < match.end
        return self.spans[index] if overlaps else None

    def contains(self, match: TextMatch) -> bool:
        """Return True if a match is within one span."""
        start, end = self.find_overlap(match) or (match.end, match.end)
        return start <= match.start and match.end <= end


def iter_joined_texts(texts: Sequence[Text]) -> Iterator[JoinedParts]:
    """Yield the joined texts that are inspected in addition to the single texts."""
    return chain(iter_joined_message_parts(texts), iter_same_role_boundaries(texts))


def iter_joined_message_parts(texts: Sequence[Text]) -> Iterator[JoinedParts]:
    """Yield the messages with several parts, and the texts with one ``join_key``.

    If texts with a ``join_key`` are too long, only the characters near their ends are joined.
    """
    groups: defaultdict[object, list[TextPart]] = defaultdict(list)
    for text_index, text in enumerate(texts):
        steps = find_joined_parts_depth(text.path)
        if text.join_key is not None or steps is not None:
            groups[text.join_key or text.path[:steps]].append(TextPart(text_index, 0, text.text))
    for parts in groups.values():
        join_key = texts[parts[0].text_index].join_key
        if sum(len(part.text) for part in parts) > MAX_JOINED_CHARS:
            for part, next_part in pairwise(parts if join_key is not None else ()):
                end = _trim_message([part], JOINED_END_CHARS, keeps_end=True)
                start = _trim_message([next_part], JOINED_END_CHARS, keeps_end=False)
                yield JoinedParts.from_messages(texts, [[*end, *start]])
        elif len(parts) > 1:
            yield JoinedParts.from_messages(texts, [parts], join_key=join_key)


def iter_same_role_boundaries(texts: Sequence[Text]) -> Iterator[JoinedParts]:
    """Yield the joined text around the boundaries between messages of one role.

    A short message is included whole, so that a value cut in three is found.
    """
    for row in _iter_trimmed_message_runs(texts):
        edges = (left[-1].text[-1:] + right[0].text[:1] for left, right in pairwise(row))
        ends_in_space = all(any(map(str.isspace, edge)) for edge in edges)
        for separator in SEPARATORS[:1] if ends_in_space else SEPARATORS:
            yield JoinedParts.from_messages(texts, row, separator)


def _iter_trimmed_message_runs(texts: Sequence[Text]) -> Iterator[list[Message]]:
    """Yield runs of two or more messages of one role, cut to the characters near a boundary."""
    for run in _iter_same_role_runs(texts):
        row: list[Message] = [_trim_message(run[0], keeps_end=True)]
        size = BOUNDARY_CHARS
        for message in run[1:]:
            length = sum(len(part.text) for part in message)
            is_short = length <= 2 * BOUNDARY_CHARS and size + length <= MAX_JOINED_CHARS
            if is_short and message is not run[-1]:
                row.append(message)
                size += length
                continue
            yield [*row, _trim_message(message, keeps_end=False)]
            row, size = [_trim_message(message, keeps_end=True)], BOUNDARY_CHARS


def _iter_same_role_runs(texts: Sequence[Text]) -> Iterator[list[Message]]:
    """Yield two or more messages of one role without a text of another role between them."""
    turns = (
        (text_index, text)
        for text_index, text in enumerate(texts)
        if text.path[0] in _TURNS and len(text.path) >= _OF_CONTENT
    )
    for role, group in groupby(turns, key=lambda turn: turn[1].role):
        contents = (
            turn
            for turn in group
            if role is not None and find_joined_parts_depth(turn[1].path) == _OF_CONTENT
        )
        run = [
            [TextPart(text_index, 0, text.text) for text_index, text in message]
            for _, message in groupby(contents, key=lambda turn: turn[1].path[1])
        ]
        if len(run) > 1:
            yield [*run]


def _trim_message(message: Message, size: int = BOUNDARY_CHARS, *, keeps_end: bool) -> Message:
    """Return the first or the last ``size`` characters of a message."""
    parts: list[TextPart] = []
    remaining = size
    for part in reversed(message) if keeps_end else message:
        skipped_chars = max(0, len(part.text) - remaining) if keeps_end else 0
        text = part.text[skipped_chars : skipped_chars + remaining]
        parts.append(TextPart(part.text_index, skipped_chars, text))
        remaining -= len(part.text)
        if remaining <= 0:
            break
    return parts[::-1] if keeps_end else parts
