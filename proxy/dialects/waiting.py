"""Events of a stream that wait for their turn, in bounded memory.

Deltas of one text that follow each other become one event. Their texts are joined once, when they
leave: each byte of them is copied once, however many they are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from proxy.dialects.base import OrderedEvent
from proxy.errors import AnswerTooLarge
from proxy.types import Json

MOST_EVENTS = 4096  # that wait at once; deltas of one text that follow each other are one
MOST_BYTES = 8 * 1024 * 1024  # of what waits

NONE_OPEN: object = object()
"""What stands for a key where nothing is open: no key of an upstream is it."""

K = TypeVar("K", bound=Hashable)


class JoinedDelta:
    """How a delta that waits is joined with others: ``label`` says of what it is, ``text`` is what
    it says."""

    __slots__ = ("label", "text")

    def __init__(self, label: object, text: str) -> None:
        self.label = label
        self.text = text


@dataclass(slots=True)
class _Waiting:
    """One event, with the texts of the deltas that have joined it."""

    event: OrderedEvent
    label: object
    texts: list[str]
    size: int


@dataclass(slots=True)
class WaitingRoom:
    """How much waits of one stream, in all its queues."""

    events: int = 0
    size: int = 0

    def take(self, events: int, size: int) -> None:
        """Count what waits from now on. Raises ``AnswerTooLarge``."""
        if self.events + events > MOST_EVENTS or self.size + size > MOST_BYTES:
            raise AnswerTooLarge("The upstream interleaved too many output items.")
        self.events += events
        self.size += size

    def leave(self, events: int, size: int) -> None:
        """Count what waits no more."""
        self.events -= events
        self.size -= size


@dataclass(slots=True)
class WaitingQueues(Generic[K]):
    """What waits until that is over which is ``open``: a queue for each key, in the order in which
    these began. ``with_text`` returns the event of a delta with another text."""

    room: WaitingRoom
    with_text: Callable[[Json, str], Json]
    open: K | object = NONE_OPEN
    _queues: dict[K, list[_Waiting]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._queues)

    def is_free(self, key: K) -> bool:
        """True if what has this key may follow now."""
        return self.open is NONE_OPEN or self.open == key

    def put(self, key: K, event: OrderedEvent, delta: JoinedDelta | None) -> None:
        """Let an event wait; ``delta`` is what it says if it may join another. Raises
        ``AnswerTooLarge``."""
        queue = self._queues.get(key, [])
        if delta is not None and queue and queue[-1].label == delta.label:
            self.room.take(0, event.size)
            queue[-1].texts.append(delta.text)
            queue[-1].size += event.size
            return
        self.room.take(1, event.size)
        self._queues[key] = queue
        if delta is None:
            queue.append(_Waiting(event=event, label=NONE_OPEN, texts=[], size=event.size))
        else:
            texts = [delta.text]
            queue.append(_Waiting(event=event, label=delta.label, texts=texts, size=event.size))

    def next(self) -> tuple[K, list[OrderedEvent]]:
        """Return the key that has waited longest, and its events."""
        key = next(iter(self._queues))
        waiting = self._queues.pop(key)
        self.room.leave(len(waiting), sum(each.size for each in waiting))
        return key, [self._released(each) for each in waiting]

    def _released(self, waiting: _Waiting) -> OrderedEvent:
        event = waiting.event
        if len(waiting.texts) < 2:
            return event
        joined = self.with_text(event.event, "".join(waiting.texts))
        return OrderedEvent(joined, None, waiting.size)
