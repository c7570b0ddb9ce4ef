"""Reader of Messages responses: order, texts, usage, and invalid input."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import orjson
import pytest

from proxy.dialects.families import MESSAGES
from proxy.dialects.family import ReadOptions
from proxy.dialects.messages.reader import MAX_BLOCKS, MessageReader
from proxy.errors import ResponseTooLarge, UpstreamInvalid
from proxy.money.usage import Tokens
from proxy.types import Call, Json, RequestHead
from proxy.types.events import (
    Delta,
    Finish,
    Frame,
    PartEnd,
    PartStart,
    ResponseEnd,
    ToolCall,
    Unmapped,
    UsageReport,
)
from tests.checked import checked
from tests.doubles import block_events, message, message_events, text_events
from tests.for_each import for_each

CALL = Call(RequestHead("anthropic", "chat", "/v1/messages", "req_1"), {})
TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {}}
SERVER = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}


def options(**extra: bool) -> ReadOptions:
    return replace(ReadOptions(CALL), **extra)  # type: ignore[arg-type]


def frames_of(docs: Iterable[Json] | Iterable[tuple[Json, bytes]], **extra: bool) -> list[Frame]:
    """Return the frames of one response, with checked order and marked end."""
    reader = MESSAGES.reader(options(**extra))
    pairs = [doc if isinstance(doc, tuple) else (doc, orjson.dumps(doc)) for doc in docs]
    frames = [frame for doc, raw in pairs for frame in reader.read(doc, raw)]
    matches = [type(event) for frame in frames for event in frame.events]
    if Finish in matches and ResponseEnd not in matches:
        frames += reader.end()
    if {Finish, ResponseEnd} & {*matches}:
        frames[-1] = frames[-1]._replace(last=True)
    split = bool(extra.get("inspect") or extra.get("is_translated"))
    return checked(frames, split=split and not (extra.get("whole") and not extra.get("stream")))


def all_events(frames: Iterable[Frame]) -> list[Any]:
    return [event for frame in frames for event in frame.events]


@for_each(
    ("change", "is_native"),
    [
        ({}, False),
        ({"content": []}, False),
        ({"container": {"id": "c"}}, True),
        ({"id": "an id with spaces"}, True),
        ({"usage": {"input_tokens": 5, "service_tier": "standard"}}, False),
        ({"usage": {"input_tokens": 5, "service_tier": "odd"}}, True),
    ],
)
def test_unusual_members_of_a_message_are_native(change: Json, is_native: bool) -> None:
    start = message_events(text_events(0, "a"))[0]
    start["message"] |= change

    [frame] = MessageReader(options(inspect=True)).read(start, orjson.dumps(start))

    assert (Unmapped() in frame.events) is is_native


@for_each(
    ("used", "tokens"),
    [
        ({"input_tokens": 5, "output_tokens": 3}, Tokens(input=5, output=3)),
        ({"input_tokens": 5, "cache_read_input_tokens": 100, "output_tokens": 3}
            | {"cache_creation_input_tokens": 20}
            | {"cache_creation": {"ephemeral_1h_input_tokens": 5}},
            Tokens(input=5, cached_input=100, cache_write=20, output=3, cache_write_1h=5)),
        ({"input_tokens": 5, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 4}},
            Tokens(input=5, output=5, reasoning=4)),
        ({"input_tokens": 5, "output_tokens": 9, "server_tool_use": {"web_search_requests": 2}},
            Tokens(input=5, output=9, web_searches=2)),
        ({"output_tokens": 3}, None),
        ({"input_tokens": "5", "output_tokens": 3}, None),
    ],
)  # fmt: skip
def test_usage_of_a_whole_response_is_read(used: Json, tokens: Tokens | None) -> None:
    [frame] = frames_of([message(usage=used)], whole=True)

    [report] = [event for event in frame.events if isinstance(event, UsageReport)]
    assert (report.tokens, report.native) == (tokens, used)


def test_final_usage_wins_and_missing_counts_stay() -> None:
    used = {"output_tokens": 30, "cache_read_input_tokens": 7, "input_tokens": None}

    matches = all_events(frames_of(message_events(text_events(0, "a"), usage=used), inspect=True))

    report, ended = [event for event in matches if isinstance(event, UsageReport)]
    assert (report.final, ended.final) == (False, True)
    assert ended.tokens == Tokens(input=5, cached_input=7, output=30)
    assert ended.native == {"input_tokens": 5, "output_tokens": 30, "cache_read_input_tokens": 7}


@for_each(
    ("finish", "reasons"),
    [
        ("stop", ["end_turn", "stop_sequence", "pause_turn", "unknown"]),
        ("length", ["max_tokens", "model_context_window_exceeded"]),
        ("tool_calls", ["tool_use"]),
        ("content_filter", ["refusal"]),
    ],
)
def test_each_stop_reason_has_a_finish_reason(finish: Any, reasons: list[str]) -> None:
    for reason in reasons:
        whole = frames_of([message(stop_reason=reason)], whole=True)
        streamed = frames_of(message_events(text_events(0, "a"), reason=reason))

        for frames in (whole, streamed):
            assert [e for e in all_events(frames) if isinstance(e, Finish)] == [Finish(0, finish)]


def test_arguments_in_the_start_of_a_call_become_a_delta() -> None:
    script = message_events(block_events(0, {**TOOL_USE, "input": {"a": 1}}))

    frames = frames_of(script, inspect=True)

    start, delta = frames[1:3]
    assert start.doc == {**script[2], "content_block": TOOL_USE}
    inner = {"type": "input_json_delta", "partial_json": '{"a":1}'}
    assert delta.doc == {"type": "content_block_delta", "index": 0, "delta": inner}
    [unsplit] = [e for e in all_events(frames_of(script)) if isinstance(e, Delta)]
    assert unsplit.text == '{"a":1}'


def test_invalid_ids_are_replaced_in_inspected_streams() -> None:
    script = message_events(block_events(0, {**TOOL_USE, "id": "a zebra"}))
    script[0]["message"]["id"] = "the zebra"

    matches = all_events(frames_of(script, inspect=True, is_translated=True))

    assert matches[0].id is None
    [call] = [event.call for event in matches if isinstance(event, PartStart)]
    assert call == ToolCall("", "look_up")


@for_each("mode", [{}, {"inspect": True}, {"is_translated": True}])
@for_each(
    "event", [{}, {"type": 5}, {"type": ["x"]}, {"type": "x"}, {"type": "a\nb"}, {"choices": []}]
)
def test_document_of_another_family_yields_nothing(event: Json, mode: dict[str, bool]) -> None:
    reader = MessageReader(options(**mode))

    assert reader.read(event, orjson.dumps(event)) == []
    with pytest.raises(UpstreamInvalid, match="before the response was complete"):
        reader.end()


@for_each("index", [None, "0", [1], {"a": 1}, 1.5])
@for_each("mode", [{}, {"inspect": True}, {"is_translated": True}])
def test_invalid_index_raises_no_internal_error(index: Any, mode: dict[str, bool]) -> None:
    script = message_events([{**event, "index": index} for event in text_events(0, "a", "b")])

    if index is not None and mode == {"inspect": True}:  # clients may convert it to a number
        with pytest.raises(UpstreamInvalid, match="invalid index"):
            frames_of(script, **mode)
        return
    matches = all_events(frames_of(script, **mode))

    assert "".join(event.text for event in matches if isinstance(event, Delta)) == "ab"


@for_each("inspect", [True, False])
def test_block_without_an_end_ends_with_the_message(inspect: bool) -> None:
    script = message_events(text_events(0, "a")[:-1], text_events(1, "b")[:-1])

    frames = frames_of(script, inspect=inspect)

    closed = [frame.doc for frame in frames if any(isinstance(e, PartEnd) for e in frame.events)]
    stop = [{"type": "content_block_stop", "index": index} for index in (0, 1)]
    assert closed == (stop if inspect else [script[-2]])


@for_each("mode", [{"inspect": True}, {"is_translated": True}])
@for_each(
    ("script", "problem"),
    [
        ([*text_events(0, "a"), text_events(0, "b")[1]], "continued a content block"),
        ([text_events(0, "a")[0]] * 2, "started a content block that had not ended"),
        (message_events()[:1], "second message"),
    ],
)
def test_events_out_of_order_are_refused(script: list[Json], problem: str, mode: Any) -> None:
    with pytest.raises(UpstreamInvalid, match=problem):
        frames_of([message_events()[0], *script], **mode)
    frames_of([message_events()[0], *script])


@for_each("mode", [{}, {"inspect": True}, {"is_translated": True}])
def test_open_and_ended_blocks_are_bounded(mode: dict[str, bool]) -> None:
    blocks = [text_events(index, "a") for index in range(MAX_BLOCKS + 1)]

    with pytest.raises(ResponseTooLarge, match="too many content blocks"):
        frames_of([message_events()[0], *(block[0] for block in blocks)], **mode)
    with pytest.raises(ResponseTooLarge) if mode else nullcontext():
        frames_of(message_events(*blocks), **mode)


@for_each("mode", [{}, {"inspect": True}, {"is_translated": True}])
def test_stop_without_message_is_refused(mode: dict[str, bool]) -> None:
    with pytest.raises(UpstreamInvalid, match="before the response was complete"):
        frames_of([{"type": "ping"}, {"type": "message_stop"}], **mode)


def test_end_of_bytes_completes_a_finished_message() -> None:
    frames = frames_of(message_events(text_events(0, "a"))[:-1])

    assert frames[-1] == Frame((ResponseEnd(),), "messages", last=True)


def test_whole_response_is_one_frame_with_its_bytes() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    doc = message(thought, {**TOOL_USE, "input": {"a": [1]}})
    raw = orjson.dumps(doc, option=orjson.OPT_INDENT_2)

    [frame] = MESSAGES.reader(options(whole=True)).read(doc, raw)

    assert checked([frame]) == [frame]
    assert (frame.doc, frame.raw) == (doc, raw)
    texts = [(event.text, event.slot) for event in frame.events if isinstance(event, Delta)]
    assert texts == [("Hm.", ("content", 0, "thinking")), ('{"a":[1]}', ())]


def test_content_block_of_another_type_is_refused() -> None:
    with pytest.raises(UpstreamInvalid, match="content block that is not an object"):
        frames_of([message(content=["text"])], whole=True)
