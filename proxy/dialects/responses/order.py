"""The events of a response whose items take turns, one item after the other.

The protocol lets events of several items, and of several parts of one item, stand between each
other. Whoever reads one text after the other, as guards and all clients of another form do, would
read each in pieces. So while an item is open the events of others wait, and so do those of other
parts while a part is: an item begins with its first event, ends with its ``done``, or with the
answer. What waits is bounded. No text changes, nor the order of the events of one text.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from proxy.dialects.base import OrderedEvent
from proxy.dialects.responses.numbering import ADDED, BEGINS, DONE, ENDS_PART, PART_INDEX
from proxy.dialects.responses.reading import number
from proxy.dialects.responses.words import BY_DELTA, ENDS
from proxy.errors import AnswerTooLarge
from proxy.types import Json

MOST_EVENTS = 4096  # that wait at once; deltas of one text that follow each other are one
MOST_BYTES = 8 * 1024 * 1024  # of what waits


class _Waiting:
    """What waits until that is over which is open."""

    __slots__ = ("_queues", "open")

    def __init__(self) -> None:
        self.open: Hashable = None
        self._queues: dict[Hashable, list[OrderedEvent]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def put(self, key: Hashable, event: OrderedEvent) -> int:
        """Let an event wait, return how many more these are: none where it has joined another."""
        queue = self._queues.setdefault(key, [])
        joined = _joined(queue[-1], event) if queue else None
        if joined is None:
            queue.append(event)
            return 1
        queue[-1] = joined
        return 0

    def next(self) -> list[OrderedEvent]:
        """Return what has waited longest, as nothing is open."""
        return self._queues.pop(next(iter(self._queues)))


class ItemOrder:
    """Feed it the events of one stream, numbered; it returns those whose turn it is. Raises
    ``AnswerTooLarge`` where too many wait."""

    __slots__ = ("_events", "_items", "_moved", "_parts", "_size")

    def __init__(self) -> None:
        self._moved = False  # from then on no event has the number that it came with
        self._items = _Waiting()
        self._parts = _Waiting()  # of the item that is open
        self._events = 0
        self._size = 0

    def feed(self, event: Json, raw: bytes) -> list[OrderedEvent]:
        """Take the next event, return those that follow now."""
        kind, come = event.get("type"), OrderedEvent(event, raw, len(raw))
        is_named = isinstance(kind, str)
        if is_named and kind in ENDS:
            out = [*self.left(), come]
        elif not is_named or "output_index" not in event:
            out = [come]
        else:
            out = list(self._of_items(come))
        return [each._replace(raw=None) for each in out] if self._moved else out

    def left(self) -> list[OrderedEvent]:
        """Return all that waits: the stream has ended."""
        out = list(self._of_parts_left())
        self._items.open = None
        while self._items:
            for event in self._released(self._items):
                out += self._of_items(event)
            out += self._of_parts_left()
            self._items.open = None
        return out

    def _of_items(self, come: OrderedEvent) -> Iterator[OrderedEvent]:
        """Return the events that an event of an item lets follow."""
        items, kind = self._items, come.event["type"]
        item = number(come.event.get("output_index"))
        if items.open not in (None, item):
            self._keep(items, item, come)
            return
        if kind != DONE:
            if kind == ADDED or kind.endswith(".delta"):
                items.open = item
            yield from self._of_parts(come)
            return
        yield from self._of_parts_left()
        yield come
        items.open = None
        while items and items.open is None:
            for event in self._released(items):
                yield from self._of_items(event)

    def _of_parts(self, come: OrderedEvent) -> Iterator[OrderedEvent]:
        """Return the events that an event of the item whose turn it is lets follow."""
        parts, kind = self._parts, come.event["type"]
        index = PART_INDEX.get(kind)
        if index is None:
            yield come
            return
        part = index, number(come.event.get(index))
        if parts.open not in (None, part):
            self._keep(parts, part, come)
            return
        yield come
        if kind in BEGINS or kind in BY_DELTA:
            parts.open = part
        elif kind in ENDS_PART:
            parts.open = None
            while parts and parts.open is None:
                for event in self._released(parts):
                    yield from self._of_parts(event)

    def _of_parts_left(self) -> Iterator[OrderedEvent]:
        """Return what waits for a part of an item that is over."""
        parts = self._parts
        parts.open = None
        while parts:
            yield from self._released(parts)

    def _keep(self, waiting: _Waiting, key: Hashable, come: OrderedEvent) -> None:
        self._moved = True
        self._events += waiting.put(key, come)
        self._size += come.size
        if self._events > MOST_EVENTS or self._size > MOST_BYTES:
            raise AnswerTooLarge("The upstream sent too much of several items at once.")

    def _released(self, waiting: _Waiting) -> list[OrderedEvent]:
        """Return what has waited longest, whose room is free."""
        events = waiting.next()
        self._events -= len(events)
        self._size -= sum(event.size for event in events)
        return events


def _joined(last: OrderedEvent, come: OrderedEvent) -> OrderedEvent | None:
    """Return two deltas of one text as one; None for any others."""
    one, other = last.event, come.event
    kind = one["type"]
    if kind not in BY_DELTA or kind != other["type"] or one.get("logprobs"):
        return None
    index = PART_INDEX.get(kind)
    if index is not None and number(one.get(index)) != number(other.get(index)):
        return None
    texts = one.get("delta"), other.get("delta")
    if other.get("logprobs") or not all(isinstance(text, str) for text in texts):
        return None
    return OrderedEvent({**other, "delta": f"{texts[0]}{texts[1]}"}, None, last.size + come.size)
