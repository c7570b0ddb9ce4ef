"""Blocks of Messages that take turns, put in sequence: what waits for what, and how long."""

from __future__ import annotations

import orjson
import pytest

from proxy.dialects.base import OrderedEvent
from proxy.dialects.messages.order import BlockOrder
from proxy.dialects.waiting import MOST_EVENTS
from proxy.errors import AnswerTooLarge, UpstreamInvalid
from tests.doubles import Json, block_events, message_events


def uses(index: int, *pieces: str) -> list[Json]:
    block = {"type": "tool_use", "id": f"t{index}", "name": "look_up", "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": each} for each in pieces]
    return block_events(index, block, *deltas)


FIRST, SECOND = uses(0, '{"a":', "1}"), uses(1, '{"b":', "2}")


def fed(order: BlockOrder, events: list[Json]) -> list[OrderedEvent]:
    return [each for event in events for each in order.feed(event, orjson.dumps(event))]


def test_what_comes_block_by_block_passes_as_it_came() -> None:
    events = message_events(FIRST, SECOND)

    assert fed(BlockOrder(), events) == [
        OrderedEvent(each, orjson.dumps(each), len(orjson.dumps(each))) for each in events
    ]


def test_a_block_waits_for_the_stop_of_another() -> None:
    turns = [each for pair in zip(FIRST, SECOND, strict=True) for each in pair]
    joined = {**SECOND[1], "delta": {"type": "input_json_delta", "partial_json": '{"b":2}'}}

    assert [each.event for each in fed(BlockOrder(), message_events(turns))] == message_events(
        [*FIRST, SECOND[0], joined, SECOND[3]]
    )


def test_a_block_that_never_stops_ends_with_the_message() -> None:
    cut = [*FIRST[:2], *SECOND[:2]]

    assert [each.event for each in fed(BlockOrder(), message_events(cut))] == message_events(cut)
    order = BlockOrder()
    assert [each.event for each in [*fed(order, cut), *order.left()]] == cut


def test_more_of_a_block_that_has_stopped_is_refused_until_it_starts_again() -> None:
    order = BlockOrder()
    fed(order, [*FIRST, *FIRST])

    with pytest.raises(UpstreamInvalid):
        fed(order, [FIRST[1]])


def test_what_waits_and_how_many_blocks_there_are_is_bounded() -> None:
    citation = {**SECOND[1], "delta": {"type": "citations_delta", "citation": {}}}

    with pytest.raises(AnswerTooLarge):
        fed(BlockOrder(), [FIRST[0], *[citation] * (MOST_EVENTS + 1)])
    with pytest.raises(AnswerTooLarge):
        fed(BlockOrder(), [{**FIRST[-1], "index": at} for at in range(MOST_EVENTS + 1)])


def test_a_thousand_blocks_that_wait_and_have_stopped_leave_at_once() -> None:
    waiting = [{**each, "index": at} for at in range(1, 1500) for each in (SECOND[0], SECOND[-1])]

    events = [FIRST[0], *waiting, FIRST[-1]]
    in_sequence = [FIRST[0], FIRST[-1], *waiting]
    assert [each.event for each in fed(BlockOrder(), events)] == in_sequence
