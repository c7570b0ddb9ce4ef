"""Signed thoughts that return unchanged are not inspected; changed ones are removed."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from proxy.call.attempts import Attempt
from proxy.call.record import new_record
from proxy.guards import signed_thoughts
from proxy.guards.output import OutputInspector
from proxy.policy.schema.guards import TextKind
from proxy.types import ModelCall, Plan, Target, Upstream
from proxy.types.events import PartStart
from tests.dialects.test_responses import BEARER
from tests.dialects.vendors.test_anthropic import HEADERS, REQUEST, TOOL_USE
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    block_events,
    message,
    message_events,
    respond,
    response,
    stream,
    text_item,
)
from tests.for_each import for_each
from tests.guards.calls import EMAIL
from tests.guards.conftest import Guard
from tests.guards.stream import frames as made

THINKING = {"type": "thinking", "thinking": f"Ask {EMAIL}.", "signature": "c2lnbmVk"}
REDACTED = {"type": "redacted_thinking", "data": "c2VhbGVk"}
REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": f"Ask {EMAIL}."}],
    "encrypted_content": "c2VhbGVk",
}
RESULT = {"type": "tool_result", "tool_use_id": TOOL_USE["id"], "content": "done"}
MESSAGES: Json = {
    **REQUEST,
    "messages": [
        {"role": "user", "content": "Write."},
        {"role": "assistant", "content": [THINKING, REDACTED, TOOL_USE]},
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
KINDS = [kind for kind in get_args(TextKind) if kind != "reasoning"]
WITHOUT_THOUGHTS = f"fields: [{', '.join(KINDS)}]"
MASKED: dict[str, list[Any]] = {
    "messages": [REDACTED, TOOL_USE],
    "responses": [{**REASONING, "summary": [{"type": "summary_text", "text": "Ask [EMAIL]."}]}],
}
UNCHANGED: dict[str, list[Any]] = {
    "messages": [THINKING, REDACTED, TOOL_USE],
    "responses": [REASONING],
}


def thoughts(api: str, body: Json) -> list[Any]:
    return body["messages"][1]["content"] if api == "messages" else [body["input"][1]]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("action: mask", MASKED),
        ("action: block", None),
        (f"action: mask, {WITHOUT_THOUGHTS}", UNCHANGED),
        (f"action: block, {WITHOUT_THOUGHTS}", UNCHANGED),
    ],
)
@pytest.mark.parametrize("api", APIS)
async def test_returned_thoughts_are_inspected_unless_excluded(
    api: str,
    keys: str,
    expected: dict[str, list[Any]] | None,
    guard: Guard,
    upstream: ScriptedUpstream,
) -> None:
    path, target, body, document = APIS[api]
    headers = {**(HEADERS if api == "messages" else BEARER), "x-headrace-deployment": target}
    proxy = await guard(f"input: [{{guard: pii, entities: [email], {keys}}}]", respond(document))

    reply = await proxy.send(path, body, headers)

    if expected is None:
        assert (reply.status, upstream.requests) == (400, []), reply.raw
    else:
        [request] = upstream.requests
        assert thoughts(api, request.json) == expected[api], request.body


FIELDS = message(THINKING, REDACTED, TOOL_USE, stop_reason="tool_use")
EVENTS = message_events(
    block_events(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": f"Ask {EMAIL[:4]}"},
        {"type": "thinking_delta", "thinking": f"{EMAIL[4:]}."},
        {"type": "signature_delta", "signature": THINKING["signature"]},
    ),
    block_events(1, REDACTED),
    block_events(2, {**TOOL_USE, "input": {}}),
    reason="tool_use",
)
CHANGED = {**THINKING, "thinking": f"Tell {EMAIL}."}


async def send_twice(
    guard: Guard, upstream: ScriptedUpstream, script: Script, action: str, first: Json, second: Json
) -> list[Any]:
    """Return the thoughts of the second request as the upstream received them."""
    upstream.then(script, respond(message()))
    headers = {**HEADERS, "x-headrace-deployment": "via-anthropic"}
    proxy = await guard(f"input: [{{guard: pii, entities: [email], action: {action}}}]")
    for body in (first, second):
        reply = await proxy.send("/v1/messages", body, headers)
        assert reply.status == 200, reply.raw
    return thoughts("messages", upstream.requests[-1].json)


@pytest.mark.parametrize("action", ["mask", "block"])
@pytest.mark.parametrize("streamed", [True, False])
async def test_thought_of_the_last_turn_returns_unchanged(
    streamed: bool, action: str, guard: Guard, upstream: ScriptedUpstream
) -> None:
    script = stream(EVENTS, is_done=False) if streamed else respond(FIELDS)
    first = {**REQUEST, "stream": streamed}

    returned = await send_twice(guard, upstream, script, action, first, MESSAGES)

    assert returned == UNCHANGED["messages"]


async def test_changed_thought_is_inspected(guard: Guard, upstream: ScriptedUpstream) -> None:
    user, assistant, result = MESSAGES["messages"]
    turn = {**assistant, "content": [CHANGED, REDACTED, TOOL_USE]}
    changed = {**MESSAGES, "messages": [user, turn, result]}

    returned = await send_twice(guard, upstream, respond(FIELDS), "mask", REQUEST, changed)

    assert returned == [REDACTED, TOOL_USE]


def plan_of(*upstreams: str) -> Plan:
    ups = [Upstream(name, "anthropic", "http://127.0.0.1:1") for name in upstreams]
    targets = tuple(Target(upstream, "m") for upstream in ups)
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
def test_thought_is_known_by_key_and_upstream(
    key: str, upstreams: list[str], block: Json, is_known: bool
) -> None:
    output = signed_thoughts.DeliveredThoughts()
    output.add("a", "one", THINKING["thinking"], THINKING["signature"])
    body = {"messages": [{"role": "assistant", "content": [block]}]}

    paths = output.find_delivered_blocks(body, plan_of(*upstreams), key)

    assert paths == ({("messages", 0, "content", 0)} if is_known else set())


def test_oldest_thoughts_are_forgotten() -> None:
    output = signed_thoughts.DeliveredThoughts()
    for number in range(signed_thoughts.MAX_THOUGHTS + 1):
        output.add("a", "one", "", str(number))
    blocks = [{"type": "redacted_thinking", "data": item} for item in ("0", "1")]
    body = {"messages": [{"role": "assistant", "content": blocks}]}

    delivered = output.find_delivered_blocks(body, plan_of("one"), "a")
    assert delivered == {("messages", 0, "content", 1)}


def test_thoughts_of_frames_are_noted() -> None:
    output, record = signed_thoughts.DeliveredThoughts(), new_record()
    record.key = "a"
    [call] = plan_of("one").model_calls
    record.used_attempts[0] = Attempt(call.targets[0], 0, "b" * 16, started=0.0)
    reader = signed_thoughts.ThoughtRecorder(output, record)
    part = made.part("reasoning", closing="marked")
    halves = [THINKING["thinking"][:5], THINKING["thinking"][5:]]
    signed = made.signed(part, THINKING["signature"])
    sealed = made.part("opaque", 1, closing="marked")
    started = made.event("content_block_start", {"content_block": REDACTED}, PartStart(sealed))

    for frame in made.message(made.block(part, halves, signed), [started]):
        reader.feed(frame)

    body = {"messages": [{"role": "assistant", "content": [THINKING, REDACTED, CHANGED]}]}
    paths = output.find_delivered_blocks(body, plan_of("one"), "a")
    assert paths == {("messages", 0, "content", 0), ("messages", 0, "content", 1)}


SIGNED = {"type": "thinking", "thinking": "Write to jane@example.com", "signature": "s"}
BROKEN_MASKED = {**SIGNED, "thinking": "Write to [EMAIL_1]"}
TEXT = {"type": "text", "text": "jane@example.com"}


def request_of(*blocks: object) -> Json:
    return {"messages": [{"role": "assistant", "content": [*blocks]}, {"role": "user"}]}


MASKED_TEXT = {**TEXT, "text": "[EMAIL_1]"}


@for_each(
    ("body", "masked", "expected"),
    [
        (request_of(SIGNED, TEXT), request_of(BROKEN_MASKED, MASKED_TEXT), request_of(MASKED_TEXT)),
        (
            request_of(SIGNED, TEXT),
            request_of(SIGNED, MASKED_TEXT),
            request_of(SIGNED, MASKED_TEXT),
        ),
        (request_of(SIGNED), request_of(BROKEN_MASKED), {"messages": [{"role": "user"}]}),
        ({"prompt": "a"}, {"prompt": "b"}, {"prompt": "b"}),
    ],
)
def test_masked_signed_blocks_are_dropped(body: Json, masked: Json, expected: Json) -> None:
    assert signed_thoughts.remove_changed_thoughts(body, masked) == expected


@pytest.mark.parametrize("kind", [OutputInspector, signed_thoughts.ThoughtRecorder])
def test_representation_shows_no_text(kind: type) -> None:
    assert "__repr__" not in vars(kind)
