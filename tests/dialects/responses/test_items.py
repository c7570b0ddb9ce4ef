"""Events without numbers get those that a complete server would send."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects.responses.items import MAX_NUMBERED_ITEMS, EventNumbering, OpenText
from proxy.dialects.responses.schema import ITEM_ADDED, ITEM_DONE, TEXT_TYPES
from proxy.dialects.responses.whole import make_stream_events
from proxy.errors import UpstreamInvalid
from proxy.types.events import Part
from tests.dialects.test_responses import FUNCTION_CALL
from tests.doubles import Json, item_events, response, response_events, text_item
from tests.for_each import for_each

NUMBERS = ("output_index", "content_index", "summary_index", "sequence_number")
OTHER_DOCUMENT: Json = {**FUNCTION_CALL, "id": "fc_2", "call_id": "call_2"}
ITEMS = (text_item("Let me see."), FUNCTION_CALL, OTHER_DOCUMENT)
STREAM = response_events(
    item_events(0, ITEMS[0], "Let me ", "see."),
    item_events(1, FUNCTION_CALL, '{"place":', ' "Paris"}'),
    item_events(2, OTHER_DOCUMENT, '{"place":', ' "Paris"}'),
    document=response(*ITEMS),
)


def drop_members(event: Json, *names: str) -> Json:
    return {name: value for name, value in event.items() if name not in names}


def numbered(*events: Json) -> list[Json]:
    numbers = EventNumbering()
    return [numbers.add_missing_numbers(event) or event for event in events]


def places(events: list[Json]) -> list[tuple[Any, ...]]:
    return [tuple(event.get(name) for name in NUMBERS) for event in events]


def item_added(index: int, **item: Any) -> Json:
    return {"type": ITEM_ADDED, "output_index": index, "item": {"type": "function_call", **item}}


def delta(text: str, **where: Any) -> Json:
    return {"type": "response.function_call_arguments.delta", "delta": text, **where}


SUMMARY: list[Json] = [{"type": "summary_text", "text": text} for text in ("First.", "Then.")]
TEXT: Json = {"type": "output_text", "text": "Yes."}
REFUSAL: Json = {"type": "refusal", "refusal": "No."}
THOUGHT = {"id": "rs_0", "type": "reasoning", "summary": SUMMARY}
SPOKEN = {"id": "msg_1", "type": "message", "content": [TEXT, TEXT, REFUSAL]}
RICH = response_events(
    [
        e
        for e in make_stream_events(response(THOUGHT, SPOKEN, FUNCTION_CALL))
        if "response" not in e
    ],
    [{"type": "response.web_search_call.searching", "item_id": "ws_3", "output_index": 3}],
    item_events(4, OTHER_DOCUMENT, '{"place":', ' "Paris"}'),
)


@for_each("stream", [STREAM, RICH], ids=["calls", "parts"])
@for_each(
    "left_out",
    [NUMBERS, *[(name,) for name in NUMBERS], NUMBERS[:3], ("item_id", *NUMBERS[1:])],
    ids="+".join,
)
def test_adds_missing_numbers_of_events(stream: list[Json], left_out: tuple[str, ...]) -> None:
    assert places(numbered(*(drop_members(event, *left_out) for event in stream))) == places(stream)


def test_items_without_id_are_identified_by_order() -> None:
    bare = [drop_members(document, "item_id", *NUMBERS) for document in STREAM]
    for document in bare:
        if "item" in document:
            document["item"] = drop_members(document["item"], "id")

    assert places(numbered(*bare)) == places(STREAM)


MESSAGE_ADDED: Json = {"type": ITEM_ADDED, "item": {"type": "message", "id": "x"}}
TEXT_DELTA: Json = {"type": "response.output_text.delta", "item_id": "x", "delta": "a"}
CALL_DONE: Json = {"type": ITEM_DONE, "item": {**FUNCTION_CALL, "id": None, "call_id": "c1"}}


def deltas(ids: str) -> list[Json]:
    return [delta("1", item_id=name) for name in ids]


@for_each(
    ("events", "indexes"),
    [
        ([item_added(0, id="a"), item_added(1, id="b"), *deltas("abab")], [0, 1, 0, 1, 0, 1]),
        ([item_added(0, id="a"), *deltas("abab")], [0, 0, 1, 0, 1]),  # one was not added
        ([item_added(0, id="a"), item_added(1, id="b"), *deltas("xyxy")], [0, 1, 0, 1, 0, 1]),
        ([item_added(0, call_id="c1"), item_added(1, call_id="c2"), delta("1", item_id="c1"),
            CALL_DONE], [0, 1, 0, 0]),
        ([MESSAGE_ADDED, TEXT_DELTA, item_added(1, id="x"), TEXT_DELTA], [0, 0, 1, 0]),
    ],
    ids=["interleaved", "a new item", "other ids", "ids of calls", "equal ids of two types"],
)  # fmt: skip
def test_item_is_identified_by_id_type_or_order(events: list[Json], indexes: list[int]) -> None:
    results = numbered(*(drop_members(event, "output_index") for event in events))

    assert [document["output_index"] for document in results] == indexes


def test_part_begins_after_the_end_of_another() -> None:
    where = {"item_id": "msg_1"}
    text: list[Json] = [
        {"type": "response.output_text.delta", **where, "delta": "a"},
        {"type": "response.output_text.done", **where, "text": "a"},
        {"type": "response.content_part.done", **where, "part": TEXT},
    ]

    results = numbered(*text, *text, text[1])

    assert [document["content_index"] for document in results] == [0, 0, 0, 1, 1, 1, 2]


@for_each("odd", [None, "0", True, 1.0, []])
def test_invalid_numbers_are_replaced(odd: Any) -> None:
    [document] = numbered({**item_added(0, id="a"), "output_index": odd, "sequence_number": odd})

    assert (document["output_index"], document["sequence_number"]) == (0, 0)


def test_huge_numbers_stay_serializable() -> None:
    huge = {**item_added(2**64 - 1, id="a"), "sequence_number": 2**64 - 1}

    [_, result] = numbered(huge, drop_members(item_added(0), "output_index"))

    assert result["output_index"] == result["sequence_number"] == 2**53 + 1


def test_unread_events_are_not_counted() -> None:
    events: list[Json] = [{"type": 1}, {"type": "a\nb"}, {}, {"type": "response.created"}]

    assert numbered(*events) == [*events[:3], {**events[3], "sequence_number": 0}]


def test_state_of_a_stream_is_bounded() -> None:
    numbers = EventNumbering()
    for index in range(MAX_NUMBERED_ITEMS):
        numbers.add_missing_numbers(item_added(index, id=f"fc_{index}"))

    complete = {**item_added(MAX_NUMBERED_ITEMS, id="a"), "sequence_number": MAX_NUMBERED_ITEMS}
    assert numbers.add_missing_numbers(complete) is None
    with pytest.raises(UpstreamInvalid, match="too many items"):
        numbers.add_missing_numbers(delta("1", item_id="fc_1"))


def test_changing_ids_belong_to_the_open_item() -> None:
    events = [drop_members(item_added(0, id="a"), "output_index")]
    events += [delta("1", item_id=f"x{index}") for index in range(3 * MAX_NUMBERED_ITEMS)]

    assert {document["output_index"] for document in numbered(*events)} == {0}


def test_repr_of_an_open_text_hides_the_text_of_the_model() -> None:
    part = Part("text", 0)
    one_text, other_text = (OpenText(part, TEXT_TYPES[0], beginning="model text") for _ in range(2))

    assert "model text" not in repr(one_text)
    assert len({one_text, other_text}) == 2
