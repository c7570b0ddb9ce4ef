"""Guards over calls of Responses: texts of requests and responses that other APIs do not have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.dialects.responses.schema import TEXT_BY_KIND
from tests.adversary.api_responses import build_item
from tests.conftest import Proxy, Reply
from tests.dialects.test_responses import BEARER, FUNCTION_CALL, REQUEST, accumulated, streamed
from tests.dialects.vendors.test_anthropic import HEADERS
from tests.doubles import (
    Json,
    ReceivedRequest,
    ScriptedUpstream,
    Wire,
    chat,
    item_events,
    respond,
    response,
    response_events,
    stream,
    text_item,
)
from tests.guards.calls import EMAIL, PII, WORD, cut
from tests.guards.conftest import Guard

MASKED = "[EMAIL]"
SUMMARY: Json = {"type": "summary_text", "text": f"Ask {EMAIL}."}
THOUGHT: Json = {"id": "rs_1", "type": "reasoning", "summary": [SUMMARY]}
THOUGHT |= {"encrypted_content": "c2VhbGVk"}
CALL_OF_EMAIL = {**FUNCTION_CALL, "arguments": json.dumps({"to": EMAIL, "n": 1})}


async def ask(proxy: Proxy, model: str = "support-chat", **options: Any) -> Reply:
    headers = {**BEARER, "x-headrace-deployment": model}
    return await proxy.send("/v1/responses", {**REQUEST, **options}, headers)


@pytest.mark.parametrize("model", ["support-chat", "search-answers"])
async def test_every_text_of_a_request_is_masked(
    model: str, guard: Guard, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(response() if model == "support-chat" else chat()))
    output = [{"type": "input_text", "text": EMAIL}]
    request: Json = {
        "instructions": f"You are {EMAIL}.",
        "tools": [{"type": "function", "name": "f", "description": EMAIL, "parameters": {}}],
        "input": [
            {"role": "user", "content": f"From {EMAIL}."},
            {"role": "user", "content": [{"type": "input_text", "text": f"By {EMAIL}."}]},
            THOUGHT,
            CALL_OF_EMAIL,
            {"type": "function_call_output", "call_id": "call_1", "output": output},
        ],
    }
    proxy = await guard(f"input: [{PII}], opaque: allow")

    reply = await ask(proxy, model, **request)

    [upstream_request] = upstream.requests
    assert reply.status == 200, reply.raw
    assert EMAIL.encode() not in upstream_request.body
    if model == "support-chat":
        assert upstream_request.json["input"][2]["encrypted_content"] == "c2VhbGVk"
        assert json.loads(upstream_request.json["input"][3]["arguments"]) == {"to": MASKED, "n": 1}


async def test_echoed_instructions_are_not_inspected(guard: Guard) -> None:
    prompt = f"You are a hippo. Hide {EMAIL}."
    items = THOUGHT, text_item(f"Write to {EMAIL}."), CALL_OF_EMAIL
    document = response(*items, instructions=prompt)
    proxy = await guard(f"output: [{PII}, {WORD}]", respond(document))

    reply = await ask(proxy, instructions=prompt)

    output = reply.json["output"]
    assert (reply.status, reply.json["instructions"]) == (200, prompt)
    assert EMAIL not in json.dumps(output)
    assert [item["id"] for item in output] == ["rs_1", "msg_1", "fc_1"]
    assert json.loads(output[2]["arguments"]) == {"to": MASKED, "n": 1}
    assert reply.json["usage"] == document["usage"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_echoed_request_has_the_values_of_its_client(
    streamed: bool, guard: Guard, upstream: ScriptedUpstream
) -> None:
    async def echo(request: ReceivedRequest, wire: Wire) -> None:
        body = request.json
        item = text_item(body["input"])
        document = response(item, instructions=body["instructions"])
        events = item_events(0, item, *cut(body["input"], 5))
        script = stream(response_events(events, document=document), is_done=False)
        await (script if streamed else respond(document))(request, wire)

    fields = {"instructions": f"Hide {EMAIL}.", "input": f"Write to {EMAIL}."}
    proxy = await guard(f"input: [{PII.replace('}', ', restore: true}')}]", echo)

    reply = await ask(proxy, stream=streamed, **fields)

    [upstream_request] = upstream.requests
    assert (reply.status, EMAIL.encode() in upstream_request.body) == (200, False)
    document = accumulated(reply.raw) if streamed else reply.json
    assert b"EMAIL" not in reply.raw
    assert document["instructions"] == fields["instructions"]
    assert document["output"][0]["content"][0]["text"] == fields["input"]


CARD = "4111 1111 1111 1111"
USER: Json = {"role": "user", "content": "Pay."}
PAYS: Json = {**FUNCTION_CALL, "arguments": json.dumps({"card": CARD, "n": 1})}
OTHER: Json = {**FUNCTION_CALL, "id": "fc_2", "call_id": "call_2"}
MODEL = {"model": "smol-responses"}
CLIENTS: dict[str, tuple[str, Json, dict[str, str]]] = {
    "responses": ("/v1/responses", REQUEST, BEARER),
    "chat": ("/v1/chat/completions", {**MODEL, "messages": [USER]}, BEARER),
    "messages": ("/v1/messages", {**MODEL, "messages": [USER], "max_tokens": 9}, HEADERS),
}


def interleaved_calls() -> list[Json]:
    """Return the events of two tool calls: one begins in the middle of a value of the other."""
    arguments = PAYS["arguments"]
    started, *deltas, result, ended = item_events(0, PAYS, arguments[:20], arguments[20:])
    other = item_events(1, OTHER, '{"place":', ' "Paris"}')
    events = [started, deltas[0], *other[:2], deltas[1], *other[2:], result, ended]
    return response_events(events, document=response(PAYS, OTHER))


@pytest.mark.parametrize("is_complete", [True, False], ids=["complete", "cut short"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_interleaved_calls_hide_no_value(
    client: str, is_complete: bool, guard: Guard, upstream: ScriptedUpstream
) -> None:
    events = interleaved_calls()
    upstream.answer_with(stream(events if is_complete else events[:6], is_done=False))
    path, body, headers = CLIENTS[client]
    headers = {**headers, "x-headrace-deployment": "responses-only"}
    proxy = await guard("output: [{guard: pii, entities: [card], action: mask}]")

    reply = await proxy.send(path, {**body, "stream": True}, headers)

    [record] = await proxy.sink.wait()
    text = reply.raw.decode(errors="replace")
    assert (reply.status, "1111 1111" in text) == (200, False)
    assert ("[CARD]" in text and "Paris" in text) or not is_complete
    assert record.billing.tokens.total == 8 or not is_complete


@pytest.mark.parametrize("size", [1, 60_000])
@pytest.mark.parametrize("kind", TEXT_BY_KIND)
@pytest.mark.parametrize("at_end", ["item", "response"])
async def test_text_without_deltas_is_masked_in_place(
    at_end: str, kind: str, size: int, guard: Guard
) -> None:
    """An item that only its last event, or only the end of the response, has as a whole."""
    text = f"See the hippo, and the hippo. {'a river ' * (size // 8)}"
    said = json.dumps({"note": text}) if kind == "arguments" else text
    items = [build_item(0, "text", [text]), build_item(1, kind, [said])]
    ends = [
        {"type": "response.output_item.done", "output_index": index, "item": document}
        for index, document in enumerate(items if at_end == "item" else items[:1])
    ]
    events = response_events(ends, document=response(*items))
    mask = WORD.replace("}", ", action: mask}")
    proxy = await guard(f"output: [{mask}]", stream(events, is_done=False))

    reply = await ask(proxy, stream=True)

    expected = json.loads(json.dumps(events).replace("hippo", "[WORD]"))
    for event, expected_event in zip(streamed(reply.raw), expected, strict=True):
        assert event["type"] == expected_event["type"]
        assert event.get("item") == expected_event.get("item")
        responses = [item.get("response", {}) for item in (event, expected_event)]
        assert responses[0].get("output") == responses[1].get("output")
