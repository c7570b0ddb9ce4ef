"""The events of a response whose items take turns, one item after the other.

The protocol lets events of several items, and of several parts of one item, stand between each
other. Whoever reads one text after the other, as guards and all clients of another form do, would
read each in pieces. So while an item is open the events of others wait, and so do those of other
parts while a part is: an item begins with its first event, ends with its ``done``, or with the
answer. What waits is bounded. No text changes, nor the order of the events of one text.
"""

from __future__ import annotations

from collections.abc import Iterator

from proxy.dialects.base import OrderedEvent
from proxy.dialects.responses.numbering import ADDED, BEGINS, DONE, ENDS_PART, PART_INDEX
from proxy.dialects.responses.reading import number
from proxy.dialects.responses.words import BY_DELTA, ENDS
from proxy.dialects.waiting import (
    MOST_EVENTS,
    NONE_OPEN,
    JoinedDelta,
    K,
    WaitingQueues,
    WaitingRoom,
)
from proxy.errors import AnswerTooLarge, UpstreamInvalid
from proxy.types import Json


class ItemOrder:
    """Feed it the events of one stream, numbered; it returns those whose turn it is. Raises
    ``AnswerTooLarge`` where too many wait, and ``UpstreamInvalid`` for more of a text whose item is
    done: what was held of it has been let go."""

    __slots__ = ("_done", "_items", "_moved", "_parts")

    def __init__(self) -> None:
        self._moved = False  # from then on no event has the number that it came with
        self._done: set[int] = set()
        room = WaitingRoom()
        self._items = WaitingQueues[int](room, _with_delta)
        self._parts = WaitingQueues[tuple[str, int]](room, _with_delta)  # of the item that is open

    def feed(self, event: Json, raw: bytes) -> list[OrderedEvent]:
        """Take the next event, return those that follow now."""
        kind, come = event.get("type"), OrderedEvent(event, raw, len(raw))
        is_named = isinstance(kind, str)
        if is_named and kind in ENDS:
            out = [*self.left(), come]
        elif not is_named or "output_index" not in event:
            out = [come]
        else:
            out = list(self._following(come))
        return [each._replace(raw=None) for each in out] if self._moved else out

    def left(self) -> list[OrderedEvent]:
        """Return all that waits: the stream has ended."""
        out = list(self._of_parts_left())
        self._items.open = NONE_OPEN
        while self._items:
            for event in self._items.next()[1]:
                out += self._of_items(event)
            out += self._of_parts_left()
            self._items.open = NONE_OPEN
        return out

    def _following(self, come: OrderedEvent) -> Iterator[OrderedEvent]:
        """Return the events that an event of an item lets follow, one after the other: thousands
        may wait."""
        yield from self._of_items(come)
        while self._items and self._items.open is NONE_OPEN:
            for event in self._items.next()[1]:
                yield from self._of_items(event)

    def _of_items(self, come: OrderedEvent) -> Iterator[OrderedEvent]:
        """Return the events of an item that an event of it lets follow, if its turn is now."""
        items, kind = self._items, come.event["type"]
        item = number(come.event.get("output_index"))
        if not items.is_free(item):
            self._keep(items, item, come)
            return
        self._check(kind, item)
        if kind != DONE:
            if kind == ADDED or kind.endswith(".delta"):
                items.open = item
            yield from self._of_parts(come)
            return
        yield from self._of_parts_left()
        yield come
        items.open = NONE_OPEN

    def _check(self, kind: str, item: int) -> None:
        """Note that an item begins or is done; raise ``UpstreamInvalid`` for more of it."""
        if kind == ADDED:
            self._done.discard(item)
        elif kind == DONE:
            self._done.add(item)
            if len(self._done) > MOST_EVENTS:
                raise AnswerTooLarge("The upstream sent too many output items.")
        elif kind in BY_DELTA and item in self._done:
            raise UpstreamInvalid("The upstream continued an output item that had ended.")

    def _of_parts(self, come: OrderedEvent) -> Iterator[OrderedEvent]:
        """Return the events that an event of the item whose turn it is lets follow."""
        yield from self._of_part(come)
        while self._parts and self._parts.open is NONE_OPEN:
            for event in self._parts.next()[1]:
                yield from self._of_part(event)

    def _of_part(self, come: OrderedEvent) -> Iterator[OrderedEvent]:
        """Return an event of a part if its turn is now."""
        parts, kind = self._parts, come.event["type"]
        index = PART_INDEX.get(kind)
        if index is None:
            yield come
            return
        part = index, number(come.event.get(index))
        if not parts.is_free(part):
            self._keep(parts, part, come)
            return
        yield come
        if kind in BEGINS or kind in BY_DELTA:
            parts.open = part
        elif kind in ENDS_PART:
            parts.open = NONE_OPEN

    def _of_parts_left(self) -> Iterator[OrderedEvent]:
        """Return what waits for a part of an item that is over."""
        parts = self._parts
        parts.open = NONE_OPEN
        while parts:
            yield from parts.next()[1]

    def _keep(self, waiting: WaitingQueues[K], key: K, come: OrderedEvent) -> None:
        self._moved = True
        waiting.put(key, come, _delta_of(come.event))


def _delta_of(event: Json) -> JoinedDelta | None:
    """Return what a delta says that may be joined with others of its text; None for any other
    event."""
    kind, text = event["type"], event.get("delta")
    if kind not in BY_DELTA or event.get("logprobs") or not isinstance(text, str):
        return None
    index = PART_INDEX.get(kind)
    return JoinedDelta((kind, None if index is None else number(event.get(index))), text)


def _with_delta(event: Json, text: str) -> Json:
    return {**event, "delta": text}
