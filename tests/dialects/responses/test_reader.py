"""Reader of Responses streams: each text once, in order, with attached members."""

from __future__ import annotations

from itertools import product
from typing import Any

import orjson
import pytest

from proxy.dialects.family import ReadOptions
from proxy.dialects.responses.items import MAX_ITEMS
from proxy.dialects.responses.reader import ResponsesReader
from proxy.errors import ResponseTooLarge, UpstreamInvalid
from proxy.types.events import (
    Attach,
    Delta,
    Finish,
    PartStart,
    ResponseStart,
    UsageReport,
)
from tests.dialects.responses.frames import CALL, kinds, read, texts
from tests.dialects.test_responses import FUNCTION_CALL
from tests.doubles import Json, item_events, response, response_events, text_item
from tests.for_each import for_each

MESSAGE = text_item("It is Paris.")
SPLIT = ({"inspect": True}, {"is_translated": True})
STREAM = response_events(
    item_events(0, MESSAGE, "It is ", "Paris."),
    item_events(1, FUNCTION_CALL, '{"place":', ' "Paris"}'),
    document=response(MESSAGE, FUNCTION_CALL),
)


def test_events_of_a_stream_are_read() -> None:
    events = [event for frame in read(STREAM, inspect=True) for event in frame.events]

    [start] = [item for item in events if isinstance(item, ResponseStart)]
    begins = [item for item in events if isinstance(item, PartStart)]
    [usage] = [item for item in events if isinstance(item, UsageReport)]
    [finish] = [item for item in events if isinstance(item, Finish)]
    assert start == ("resp_1", "gpt-4o-mini", 1_700_000_000)
    assert [item.part.kind for item in begins] == ["item", "text", "arguments"]
    assert begins[1].part.parent is begins[0].part
    assert begins[2].call == ("call_1", "look_up", "function")
    assert begins[2].slot == ("item", "name")
    assert usage.tokens is not None
    assert (usage.tokens.input, usage.tokens.output) == (5, 3)
    assert finish == (0, "tool_calls", "completed")
    assert read(STREAM, inspect=True)[-1].last


@for_each(
    ("status", "details", "finish"),
    [
        ("completed", None, (0, "stop", "completed")),
        ("incomplete", {"reason": "max_output_tokens"}, (0, "length", "max_output_tokens")),
        ("incomplete", {"reason": "content_filter"}, (0, "content_filter", "content_filter")),
        ("incomplete", None, (0, "stop", None)),
    ],
)
def test_finish_reason_of_a_response_is_read(status: str, details: Any, finish: Any) -> None:
    document = response(status=status, incomplete_details=details)
    end = {"type": f"response.{status}", "response": document}

    events = [event for frame in read([STREAM[0], end]) for event in frame.events]

    assert finish in events


@for_each("options", SPLIT)
def test_text_without_deltas_precedes_its_end(options: dict[str, bool]) -> None:
    ends = [event for event in STREAM if not event["type"].endswith(".delta")]

    frames = read(ends, **options)

    assert [*texts(frames).values()] == ["It is Paris.", '{"place": "Paris"}']
    assert all(frame.doc is None for frame in frames if "Delta" in kinds([frame]))


@for_each("delta", ["is Paris", "It is Paris", "It"])
def test_text_in_the_start_of_a_part_continues(delta: str) -> None:
    events = item_events(0, MESSAGE, delta)
    events[1]["part"]["text"] = "It "
    stream = response_events(events, document=response(MESSAGE))

    expected = delta if delta.startswith("It") else f"It {delta}"
    assert [*texts(read(stream, inspect=True)).values()] == [expected]


def test_unknown_member_is_inspected() -> None:
    stream = [{**event, "new": "text"} if "delta" in event else event for event in STREAM]

    frames = read(stream, inspect=True)

    assert all("Unmapped" in kinds([frame]) for frame in frames if "Delta" in kinds([frame]))


@for_each(
    "inner",
    [
        {"type": "new"},
        {"type": "output_text", "text": "", "title": "x"},
        {"type": "output_text", "text": {"a": "b"}},
        None,
        "text",
    ],
)
def test_unusual_part_is_inspected(inner: Any) -> None:
    stream = [{**event, "part": inner} if "part" in event else event for event in STREAM]

    assert kinds(read(stream, inspect=True)).count("Unmapped") >= 2


