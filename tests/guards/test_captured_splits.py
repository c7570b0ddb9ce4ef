"""Captured texts are redacted as guards read a call: across parts, messages and tool results."""

from __future__ import annotations

import json
from collections.abc import Callable

from proxy.guards.capture import CallCapture
from proxy.policy.compile.guards import compile_capture
from proxy.policy.schema import CaptureConfig
from proxy.types.events import FamilyName, Frame
from tests.doubles import (
    Json,
    chat,
    chat_events,
    item_events,
    message,
    message_events,
    response,
    response_events,
    text_events,
    text_item,
)
from tests.for_each import for_each
from tests.golden.pipeline import Pipeline
from tests.guards.stream import frames as made

HALVES = "ghp_aB3dE5fG7hI9jK1l", "M3nO5pQ7rS9tU1vW3xY5"
CARD = "4111 1111 ", "1111 1111"
USER: Json = {"role": "user"}
TEXT: Json = {"type": "text"}
CALL: Json = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
USED: Json = {"type": "tool_use", "name": "f", "input": {}}
RESULT: Json = {"type": "tool_result"}
ITEM: Json = {"type": "function_call", "name": "f", "arguments": "{}"}
OUTPUT: Json = {"type": "function_call_output"}


def in_parts(text: str, two: str) -> list[Json]:
    return [{**USER, "content": [{**TEXT, "text": text}, {**TEXT, "text": two}]}]


def in_messages(text: str, two: str) -> list[Json]:
    return [{**USER, "content": text}, {**USER, "content": two}]


def in_chat_results(text: str, two: str) -> list[Json]:
    calls = [{**CALL, "id": "a"}, {**CALL, "id": "b"}]
    return [
        {**USER, "content": "Go."},
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": text},
        {"role": "tool", "tool_call_id": "b", "content": two},
    ]


def in_result_blocks(text: str, two: str) -> list[Json]:
    results = [
        {**RESULT, "tool_use_id": "a", "content": text},
        {**RESULT, "tool_use_id": "b", "content": [{**TEXT, "text": two}]},
    ]
    return [
        {**USER, "content": "Go."},
        {"role": "assistant", "content": [{**USED, "id": "a"}, {**USED, "id": "b"}]},
        {**USER, "content": results},
    ]


def in_outputs(text: str, two: str) -> list[Json]:
    return [
        {**USER, "content": "Go."},
        *({**ITEM, "call_id": name} for name in "ab"),
        {**OUTPUT, "call_id": "a", "output": text},
        {**OUTPUT, "call_id": "b", "output": two},
    ]


def in_input_parts(text: str, two: str) -> list[Json]:
    return [{**USER, "content": [{"type": "input_text", "text": name} for name in (text, two)]}]


REQUESTS = [
    in_parts, in_messages, in_chat_results, in_result_blocks, in_input_parts, in_outputs,
]  # fmt: skip

Answer = tuple[list[Json], Json]
"""Events of a stream, and the document of the same response."""


def chat_pieces(text: str, two: str) -> Answer:
    return chat_events(text, two), chat(text + two)


def blocks(text: str, two: str) -> Answer:
    events = message_events(text_events(0, text), text_events(1, two))
    return events, message({**TEXT, "text": text}, {**TEXT, "text": two})


def block_pieces(text: str, two: str) -> Answer:
    return message_events(text_events(0, text, two)), message({**TEXT, "text": text + two})


def items(text: str, two: str) -> Answer:
    first, second = text_item(text), text_item(two, "msg_2")
    document = response(first, second)
    events = item_events(0, first, text), item_events(1, second, two)
    return response_events(*events, document=document), document


def item_parts(text: str, two: str) -> Answer:
    item = text_item(text + two)
    events = response_events(item_events(0, item, text, two))
    part = item["content"][0]
    return events, response({**item, "content": [{**part, "text": text}, {**part, "text": two}]})


RESPONSES: list[tuple[FamilyName, Callable[[str, str], Answer]]] = [
    ("chat", chat_pieces), ("messages", blocks), ("messages", block_pieces), ("responses", items),
    ("responses", item_parts),
]  # fmt: skip


def captured_texts(body: Json, *frames: Frame) -> str:
    capture = compile_capture(CaptureConfig.model_validate({"share": "100%"}))
    stored = CallCapture(capture, capture.redact, body, lambda: 0.0)
    for frame in frames:
        stored.feed(frame)
    captured = stored.build_captured_texts()
    return " ".join(text.text for text in (*captured.prompt, *captured.response))


def assert_redacted(texts: str, halves: tuple[str, str]) -> None:
    assert "as you know" in texts
    assert [half for half in halves if half.strip() in texts] == []


@for_each("halves", [HALVES, CARD], ids=["token", "card"])
@for_each("split", REQUESTS, ids=[split.__name__ for split in REQUESTS])
def test_value_split_in_a_request_is_not_captured(
    split: Callable[[str, str], list[Json]], halves: tuple[str, str]
) -> None:
    field = "messages" if split in (in_chat_results, in_result_blocks) else "input"
    turns = split(f"Mine is {halves[0]}", f"{halves[1]} as you know")

    assert_redacted(captured_texts({field: turns}), halves)


@for_each("halves", [HALVES, CARD], ids=["token", "card"])
@for_each("inspect", [None, False, True], ids=["whole", "stream", "split stream"])
@for_each(("family", "split"), RESPONSES, ids=[split.__name__ for _, split in RESPONSES])
def test_value_split_in_a_response_is_not_captured(
    family: FamilyName,
    split: Callable[[str, str], Answer],
    inspect: bool | None,
    halves: tuple[str, str],
) -> None:
    events, document = split(f"Mine is {halves[0]}", f"{halves[1]} as you know")
    frames = [made.whole_answer(document, family)]
    if inspect is not None:
        documents = [json.dumps(event).encode() for event in events]
        frames = Pipeline(family, family, inspect=inspect).frames([*documents, made.DONE])

    assert_redacted(captured_texts({}, *frames), halves)
