"""Captured texts are redacted as guards read a call: across parts, messages and tool results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import aiohttp

from tests.conftest import policies_for, running_proxy
from tests.dialects.test_responses import BEARER
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    answer,
    chat,
    chat_events,
    item_events,
    message,
    message_events,
    response,
    response_events,
    stream,
    text_events,
    text_item,
)
from tests.for_each import for_each
from tests.guards.conversations import FORMS, Form
from tests.telemetry.collector import Collector, attributes_of

HALVES = "ghp_aB3dE5fG7hI9jK1l", "M3nO5pQ7rS9tU1vW3xY5"
CARD = "4111 1111 ", "1111 1111"
CHAT, MESSAGES, RESPONSES = FORMS
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
    (CHAT, in_parts), (CHAT, in_messages), (CHAT, in_chat_results), (MESSAGES, in_parts),
    (MESSAGES, in_messages), (MESSAGES, in_result_blocks), (RESPONSES, in_input_parts),
    (RESPONSES, in_messages), (RESPONSES, in_outputs),
]  # fmt: skip


def chat_pieces(text: str, two: str, streamed: bool) -> Script:
    return stream(chat_events(text, two)) if streamed else answer(chat(text + two))


def blocks(text: str, two: str, streamed: bool) -> Script:
    if streamed:
        events = message_events(text_events(0, text), text_events(1, two))
        return stream(events, is_done=False)
    return answer(message({**TEXT, "text": text}, {**TEXT, "text": two}))


def block_pieces(text: str, two: str, streamed: bool) -> Script:
    if streamed:
        return stream(message_events(text_events(0, text, two)), is_done=False)
    return answer(message({**TEXT, "text": text + two}))


def items(text: str, two: str, streamed: bool) -> Script:
    first_document, second = text_item(text), text_item(two, "msg_2")
    document = response(first_document, second)
    if not streamed:
        return answer(document)
    events = (item_events(0, first_document, text), item_events(1, second, two))
    return stream(response_events(*events, document=document), is_done=False)


def item_parts(text: str, two: str, streamed: bool) -> Script:
    item = text_item(text + two)
    if streamed:
        return stream(response_events(item_events(0, item, text, two)), is_done=False)
    part = item["content"][0]
    item["content"] = [{**part, "text": text}, {**part, "text": two}]
    return answer(response(item))


RESPONSES_MADE = [
    (form, partial(split, streamed=streamed))
    for form, split in (
        (CHAT, chat_pieces), (MESSAGES, blocks), (MESSAGES, block_pieces), (RESPONSES, items),
        (RESPONSES, item_parts),
    )
    for streamed in (False, True)
]  # fmt: skip
NAMES = [f"{split.func.__name__} {split.keywords}" for _, split in RESPONSES_MADE]


async def spans_of(
    form: Form, body: Json, script: Script, folder: Path, up: ScriptedUpstream, to: Collector
) -> str:
    """Return all spans of a call with captured texts."""
    up.answer_with(script)
    capture = "policies:\n  default: {match: all, capture: {share: 100%}}\n"
    headers = {**BEARER, "x-headrace-deployment": form.deployment}
    async with (
        running_proxy(folder / "p", policies_for(up.url) + capture, otlp_endpoint=to.url) as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        async with client.post(form.path, headers=headers, json=body) as answered:
            assert answered.status == 200, await answered.text()
            await answered.read()
        await proxy.sink.wait()
    attributes = attributes_of(to.named("chat "))
    spans = b"".join(to.bodies).decode(errors="replace")
    to.bodies.clear()
    to.spans.clear()
    assert "gen_ai.input.messages" in attributes
    assert "gen_ai.output.messages" in attributes
    return spans


@for_each("halves", [HALVES, CARD], ids=["token", "card"])
@for_each(
    ("form", "split"), REQUESTS, ids=[f"{form.name} {split.__name__}" for form, split in REQUESTS]
)
async def test_value_split_in_a_request_is_in_no_span(
    form: Form,
    split: Callable[[str, str], list[Json]],
    halves: tuple[str, str],
    tmp_path: Path,
    upstream: ScriptedUpstream,
    collector: Collector,
) -> None:
    field = "input" if form is RESPONSES else "messages"
    body = {**form.body([]), field: split(f"Mine is {halves[0]}", f"{halves[1]} as you know")}
    script = form.script(["Yes."], ["{}"], streamed=False)

    spans = await spans_of(form, body, script, tmp_path, upstream, collector)

    assert "as you know" in spans
    assert [half for half in halves if half.strip() in spans] == []


@for_each("halves", [HALVES, CARD], ids=["token", "card"])
@for_each(("form", "split"), RESPONSES_MADE, ids=NAMES)
async def test_value_split_in_a_response_is_in_no_span(
    form: Form,
    split: partial[Script],
    halves: tuple[str, str],
    tmp_path: Path,
    upstream: ScriptedUpstream,
    collector: Collector,
) -> None:
    script = split(f"Mine is {halves[0]}", f"{halves[1]} as you know")
    body = {**form.body(["Hi"]), "stream": split.keywords["streamed"]}

    spans = await spans_of(form, body, script, tmp_path, upstream, collector)

    assert "as you know" in spans
    assert [half for half in halves if half.strip() in spans] == []