def test_logprobs_and_citations_are_attached() -> None:
    [added, part, delta, *remainder] = item_events(0, MESSAGE, "It is Paris.")
    where = {name: delta[name] for name in ("item_id", "output_index", "content_index")}
    cited = {"type": "response.output_text.annotation.added", **where, "annotation_index": 0}
    cited["annotation"] = {"type": "url_citation", "url": "https://a.test"}
    delta["logprobs"] = [{"token": "It", "logprob": -1}]

    frames = read(response_events([added, part, delta, cited, *remainder]), inspect=True)

    attached = [event for frame in frames for event in frame.events if isinstance(event, Attach)]
    slots = {event.name: event.slot for event in attached}
    assert slots == {"logprobs": ("logprobs",), "citation": ("annotation",)}


def test_provider_tool_texts_are_read_for_own_clients_only() -> None:
    item = {"type": "mcp_call", "id": "mcp_1", "arguments": "", "name": "f"}
    where = {"item_id": "mcp_1", "output_index": 0}
    command = {"type": "response.shell_call_output_content.delta", "command_index": 0}
    stream = response_events(
        [
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.mcp_call_arguments.delta", **where, "delta": '{"a":'},
            {"type": "response.mcp_call_arguments.delta", **where, "delta": " 1}"},
            {**command, **where, "delta": {"stdout": "out", "stderr": "err"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.audio.transcript.delta", "delta": "Hi"},
        ],
        document=response({**item, "arguments": '{"a": 1}'}),
    )

    results = texts(read(stream, inspect=True))

    assert [part.kind for part in results] == ["server_arguments", "code", "code", "code"]
    assert [*results.values()] == ['{"a": 1}', "out", "err", "Hi"]
    assert texts(read(stream, is_translated=True)) == {}


def test_call_without_start_has_its_name_for_other_clients() -> None:
    stream = [event for event in STREAM if event.get("item", {}).get("status") != "in_progress"]

    frames = read(stream, is_translated=True)

    begins = [item for frame in frames for item in frame.events if isinstance(item, PartStart)]
    assert [item.call for item in begins if item.call] == [("call_1", "look_up", "function")]
    assert [*texts(frames).values()] == ["It is Paris.", '{"place": "Paris"}']


def text_delta(index: int, text: str = "x") -> Json:
    where = {"item_id": f"i{index}", "output_index": index, "content_index": 0}
    return {"type": "response.output_text.delta", **where, "delta": text}


@for_each(
    ("event", "rule"),
    [
        (text_delta(0), "continued an output item that had ended"),
        (item_events(0, MESSAGE)[0], "began the output item 0 twice"),
        ({"type": "response.completed", "response": {"output": ["x"]}}, "not an object"),
    ],
)
@for_each("options", SPLIT)
def test_event_out_of_order_is_refused(event: Json, rule: str, options: Any) -> None:
    with pytest.raises(UpstreamInvalid, match=rule):
        read([*STREAM[:-1], event], **options)
    assert read([*STREAM[:-1], event])


def test_events_after_the_end_are_dropped() -> None:
    assert len(read([*STREAM, text_delta(9)])) == len(STREAM)
    assert len(texts(read([*STREAM, text_delta(9)], inspect=True))) == 2


def test_open_items_and_parts_are_bounded() -> None:
    items = [text_delta(index) for index in range(MAX_ITEMS + 1)]
    parts = [{**text_delta(0), "content_index": index} for index in range(MAX_ITEMS + 1)]

    for events, inspect in product((items, parts), (False, True)):
        with pytest.raises(ResponseTooLarge):
            read(events, inspect=inspect)


@for_each("event", [{}, {"type": ["x"]}, {"type": "a\nb"}])
def test_event_without_name_is_dropped(event: Json) -> None:
    assert len(read([STREAM[0], event, *STREAM[1:]])) == len(STREAM)


def test_delta_of_the_same_shape_keeps_its_bytes() -> None:
    reader = ResponsesReader(ReadOptions(call=CALL))
    raws = [orjson.dumps({**event, "sequence_number": 1}) for event in [*STREAM[:5], STREAM[4]]]

    frames = [frame for raw in raws for frame in reader.read(orjson.loads(raw), raw)]

    assert [frame.raw for frame in frames] == raws
    assert [type(event) for event in frames[-1].events] == [Delta]
