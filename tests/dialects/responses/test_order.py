"""Events whose items take turns, put in sequence: what waits for what, and how long."""

from __future__ import annotations

import orjson
import pytest

from proxy.dialects.base import OrderedEvent
from proxy.dialects.responses.order import ItemOrder
from proxy.dialects.waiting import MOST_EVENTS
from proxy.errors import AnswerTooLarge, UpstreamInvalid
from tests.dialects.test_responses import CALLED
from tests.doubles import Json, item_events, response, response_events, text_item

FIRST = item_events(0, CALLED, '{"place":', ' "Paris"}')
SECOND = item_events(1, {**CALLED, "id": "fc_2"}, '{"place":', ' "Rome"}')


def fed(order: ItemOrder, events: list[Json]) -> list[OrderedEvent]:
    return [each for event in events for each in order.feed(event, orjson.dumps(event))]


def ordered(*events: Json) -> list[Json]:
    order = ItemOrder()
    return [each.event for each in [*fed(order, [*events]), *order.left()]]


def test_what_comes_item_by_item_passes_as_it_came() -> None:
    events = response_events(item_events(2, text_item("Let me see.")), FIRST[1:], SECOND)

    assert fed(ItemOrder(), events) == [
        OrderedEvent(each, orjson.dumps(each), len(orjson.dumps(each))) for each in events
    ]


def test_an_item_waits_for_the_end_of_another() -> None:
    turns = [each for pair in zip(FIRST, SECOND, strict=True) for each in pair]
    begun, ended = response_events()[0], response_events()[-1]
    together = {**SECOND[1], "delta": '{"place": "Rome"}'}

    in_sequence = [*FIRST, SECOND[0], together, *SECOND[3:]]
    assert ordered(begun, *turns, ended) == [begun, *in_sequence, ended]


def test_an_item_that_never_ends_ends_with_the_answer() -> None:
    ended = response_events()[-1]

    assert ordered(FIRST[0], *SECOND[:2], FIRST[1], ended) == [*FIRST[:2], *SECOND[:2], ended]
    assert ordered(FIRST[0], *SECOND[:2], FIRST[1]) == [*FIRST[:2], *SECOND[:2]]


def test_a_part_waits_for_the_end_of_another() -> None:
    kind, where = "response.output_text", {"item_id": "msg_1", "output_index": 0}

    def of(part: int, event: str, **more: str) -> Json:
        return {"type": f"{kind}.{event}", **where, "content_index": part, **more}

    one, two = (
        [of(part, "delta", delta="a"), of(part, "delta", delta="b"), of(part, "done", text="ab")]
        for part in (0, 1)
    )
    done = item_events(0, text_item("ab"))[-1]
    joined = {**two[1], "delta": "ab"}

    turns = [one[0], two[0], two[1], one[1], one[2], two[2]]
    assert ordered(*turns, done) == [*one, joined, two[2], done]
    assert ordered(*turns[:-2], done) == [*one[:2], joined, done]


def test_once_any_has_waited_no_event_has_bytes_with_a_number_of_before() -> None:
    order = ItemOrder()

    assert [each.raw is None for each in fed(order, [FIRST[0], SECOND[0], FIRST[1]])] == [
        False,
        True,
    ]
    assert all(each.raw is None for each in fed(order, [*FIRST[2:], response_events()[-1]]))


def test_an_event_of_no_item_waits_for_none() -> None:
    progress = response_events()[1]

    assert ordered(FIRST[0], SECOND[0], progress, *FIRST[1:]) == [
        FIRST[0],
        progress,
        *FIRST[1:],
        SECOND[0],
    ]


def test_what_waits_is_bounded_in_number_and_bytes() -> None:
    other = {**SECOND[1], "delta": "x" * 1024}
    long = {**SECOND[1], "delta": "x" * 1024 * 1024}

    many, large = ItemOrder(), ItemOrder()
    fed(many, [FIRST[0], *[other] * (MOST_EVENTS + 1)])  # which are one
    with pytest.raises(AnswerTooLarge):
        fed(many, [{**SECOND[0], "type": f"response.{at}"} for at in range(MOST_EVENTS)])
    with pytest.raises(AnswerTooLarge):
        fed(large, [FIRST[0], *[long] * 9])


def test_room_is_free_again_once_an_item_has_had_its_turn() -> None:
    order = ItemOrder()
    for _ in range(4):
        waiting = [{**SECOND[0], "type": f"response.{at}"} for at in range(MOST_EVENTS - 1)]
        fed(order, [FIRST[0], *waiting, FIRST[-1], SECOND[-1]])

    whole = response(CALLED)
    assert order.feed(response_events(whole=whole)[-1], b"")[0].event["response"] == whole


def test_more_of_a_text_whose_item_is_done_is_refused_until_it_begins_again() -> None:
    order = ItemOrder()
    fed(order, [*FIRST, *FIRST])

    with pytest.raises(UpstreamInvalid):
        fed(order, [FIRST[1]])


def test_there_may_be_as_many_items_as_events_may_wait() -> None:
    with pytest.raises(AnswerTooLarge):
        fed(ItemOrder(), [{**FIRST[-1], "output_index": at} for at in range(MOST_EVENTS + 1)])


def test_a_thousand_items_that_wait_and_are_done_leave_at_once() -> None:
    waiting = [
        {**each, "output_index": at} for at in range(1, 1500) for each in (SECOND[0], SECOND[-1])
    ]

    assert ordered(FIRST[0], *waiting, FIRST[-1]) == [FIRST[0], FIRST[-1], *waiting]


def test_a_thousand_parts_that_wait_and_are_done_leave_at_once() -> None:
    where = {"item_id": "msg_1", "output_index": 0}

    def of(part: int, step: str) -> Json:
        return {"type": f"response.content_part.{step}", **where, "content_index": part, "part": {}}

    waiting = [of(at, step) for at in range(1, 1500) for step in ("added", "done")]

    assert ordered(of(0, "added"), *waiting, of(0, "done")) == [
        *(of(0, "added"), of(0, "done")),
        *waiting,
    ]
