"""Guards over calls of Messages: texts of requests and responses that other APIs do not have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import Proxy, Reply
from tests.dialects.vendors.test_anthropic import HEADERS, REQUEST, TOOL_USE, accumulated, events_of
from tests.doubles import (
    Json,
    ScriptedUpstream,
    block_events,
    chat,
    message,
    message_events,
    respond,
    stream,
    text_events,
)
from tests.guards.calls import EMAIL, PII, WORD
from tests.guards.conftest import Guard

MASKED = "[EMAIL]"
THOUGHT = {"type": "thinking", "thinking": f"Ask {EMAIL}", "signature": "c2lnbmVk"}
OTHER_THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "b3RoZXI="}
TEXT: Json = {"type": "text", "text": ""}
STREAMED = pytest.mark.parametrize("streamed", [False, True])


async def ask(proxy: Proxy, model: str = "via-anthropic", **options: Any) -> Reply:
    headers = {**HEADERS, "x-headrace-deployment": model}
    return await proxy.send("/v1/messages", {**REQUEST, **options}, headers)


@pytest.mark.parametrize("model", ["via-anthropic", "support-chat"])
async def test_every_text_of_a_request_is_masked(
    model: str, guard: Guard, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(message() if model == "via-anthropic" else chat()))
    document = {"type": "text", "media_type": "text/plain", "data": f"By {EMAIL}."}
    blocks = [
        {"type": "text", "text": f"From {EMAIL}."},
        {"type": "document", "title": EMAIL, "source": document},
    ]
    result = {"type": "tool_result", "tool_use_id": "toolu_1"}
    request: Json = {
        "system": [{"type": "text", "text": f"You are {EMAIL}."}],
        "tools": [{"name": "f", "description": EMAIL, "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": blocks},
            {"role": "assistant", "content": [THOUGHT, {**TOOL_USE, "input": {"to": EMAIL}}]},
            {"role": "user", "content": [{**result, "content": [{"type": "text", "text": EMAIL}]}]},
        ],
    }
    proxy = await guard(f"input: [{PII}], opaque: allow")

    reply = await ask(proxy, model, **request)

    [upstream_request] = upstream.requests
    assert reply.status == 200, reply.raw
    assert EMAIL.encode() not in upstream_request.body
    if model == "via-anthropic":  # the provider refuses changed signed thoughts
        [block] = upstream_request.json["messages"][1]["content"]
        assert block["type"] == "tool_use"


def turn(**block: Any) -> Json:
    return {"messages": [*REQUEST["messages"], {"role": "assistant", "content": [block]}]}


@pytest.mark.parametrize(
    "request_fields",
    [
        {"system": "hippo"},
        turn(**{**THOUGHT, "thinking": "hippo"}),
        turn(**{**TOOL_USE, "input": {"a": ["hippo"]}}),
    ],
)
async def test_finding_in_request_is_an_error_of_messages(
    request_fields: Json, guard: Guard, upstream: ScriptedUpstream
) -> None:
    proxy = await guard(f"input: [{WORD}]")

    reply = await ask(proxy, **request_fields)

    assert (reply.status, reply.json["type"]) == (400, "error")
    assert reply.error["type"] == "policy_blocked"
    assert "Guard" in reply.error["message"]
    assert upstream.requests == []


async def test_block_in_a_stream_has_a_known_stop_reason(guard: Guard) -> None:
    texts = text_events(0, "It is a fine day. " * 40, "hippo", " and on")
    proxy = await guard(f"output: [{WORD}]", stream(message_events(texts), is_done=False))

    reply = await ask(proxy, stream=True)

    name, data = events_of(reply.raw)[-1]
    assert (reply.status, name, data["error"]["type"]) == (200, "error", "policy_blocked")
    assert data["error"]["message"].startswith("Guard")
    assert data["error"]["message"].endswith("(Output blocked by content filtering policy)")


async def test_masked_thought_loses_its_signature(guard: Guard) -> None:
    text = {"type": "text", "text": f"Write to {EMAIL}.", "citations": [{"cited_text": EMAIL}]}
    call: Json = {**TOOL_USE, "input": {"to": EMAIL, "n": 1}}
    blocks: list[Json] = [OTHER_THOUGHT, THOUGHT, text, call]
    proxy = await guard(f"output: [{PII}]", respond(message(*blocks, stop_reason="tool_use")))

    reply = await ask(proxy)

    content = reply.json["content"]
    assert (reply.status, EMAIL.encode() in reply.raw) == (200, False)
    assert [block["type"] for block in content] == [block["type"] for block in blocks]
    assert content[0] == OTHER_THOUGHT
    assert content[1]["signature"] == ""
    assert content[3]["input"]["n"] == 1


SUMMARY: Json = {"type": "compaction", "content": f"They are {EMAIL}."}


@STREAMED
async def test_compaction_summary_is_masked(streamed: bool, guard: Guard) -> None:
    delta = {"type": "compaction_delta", "content": SUMMARY["content"]}
    started = {"type": "compaction", "content": None}
    script = message_events(block_events(0, started, delta), text_events(1, "Paris."))
    document = message(SUMMARY, {"type": "text", "text": "Paris."})
    answer = stream(script, is_done=False) if streamed else respond(document)
    proxy = await guard(f"output: [{PII}]", answer)

    reply = await ask(proxy, stream=streamed)

    assert (reply.status, EMAIL.encode() in reply.raw) == (200, False)
    assert (b"compaction" in reply.raw, reply.raw.count(MASKED.encode())) == (True, 1)


@pytest.mark.parametrize("seal", ["encrypted_content", "signature", None])
async def test_returned_summary_is_masked_or_dropped_if_sealed(
    seal: str | None, guard: Guard, upstream: ScriptedUpstream
) -> None:
    block = {**SUMMARY, seal: "c2VhbGVk"} if seal else SUMMARY
    blocks = [block, {"type": "text", "text": "Paris."}]
    answered = {"role": "assistant", "content": blocks}
    request = [*REQUEST["messages"], answered, {"role": "user", "content": "And now?"}]
    proxy = await guard(f"input: [{PII}]", respond(message()))

    reply = await ask(proxy, messages=request)

    [upstream_request] = upstream.requests
    kinds = [block["type"] for block in upstream_request.json["messages"][1]["content"]]
    assert (reply.status, EMAIL.encode() in upstream_request.body) == (200, False)
    assert kinds == (["text"] if seal else ["compaction", "text"])


LATER = "of_next_year"


THINKING = {"type": "thinking", "thinking": "", "signature": ""}


def another_kind(member: str, between: str) -> list[Json]:
    texts = [(member, EMAIL[:4]), (between, "x "), (member, f"{EMAIL[4:]}.")]
    return [{"type": f"{name}_delta", name: text} for name, text in texts]


async def test_delta_of_another_kind_splits_no_finding(guard: Guard) -> None:
    events = block_events(0, {"type": LATER}, *another_kind("text", "thinking"))
    proxy = await guard(f"output: [{PII}]", stream(message_events(events), is_done=False))

    reply = await ask(proxy, stream=True)

    text = "".join(data.get("delta", {}).get("text", "") for _, data in events_of(reply.raw))
    assert (EMAIL in text, MASKED in text) == (False, True)


@pytest.mark.parametrize(
    ("block", "member", "between"),
    [(TEXT, "text", "thinking"), (THINKING, "text", "thinking"), (THINKING, "thinking", "text")],
)
async def test_delta_of_another_kind_ends_the_stream(
    block: Json, member: str, between: str, guard: Guard
) -> None:
    events = block_events(0, block, *another_kind(member, between))
    proxy = await guard(f"output: [{PII}]", stream(message_events(events), is_done=False))

    reply = await ask(proxy, stream=True)

    assert b"a delta of another type than its block" in reply.raw
    assert EMAIL.encode() not in reply.raw


async def test_interleaved_blocks_hide_nothing_in_chat(guard: Guard) -> None:
    first, second = text_events(0, EMAIL[:4]), text_events(1, f"{EMAIL[4:]}.")
    events = [event for pair in zip(first, second, strict=True) for event in pair]
    body = {"messages": [{"role": "user", "content": "Hi"}], "model": "anthropic-model"}
    proxy = await guard(f"output: [{PII}]", stream(message_events(events), is_done=False))

    reply = await proxy.send("/v1/chat/completions", {**body, "stream": True})

    chunks = [json.loads(line[6:]) for line in reply.raw.splitlines() if line[6:7] == b"{"]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    assert (EMAIL in text, MASKED in text) == (False, True)


CARD = 4111111111111111
PAYS: Json = {**TOOL_USE, "input": {"card": CARD, "of": [CARD, 7, 0.5, True]}}
PAID: Json = {"card": "[CARD]", "of": ["[CARD]", 7, 0.5, True]}
CARDS = "{guard: pii, entities: [card], action: mask}"


@pytest.mark.parametrize("kind", ["tool_use", "server_tool_use"])
async def test_numbers_in_tool_input_are_masked(
    kind: str, guard: Guard, upstream: ScriptedUpstream
) -> None:
    block = {**PAYS, "type": kind}
    delta = {"type": "input_json_delta", "partial_json": json.dumps(PAYS["input"])}
    scripts = [
        respond(message(block)),
        stream(message_events(block_events(0, {**block, "input": {}}, delta)), is_done=False),
        stream(message_events(block_events(0, block)), is_done=False),
    ]
    upstream.then(*scripts)
    paid = {"type": "tool_result", "tool_use_id": PAYS["id"], "content": "Paid."}
    messages = [
        {"role": "user", "content": "Pay."},
        {"role": "assistant", "content": [PAYS]},
        {"role": "user", "content": [paid]},
    ]
    proxy = await guard(f"input: [{CARDS}], output: [{CARDS}]")

    whole = await ask(proxy, messages=messages)
    streams = [await ask(proxy, messages=messages, stream=True) for _ in range(2)]

    documents = [whole.json, *(accumulated(events_of(reply.raw)) for reply in streams)]
    assert [document["content"][0]["input"] for document in documents] == [PAID] * 3
    for request in upstream.requests:
        assert request.json["messages"][1]["content"][0]["input"] == PAID


ENDS: dict[str, Json] = {
    "a stop sequence": {"stop_reason": "stop_sequence", "stop_sequence": "END"},
    "a refusal": {
        "stop_reason": "refusal",
        "stop_details": {"type": "refusal", "explanation": f"Ask {EMAIL}.", "category": "cyber"},
    },
    "a container": {"stop_reason": "end_turn", "container": {"id": "c_1", "expires_at": "2026"}},
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_end_of_a_stream_is_one_masked_event(end: Json, guard: Guard) -> None:
    started, *events, ended, stop = message_events(text_events(0, "It is ", "Paris."))
    started["message"]["container"] = {"id": "c_1", "expires_at": "2026"}
    ended |= {"delta": end, "context_management": {"applied_edits": [{"type": "cleared"}]}}
    odd = {"type": "unknown_event", "says": EMAIL, "and": ["that"]}
    script = stream([started, *events, odd, ended, stop], is_done=False)
    proxy = await guard(f"output: [{PII}]", script)

    reply = await ask(proxy, stream=True)

    received = dict(events_of(reply.raw))
    assert [name for name, _ in events_of(reply.raw)].count("message_delta") == 1
    ended = json.loads(json.dumps(ended).replace(EMAIL, MASKED))
    assert received["message_delta"] == {**ended, "usage": {"input_tokens": 5, "output_tokens": 3}}
    assert received["message_start"]["message"]["container"] == started["message"]["container"]
    assert received["unknown_event"] == {**odd, "says": MASKED}
