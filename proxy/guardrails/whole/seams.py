"""Where messages of one role follow each other: what somebody cuts in two to get it past guards.

Some servers put such messages together before the model reads them, and a model may do so itself.
Only what stands close to where two of them meet is looked at once more, so that a long talk costs
no more than its seams.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

from proxy.frozen import frozen
from proxy.guardrails.text.parts import parts_of
from proxy.guardrails.text.walk import Text
from proxy.guardrails.text.weight import weight_of
from proxy.guardrails.whole.joined_parts import MOST, JoinedParts, joined_parts

WINDOW = 256  # characters of a message on either side of where it meets another
BETWEEN = ("", " ")  # what may stand there: a key is cut, or the words of a phrase are apart

_TURNS = frozenset({"input", "messages"})
_OF_CONTENT = 3  # steps to what a message says: ``messages``, its number, ``content``


@frozen
class Cut:
    """Some of a text, by its number, from the character ``skipped`` on."""

    number: int
    skipped: int
    text: str


Message = Sequence[Cut]


def joined_texts(texts: Sequence[Text]) -> Iterator[JoinedParts]:
    """Return all that is read as one, beside the texts themselves."""
    return chain(joined_parts(texts), seams(texts))


def weight_of_joined(texts: Sequence[Text]) -> int:
    """Return how much there is to read once more: of short messages of one role as much as twice
    their own weight, with a space between them and without."""
    return sum(weight_of(joined.text.text) for joined in joined_texts(texts))


def seams(texts: Sequence[Text]) -> Iterator[JoinedParts]:
    """Return what stands where messages of one role follow each other, read as one: a message that
    is short stands there whole, so that what is cut in three is found as well."""
    for row in _rows(texts):
        yield from _joined(row, texts)


def _rows(texts: Sequence[Text]) -> Iterator[list[Message]]:
    """Return the messages of each row of one role, two or more, cut to what is near a seam."""
    for run in _runs(texts):
        row: list[Message] = [_end(run[0])]
        size = WINDOW
        for place, message in enumerate(run[1:], start=2):
            length = sum(len(cut.text) for cut in message)
            if place < len(run) and length <= 2 * WINDOW and size + length <= MOST:
                row.append(message)
                size += length
                continue
            yield [*row, _beginning(message)]
            row, size = [_end(message)], WINDOW


def _runs(texts: Sequence[Text]) -> Iterator[list[Message]]:
    """Return the messages of one role that no text of another stands between, where there are two
    or more."""
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
        if role is None or parts_of(path) != _OF_CONTENT:
            continue
        if path[1] != message:
            run.append([])
            message = path[1]
        run[-1].append(Cut(number, 0, text.text))
    if len(run) > 1:
        yield [*run]


def _end(message: Message) -> Message:
    cuts: list[Cut] = []
    left = WINDOW
    for cut in reversed(message):
        skipped = max(0, len(cut.text) - left)
        cuts.append(Cut(cut.number, skipped, cut.text[skipped:]))
        left -= len(cut.text)
        if left <= 0:
            break
    return cuts[::-1]


def _beginning(message: Message) -> Message:
    cuts: list[Cut] = []
    left = WINDOW
    for cut in message:
        cuts.append(Cut(cut.number, 0, cut.text[:left]))
        left -= len(cut.text)
        if left <= 0:
            break
    return cuts


def _joined(row: Sequence[Message], texts: Sequence[Text]) -> Iterator[JoinedParts]:
    cuts = [cut for message in row for cut in message]
    first = texts[cuts[0].number]
    ends_in_space = all(
        one[-1].text[-1:].isspace() or two[0].text[:1].isspace() for one, two in pairwise(row)
    )
    for between in BETWEEN[:1] if ends_in_space else BETWEEN:
        starts: list[int] = []
        ends: list[int] = []
        shares: list[tuple[int, int]] = []
        at = 0
        for message in row:
            began = at
            for cut in message:
                starts.append(at)
                at += len(cut.text)
                ends.append(at)
            shares.append((began, at))
            at += len(between)
        joined = between.join("".join(cut.text for cut in message) for message in row)
        yield JoinedParts(
            numbers=tuple(cut.number for cut in cuts),
            starts=tuple(starts),
            ends=tuple(ends),
            text=Text(first.path[:2], joined, first.kind, role=first.role),
            data=frozenset(at for at, cut in enumerate(cuts) if texts[cut.number].decoded),
            skipped=tuple(cut.skipped for cut in cuts),
            shares=tuple(shares),
        )
