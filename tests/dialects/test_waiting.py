"""Events that wait: the order in which they leave, what is joined of them, and their bounds."""

from __future__ import annotations

import pytest

from proxy.dialects.base import OrderedEvent
from proxy.dialects.waiting import (
    MOST_BYTES,
    MOST_EVENTS,
    JoinedDelta,
    WaitingQueues,
    WaitingRoom,
)
from proxy.errors import AnswerTooLarge
from tests.doubles import Json


class Joiner:
    """Makes the event of joined deltas, and counts the characters that it copies for that."""

    def __init__(self) -> None:
        self.calls = 0
        self.copied = 0

    def __call__(self, event: Json, text: str) -> Json:
        self.calls += 1
        self.copied += len(text)
        return {**event, "text": text}


def waiting(text: str = "", *, size: int = 1) -> OrderedEvent:
    return OrderedEvent({"text": text}, b"", size)


def queues(joiner: Joiner | None = None, room: WaitingRoom | None = None) -> WaitingQueues[int]:
    return WaitingQueues[int](room or WaitingRoom(), joiner or Joiner())


def test_the_key_that_has_waited_longest_leaves_first() -> None:
    made = queues()
    for key, text in ((2, "a"), (1, "b"), (2, "c")):
        made.put(key, waiting(text), None)

    assert made.next() == (2, [waiting("a"), waiting("c")])
    assert made.next() == (1, [waiting("b")])
    assert not made


def test_deltas_of_one_text_are_joined_and_others_are_not() -> None:
    made = queues()
    for label, text in (("a", "x"), ("a", "y"), ("b", "z"), ("a", "w")):
        made.put(0, waiting(text), JoinedDelta(label, text))

    assert [each.event["text"] for each in made.next()[1]] == ["xy", "z", "w"]


def test_each_character_of_what_waits_is_copied_once() -> None:
    joiner = Joiner()
    made = queues(joiner)
    for _ in range(20_000):  # joined one by one these would be 200 million
        made.put(0, waiting("x"), JoinedDelta("text", "x"))

    assert made.next()[1][0].size == 20_000
    assert (joiner.calls, joiner.copied) == (1, 20_000)


def test_what_is_open_alone_is_free() -> None:
    made = queues()
    assert made.is_free(1)

    made.open = 1

    assert made.is_free(1)
    assert not made.is_free(2)


def test_all_queues_of_a_stream_share_a_room() -> None:
    room = WaitingRoom()
    one, other = queues(room=room), queues(room=room)
    one.put(0, waiting(size=MOST_BYTES), None)
    with pytest.raises(AnswerTooLarge):
        other.put(0, waiting(), None)

    one.next()

    assert (room.events, room.size) == (0, 0)
    for _ in range(MOST_EVENTS):
        one.put(0, waiting(size=0), None)
    with pytest.raises(AnswerTooLarge):
        other.put(0, waiting(size=0), None)
