"""Writer of Messages responses: recorded streams, other families, and whole responses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import orjson

from proxy.dialects.families import FAMILIES, MESSAGES
from proxy.dialects.family import ReadOptions, WriteOptions
from proxy.dialects.messages.schema import make_stream_events
from proxy.dialects.messages.writer import MessageAccumulator
from proxy.types import Json
from proxy.types.events import (
    Delta,
    Event,
    Finish,
    Frame,
    Kind,
    Part,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseStart,
    ToolCall,
)
from tests.checked import checked
from tests.dialects.messages.test_reader import CALL, SERVER, TOOL_USE, frames_of
from tests.dialects.vendors.test_anthropic import STREAM, THOUGHT, accumulated, events_of
from tests.doubles import chat, message, message_events, text_events
from tests.for_each import for_each

MATCHES: Json = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"title": "A"}]}
CITED: Json = {"type": "text", "text": "a", "citations": [{"x": 1}, {"x": 2}]}
RICH = message(
    THOUGHT,
    {**SERVER, "input": {"query": "x"}},
    MATCHES,
    CITED,
    {**TOOL_USE, "input": {"place": "Paris"}},
    {"type": "redacted_thinking", "data": "RW5j"},
    usage={"input_tokens": 5, "output_tokens": 3, "service_tier": "standard"},
    stop_reason="tool_use",
    container={"id": "c"},
)


def written(frames: Iterable[Frame], *, is_whole: bool = False) -> bytes:
    writer = MESSAGES.writer(WriteOptions(CALL, is_whole))
    return b"".join([writer.feed(frame) for frame in frames])


def message_of(frames: Iterable[Frame]) -> Json:
    """Return the message that a client assembles from a stream."""
    return accumulated(events_of(written(frames)))


def answer_of(
    *parts: Sequence[Event], start: Sequence[Event] = (), end: Sequence[Event] = ()
) -> list[Frame]:
    """Return the frames of a response of another family."""
    started = ResponseStart("id", "model", 1)
    events = [*chain(*parts), *(end or (Finish(0, "stop"),))]
    frames = [Frame((started, *start), "chat"), *(Frame((event,), "chat") for event in events)]
    return checked([*frames, Frame((ResponseEnd(),), "chat", last=True)])


def part_of(kind: Kind, *texts: str, name: str = "", signature: str = "") -> list[Event]:
    part = Part(kind, 0)
    call = ToolCall("c1", name) if name else None
    return [PartStart(part, call), *(Delta(part, text) for text in texts), PartEnd(part)]


def test_whole_response_keeps_its_bytes() -> None:
    raw = orjson.dumps(RICH, option=orjson.OPT_INDENT_2)
    [frame] = frames_of([(RICH, raw)], whole=True)

    assert written([frame], is_whole=True) == raw
    assert json.loads(written([frame._replace(raw=None)], is_whole=True)) == RICH


@for_each("mode", [{}, {"inspect": True}])
def test_whole_response_becomes_a_stream_and_whole_again(mode: dict[str, bool]) -> None:
    frames = frames_of([RICH], whole=True, stream=True, **mode)

    output = message_of(frames)

    assert output == RICH
    assert json.loads(written(frames, is_whole=True)) == RICH


def test_stream_becomes_a_whole_response() -> None:
    events = [(event["type"], event) for event in json.loads(json.dumps(STREAM))]

    assert json.loads(written(frames_of(STREAM), is_whole=True)) == accumulated(events)


def test_response_of_another_family_becomes_blocks() -> None:
    frames = answer_of(
        part_of("reasoning", "Hm", "."),
        part_of("text", "", "a", "b"),
        part_of("arguments", '{"a":', "1}", name="f"),
        part_of("input", 'free "', "text", name="g"),
        part_of("arguments", name="h"),
        part_of("text", "d"),
        part_of("audio", "left out"),
        part_of("opaque", "left out"),
    )
    blocks = [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "ab"},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "c1", "name": "g", "input": {"input": 'free "text'}},
        {"type": "tool_use", "id": "c1", "name": "h", "input": {}},
        {"type": "text", "text": "d"},
    ]

    output = message_of(frames)

    assert output["content"] == blocks
    assert json.loads(written(frames, is_whole=True)) == output


def test_arguments_of_another_type_are_wrapped() -> None:
    frames = answer_of(part_of("arguments", "[1", name="f"))

    [block] = json.loads(written(frames, is_whole=True))["content"]

    assert block["input"] == {"arguments": "[1"}


@for_each(
    ("finish", "stop"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("tool_calls", "tool_use"),
        ("content_filter", "refusal"),
        ("other", "end_turn"),
    ],
)
@for_each("is_whole", [True, False])
def test_each_finish_reason_has_a_stop_reason(finish: Any, stop: str, is_whole: bool) -> None:
    of_call = "tool_use" if stop == "end_turn" else stop
    call = part_of("arguments", "{}", name="f")
    for part, expected in ((part_of("text", "a"), stop), (call, of_call)):
        frames = answer_of(part, end=[Finish(0, finish)])
        output = json.loads(written(frames, is_whole=True)) if is_whole else message_of(frames)
        assert output["stop_reason"] == expected


def test_empty_stream_has_start_usage_and_end() -> None:
    names = [name for name, _ in events_of(written([Frame((), last=True)]))]

    assert names == ["message_start", "message_delta", "message_stop"]
    assert message_of(answer_of())["usage"] == {"input_tokens": 0, "output_tokens": 0}


def test_keep_alive_is_a_ping() -> None:
    assert events_of(written([Frame(())])) == [("ping", {"type": "ping"})]
    assert written([Frame((), "chat", {"choices": []})]) == b""


def test_released_text_follows_in_its_block() -> None:
    frames = frames_of(message_events(text_events(3, "a")), inspect=True)
    [delta] = [event for frame in frames for event in frame.events if isinstance(event, Delta)]
    index = next(index for index, frame in enumerate(frames) if delta in frame.events)

    frames[index + 1 : index + 1] = [Frame((delta._replace(text='b"'),), "messages")]

    grown = [data for name, data in events_of(written(frames)) if name == "content_block_delta"]
    assert (grown[1]["index"], grown[1]["delta"]) == (3, {"type": "text_delta", "text": 'b"'})


def test_each_tool_call_of_a_whole_chat_is_a_block() -> None:
    calls = [{"id": "a", "index": 0, "function": {"name": "f", "arguments": "{}"}}] * 2
    doc = chat(choices=[{"index": 0, "message": {"tool_calls": calls}, "finish_reason": "stop"}])
    reader = FAMILIES["chat"].reader(ReadOptions(CALL, whole=True, is_translated=True))

    [frame] = reader.read(doc, orjson.dumps(doc))

    full_value = json.loads(written([frame._replace(last=True)], is_whole=True))
    block = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    assert (full_value["content"], full_value["stop_reason"]) == ([block] * 2, "tool_use")


@for_each(
    "block",
    [
        {"type": "text", "text": ""},
        {"type": "text", "text": "a", "citations": None},
        {"type": "thinking", "thinking": "a"},
        {"type": "thinking"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": [1, {"b": None}]}},
        {"type": "server_tool_use", "id": "t", "name": "f", "input": {}},
        {"type": "mcp_tool_use", "id": "t", "name": "f", "server_name": "s", "input": {"a": 1}},
        {"type": "mcp_tool_result", "content": [{"type": "text", "text": "a"}]},
        {"type": "unknown", "text": 5, "members": ["a"]},
        {},
    ],
)
def test_block_is_assembled_from_its_events(block: Json) -> None:
    document = message(block, container={"id": "c"}, stop_sequence="x")
    accumulator = MessageAccumulator()

    for event in make_stream_events(document):
        accumulator.add_event(event)

    assert accumulator.build_message() == document


@for_each("content", [None, "text", 5, {}])
def test_content_of_another_type_has_no_blocks(content: object) -> None:
    names = [event["type"] for event in make_stream_events(message(content=content))]
    assert names == ["message_start", "message_delta", "message_stop"]
