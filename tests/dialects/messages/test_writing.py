"""An answer in chat's form as Messages, whole and event by event."""

from __future__ import annotations

import json
from typing import Any

from proxy.dialects.messages.reading import EventTurn, own_answer
from proxy.dialects.messages.writing import MessageEvents, own_usage, whole
from proxy.types import Call, Chunk, RequestHead, Untouched
from tests.dialects.test_anthropic import STREAM, THOUGHT, accumulated, events_of
from tests.doubles import chat, message
from tests.for_each import for_each

CALL = Call(RequestHead("anthropic", "chat", "/v1/messages", "req_1"), {})


def streamed(*chunks: dict[str, Any]) -> dict[str, Any]:
    writer = MessageEvents()
    raw = b"".join([writer.feed(Chunk(data)) for data in chunks])
    return accumulated(events_of(raw + writer.feed(Chunk(None, last=True))))


def test_events_that_were_read_are_written_the_same() -> None:
    turn = EventTurn(own=True)
    chunks = [chunk for event in STREAM for chunk in turn.feed(event)]

    silent = "ping", "message_stop"
    wanted = [
        event
        for event in STREAM
        if event["type"] not in silent and event.get("delta", {}).get("partial_json") != ""
    ]
    writer = MessageEvents()
    written = events_of(b"".join([writer.feed(Chunk(chunk)) for chunk in chunks]))

    assert [data for _, data in written[:-1]] == wanted[:-1]
    assert written[-1][1]["delta"] == wanted[-1]["delta"]
    assert written[-1][1]["usage"] == {"input_tokens": 5, **wanted[-1]["usage"]}
    assert writer.feed(Chunk(None, last=True)).startswith(b"event: message_stop\n")


def test_a_whole_answer_that_was_read_is_written_the_same() -> None:
    document = message(THOUGHT, {"type": "unheard", "x": [1]}, container={"id": "c"}, new=True)

    assert whole(CALL, {0: own_answer(document)}) == document


def test_a_whole_answer_may_be_shown_as_a_stream() -> None:
    document = message(THOUGHT, {"type": "text", "text": "a", "citations": [{"x": 1}]})
    data = own_answer(document)
    [choice] = data["choices"]
    chunk = {**data, "choices": [{**choice, "delta": choice["message"]}]}

    shown = streamed(chunk)

    assert shown["content"] == document["content"]


def test_bytes_pass_as_they_came_while_nothing_has_changed_them() -> None:
    raw = Untouched(b'{"type":"message_start", "as":"it came"}')
    raw.kind = "message_start"
    chunk = EventTurn(own=True).feed(STREAM[0])[0]

    assert (
        MessageEvents().feed(Chunk(chunk, raw)) == b"event: message_start\ndata: " + raw + b"\n\n"
    )


@for_each(
    ("finish", "stop"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("tool_calls", "tool_use"),
        ("content_filter", "refusal"),
        ("unheard_of", "end_turn"),
    ],
)
def test_each_end_of_a_chat_has_its_reason(finish: str, stop: str) -> None:
    data = chat("a")
    data["choices"][0]["finish_reason"] = finish

    assert whole(CALL, {0: data})["stop_reason"] == stop


def test_what_a_chat_says_becomes_blocks() -> None:
    function = {"name": "f", "arguments": '{"a": 1}'}
    broken = {"name": "g", "arguments": "[1"}
    calls = [{"id": "c1", "function": function}, {"id": "c2", "function": broken}]
    said = {"role": "assistant", "reasoning_content": "Hm.", "content": "a", "tool_calls": calls}
    choice = {"index": 0, "message": said, "finish_reason": "tool_calls"}

    blocks = whole(CALL, {0: chat(choices=[choice])})["content"]

    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block["input"] for block in blocks[2:]] == [{"a": 1}, {"arguments": "[1"}]


def test_cached_tokens_are_beside_the_input() -> None:
    details = {"cached_tokens": 100, "cache_write_tokens": 20}
    used = {"prompt_tokens": 125, "completion_tokens": 3, "prompt_tokens_details": details}

    assert own_usage(used) == {
        "input_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 3,
    }
    assert own_usage(None) == {"input_tokens": 0, "output_tokens": 0}


def test_a_stream_of_nothing_still_begins_and_ends() -> None:
    raw = MessageEvents().feed(Chunk(None, last=True))

    assert [name for name, _ in events_of(raw)] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]


def test_a_sign_of_life_is_a_ping() -> None:
    raw = MessageEvents().feed(Chunk(None))

    assert events_of(raw) == [("ping", {"type": "ping"})]
    assert json.loads(raw.splitlines()[1][6:]) == {"type": "ping"}


@for_each(
    ("finish", "stop"),
    [
        ("stop", "tool_use"),
        (None, "tool_use"),
        ("length", "max_tokens"),
        ("tool_calls", "tool_use"),
    ],
)
def test_an_answer_that_calls_a_tool_waits_for_it_whatever_its_server_says(
    finish: str | None, stop: str
) -> None:
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    said = {"role": "assistant", "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": finish}

    assert streamed({"choices": [{**choice, "delta": said}]})["stop_reason"] == stop
    assert whole(CALL, {0: chat(choices=[{**choice, "message": said}])})["stop_reason"] == stop
