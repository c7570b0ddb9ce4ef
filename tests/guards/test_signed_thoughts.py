"""Signed thoughts that return unchanged are not inspected; changed ones are removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from proxy.app.context import new_record
from proxy.call.attempts import Attempt
from proxy.guards.signed_thoughts import MAX_THOUGHTS, ShownThoughts, ThoughtReader, without_broken
from proxy.policy.schema.guards import Kind
from proxy.types import ModelCall, Plan, Target, Upstream
from proxy.types.events import Begin
from tests.dialects.test_responses import BEARER
from tests.dialects.vendors.test_anthropic import ASKED, CALLED, HEADERS
from tests.doubles import (
    Json,
    ScriptedUpstream,
    answer,
    block_events,
    message,
    message_events,
    response,
    stream,
    text_item,
)
from tests.for_each import for_each
from tests.guards.stream import frames as made
from tests.guards.test_run import EMAIL, guarded

THINKING = {"type": "thinking", "thinking": f"Ask {EMAIL}.", "signature": "c2lnbmVk"}
REDACTED = {"type": "redacted_thinking", "data": "c2VhbGVk"}
REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": f"Ask {EMAIL}."}],
    "encrypted_content": "c2VhbGVk",
}
RESULT = {"type": "tool_result", "tool_use_id": CALLED["id"], "content": "done"}
MESSAGES: Json = {
    **ASKED,
    "messages": [
        {"role": "user", "content": "Write."},
        {"role": "assistant", "content": [THINKING, REDACTED, CALLED]},
        {"role": "user", "content": [RESULT]},
    ],
}
RESPONSES: Json = {
    "model": "gpt-4o-mini",
    "input": [{"role": "user", "content": "Write."}, REASONING, {"role": "user", "content": "Go."}],
}
APIS: dict[str, tuple[str, str, Json, Json]] = {
    "messages": ("/v1/messages", "via-anthropic", MESSAGES, message()),
    "responses": ("/v1/responses", "support-chat", RESPONSES, response(text_item("Fine."))),
}
WITHOUT_THOUGHTS = f"fields: [{', '.join(kind for kind in get_args(Kind) if kind != 'reasoning')}]"
MASKED: dict[str, list[Any]] = {
    "messages": [REDACTED, CALLED],
    "responses": [{**REASONING, "summary": [{"type": "summary_text", "text": "Ask [EMAIL]."}]}],
}
UNCHANGED: dict[str, list[Any]] = {
    "messages": [THINKING, REDACTED, CALLED],
    "responses": [REASONING],
}


def thoughts(api: str, body: Json) -> list[Any]:
    return body["messages"][1]["content"] if api == "messages" else [body["input"][1]]


@pytest.mark.parametrize(
    ("guard", "expected"),
    [
        ("action: mask", MASKED),
        ("action: block", None),
        (f"action: mask, {WITHOUT_THOUGHTS}", UNCHANGED),
        (f"action: block, {WITHOUT_THOUGHTS}", UNCHANGED),
    ],
)
@pytest.mark.parametrize("api", APIS)
async def test_returned_thoughts_are_inspected_unless_their_kind_is_left_out(
    api: str,
    guard: str,
    expected: dict[str, list[Any]] | None,
    tmp_path: Path,
    upstream: ScriptedUpstream,
) -> None:
    path, target, body, reply = APIS[api]
    upstream.answer_with(answer(reply))
    rules = f"input: [{{guard: pii, entities: [email], {guard}}}]"
    headers = {**(HEADERS if api == "messages" else BEARER), "x-headrace-deployment": target}
    async with (
        guarded(tmp_path, upstream, rules) as (_, client),
        client.post(path, headers=headers, json=body) as answered,
    ):
        raw = await answered.read()

    if expected is None:
        assert (answered.status, upstream.requests) == (400, []), raw
    else:
        [request] = upstream.requests
        assert thoughts(api, request.json) == expected[api], json.dumps(request.json)


FIELDS = message(THINKING, REDACTED, CALLED, stop_reason="tool_use")
EVENTS = message_events(
    block_events(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": f"Ask {EMAIL[:4]}"},
        {"type": "thinking_delta", "thinking": f"{EMAIL[4:]}."},
        {"type": "signature_delta", "signature": THINKING["signature"]},
    ),
    block_events(1, REDACTED),
    block_events(2, {**CALLED, "input": {}}),
    reason="tool_use",
)
CHANGED = {**THINKING, "thinking": f"Tell {EMAIL}."}


@pytest.mark.parametrize("action", ["mask", "block"])
@pytest.mark.parametrize("streamed", [True, False])
async def test_thought_of_the_last_turn_returns_unchanged(
    streamed: bool, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(stream(EVENTS, is_done=False) if streamed else answer(FIELDS))
    rules = f"input: [{{guard: pii, entities: [email], action: {action}}}]"
    headers = {**HEADERS, "x-headrace-deployment": "via-anthropic"}
    async with guarded(tmp_path, upstream, rules) as (_, client):
        async with client.post(
            "/v1/messages", headers=headers, json={**ASKED, "stream": streamed}
        ) as first_response:
            await first_response.read()
        upstream.answer_with(answer(message()))
        async with client.post("/v1/messages", headers=headers, json=MESSAGES) as second:
            raw = await second.read()

    assert second.status == 200, raw
    assert thoughts("messages", upstream.requests[-1].json) == UNCHANGED["messages"]


async def test_changed_thought_is_inspected(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer(FIELDS))
    headers = {**HEADERS, "x-headrace-deployment": "via-anthropic"}
    turns = [{**MESSAGES["messages"][1], "content": [CHANGED, REDACTED, CALLED]}]
    changed = {**MESSAGES, "messages": [MESSAGES["messages"][0], *turns, MESSAGES["messages"][2]]}
    rules = "input: [{guard: pii, entities: [email], action: mask}]"
    async with guarded(tmp_path, upstream, rules) as (_, client):
        for body in (ASKED, changed):
            async with client.post("/v1/messages", headers=headers, json=body) as request:
                await request.read()

    assert thoughts("messages", upstream.requests[-1].json) == [REDACTED, CALLED]


def plan_of(*upstreams: str) -> Plan:
    targets = tuple(
        Target(Upstream(name, "anthropic", "http://127.0.0.1:1"), "m") for name in upstreams
    )
    return Plan("1", "key", "chat", {}, (ModelCall("m", targets),))


@for_each(
    ("key", "upstreams", "block", "is_known"),
    [
        ("a", ["one"], THINKING, True),
        ("b", ["one"], THINKING, False),
        ("a", ["two"], THINKING, False),
        ("a", ["one", "two"], THINKING, False),
        ("a", ["one"], CHANGED, False),
        ("a", ["one"], {**THINKING, "note": EMAIL}, False),
        ("a", ["one"], {**THINKING, "signature": "b3RoZXI="}, False),
    ],
)
def test_thought_is_known_to_its_key_and_upstream_alone(
    key: str, upstreams: list[str], block: Json, is_known: bool
) -> None:
    output = ShownThoughts()
    output.add("a", "one", THINKING["thinking"], THINKING["signature"])
    body = {"messages": [{"role": "assistant", "content": [block]}]}

    paths = output.known_blocks(body, plan_of(*upstreams), key)

    assert paths == ({("messages", 0, "content", 0)} if is_known else set())


def test_oldest_thoughts_are_forgotten() -> None:
    output = ShownThoughts()
    for number in range(MAX_THOUGHTS + 1):
        output.add("a", "one", "", str(number))
    blocks = [{"type": "redacted_thinking", "data": item} for item in ("0", "1")]
    body = {"messages": [{"role": "assistant", "content": blocks}]}

    assert output.known_blocks(body, plan_of("one"), "a") == {("messages", 0, "content", 1)}


def test_thoughts_of_frames_are_noted() -> None:
    output, record = ShownThoughts(), new_record()
    record.key = "a"
    [call] = plan_of("one").model_calls
    record.used_attempts[0] = Attempt(call.targets[0], 0, "b" * 16, started=0.0)
    reader = ThoughtReader(output, record)
    part = made.part("reasoning", closing="marked")
    halves = [THINKING["thinking"][:5], THINKING["thinking"][5:]]
    signed = made.signed(part, THINKING["signature"])
    sealed = made.part("opaque", 1, closing="marked")
    started = made.event("content_block_start", {"content_block": REDACTED}, Begin(sealed))

    for frame in made.message(made.block(part, halves, signed), [started]):
        reader.feed(frame)

    body = {"messages": [{"role": "assistant", "content": [THINKING, REDACTED, CHANGED]}]}
    paths = output.known_blocks(body, plan_of("one"), "a")
    assert paths == {("messages", 0, "content", 0), ("messages", 0, "content", 1)}


SIGNED = {"type": "thinking", "thinking": "Write to jane@example.com", "signature": "s"}
BROKEN_MASKED = {**SIGNED, "thinking": "Write to [EMAIL_1]"}
TEXT = {"type": "text", "text": "jane@example.com"}


def asked(*blocks: object) -> dict[str, object]:
    return {"messages": [{"role": "assistant", "content": [*blocks]}, {"role": "user"}]}


def test_a_signed_block_that_was_masked_is_left_out_and_others_stay() -> None:
    document_after = asked(BROKEN_MASKED, {**TEXT, "text": "[EMAIL_1]"})

    assert without_broken(asked(SIGNED, TEXT), document_after) == asked(
        {**TEXT, "text": "[EMAIL_1]"}
    )


def test_a_block_that_was_not_masked_stays() -> None:
    document_after = asked(SIGNED, {**TEXT, "text": "[EMAIL_1]"})

    assert without_broken(asked(SIGNED, TEXT), document_after) == document_after


def test_a_message_of_nothing_else_is_left_out() -> None:
    assert without_broken(asked(SIGNED), asked(BROKEN_MASKED)) == {"messages": [{"role": "user"}]}


def test_a_request_without_messages_is_as_it_was() -> None:
    assert without_broken({"prompt": "a"}, {"prompt": "b"}) == {"prompt": "b"}
