"""A response as the events of a stream: an upstream's own, and those of a chat."""

from __future__ import annotations

import json

from proxy.dialects.responses.events import ResponseEvents
from proxy.dialects.responses.reading import ResponseTurn
from proxy.types import Chunk, Untouched
from tests.dialects.test_responses import accumulated, streamed
from tests.doubles import Json, chat_events, item_events, response, response_events, text_item
from tests.for_each import for_each

ITEM = text_item("It is Paris.")
EVENTS = response_events(item_events(0, ITEM, "It is ", "Paris."), whole=response(ITEM))


def chunks(events: list[Json]) -> list[Chunk]:
    """Return events of an upstream as they come, each with its bytes."""
    turn = ResponseTurn(own=True)
    made = []
    for event in events:
        raw = Untouched(json.dumps(event).encode())
        raw.kind = event["type"]
        [data] = turn.feed(event)
        made.append(Chunk(data, raw))
    return [*made, Chunk(None, last=True)]


def written(given: list[Chunk]) -> bytes:
    writer = ResponseEvents()
    return b"".join(map(writer.feed, given))


def test_events_that_nothing_has_changed_pass_as_they_came() -> None:
    raw = written(chunks(EVENTS))

    assert [json.dumps(each).encode() for each in EVENTS] == [
        line[6:] for line in raw.splitlines() if line.startswith(b"data: ")
    ]


@for_each("at", range(len(EVENTS)))
def test_from_a_changed_event_on_all_are_written_and_say_the_same(at: int) -> None:
    given = [
        each.rewritten(each.data) if place == at else each
        for place, each in enumerate(chunks(EVENTS))
    ]

    raw = written(given)

    assert accumulated(raw)["output"] == [ITEM]
    assert [event["type"] for event in streamed(raw)] == [event["type"] for event in EVENTS]


def test_a_text_that_was_masked_is_so_each_time() -> None:
    given = chunks(EVENTS)
    for place, chunk in enumerate(given):
        delta = chunk.data["choices"][0]["delta"] if chunk.data else {}
        if delta.get("content") == "Paris.":
            choice = {"index": 0, "delta": {**delta, "content": "[CITY]"}}
            given[place] = chunk.rewritten({**(chunk.data or {}), "choices": [choice]})

    raw = written(given)

    assert b"Paris" not in raw
    assert raw.count(b"It is [CITY]") == 4  # its end, its part, its item, and the response


def test_a_text_that_has_lost_its_place_goes_on_where_it_was() -> None:
    given = chunks(EVENTS)
    [begun] = [place for place, each in enumerate(given) if "It is " in str(each.data)]
    choice = {"index": 0, "delta": {"content": "all of "}}
    given.insert(begun + 1, Chunk({**(given[begun].data or {}), "choices": [choice]}))

    whole = accumulated(written(given))

    assert whole["output"][0]["content"][0]["text"] == "It is all of Paris."


def test_a_chat_that_says_nothing_is_an_empty_message() -> None:
    whole = accumulated(written([Chunk(None, last=True)]))

    assert whole["output"][0]["content"][0]["text"] == ""
    assert (whole["status"], whole["usage"]) == ("completed", None)


def test_calls_that_take_turns_each_end_once() -> None:
    base = {name: each for name, each in chat_events("x")[0].items() if name != "choices"}
    calls = [
        {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{"}},
        {"index": 1, "id": "b", "function": {"name": "g", "arguments": "{"}},
        {"index": 0, "function": {"arguments": "}"}},
        {"index": 1, "function": {"arguments": "}"}},
    ]
    given = [
        Chunk({**base, "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
        for call in calls
    ]

    events = streamed(written([*given, Chunk(None, last=True)]))

    ends = [event for event in events if event["type"] == "response.output_item.done"]
    assert [event["output_index"] for event in ends] == [0, 1]
    assert [event["item"]["arguments"] for event in ends] == ["{}", "{}"]
    assert events[-1]["response"]["output"] == [event["item"] for event in ends]


def test_an_error_has_what_sdks_raise() -> None:
    error = {"message": "m", "code": "c", "type": "t", "param": None}
    raised, failed = streamed(ResponseEvents().fail(json.dumps({"error": error}).encode()))

    assert (raised["type"], raised["message"], raised["error"]) == ("error", "m", error)
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"] == {"code": "c", "message": "m"}
    assert [event["sequence_number"] for event in (raised, failed)] == [0, 1]
