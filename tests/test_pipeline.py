"""Every route, streamed and whole, on every way out: one record, upstream closed, right status."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.conftest import KEY, Proxy
from tests.doubles import (
    PATIENCE_S,
    ScriptedUpstream,
    chat,
    chat_events,
    cut_before_head,
    hang,
    legacy_completion,
    legacy_events,
    respond,
    stream,
)
from tests.for_each import for_each

PROMPT = {"prompt": "The capital of France is"}
MESSAGES = {"messages": [{"role": "user", "content": "Name the capital of France."}]}
INPUT = {"model": "fireworks-model", "input": MESSAGES["messages"]}  # its target has the chat API


@dataclass(frozen=True)
class Route:
    """A route of a dialect, with the credential header and the body of its clients."""

    path: str
    credential: dict[str, str]
    content: dict[str, Any]
    streams: bool = True

    def body(self, *, streamed: bool, **options: Any) -> dict[str, Any]:
        extra = {"stream": True} if streamed else {}
        return {"model": "gpt-4o-mini", **self.content, **extra, **options}

    @property
    def chat(self) -> bool:
        return "messages" in self.content or "input" in self.content

    @property
    def route(self) -> str:
        return self.path.replace(AZURES, "/openai/deployments/{deployment}").partition("?")[0]


BEARER = {"Authorization": f"Bearer {KEY}"}
SCALE = {"x-api-key": KEY}
ENKRYPT = {"apikey": KEY, "x-enkrypt-deployment": "support-chat"}
PORTKEY = {"x-portkey-api-key": KEY, "x-portkey-virtual-key": "support-chat"}
AZURE = {"api-key": KEY}
AZURES = "/openai/deployments/gpt-4o-mini"
VERSION = "?api-version=2024-10-21"

ROUTES = {
    "openai": Route("/v1/completions", BEARER, PROMPT),
    "openai-bare": Route("/completions", BEARER, PROMPT),
    "openai-chat": Route("/v1/chat/completions", BEARER, MESSAGES),
    "openai-bare-chat": Route("/chat/completions", BEARER, MESSAGES),
    "openai-azure-1": Route("/openai/v1/completions", AZURE, PROMPT),
    "openai-azure-1-chat": Route("/openai/v1/chat/completions", AZURE, MESSAGES),
    "openai-azure": Route(f"{AZURES}/completions{VERSION}", AZURE, PROMPT),
    "openai-azure-chat": Route(f"{AZURES}/chat/completions{VERSION}", AZURE, MESSAGES),
    "portkey": Route("/v1/completions", PORTKEY, PROMPT),
    "portkey-chat": Route("/v1/chat/completions", PORTKEY, MESSAGES),
    "fireworks": Route("/inference/v1/completions", BEARER, PROMPT),
    "fireworks-chat": Route("/inference/v1/chat/completions", BEARER, MESSAGES),
    "scale-4": Route("/v4/beta/completions", SCALE, PROMPT),
    "scale-4-chat": Route("/v4/beta/chat/completions", SCALE, MESSAGES),
    "scale-5": Route("/v5/completions", SCALE, PROMPT),
    "scale-5-chat": Route("/v5/chat/completions", SCALE, MESSAGES),
    "multimodel": Route("/v1/completion", BEARER, PROMPT, streams=False),
    "enkrypt": Route("/ai-proxy/completions", ENKRYPT, PROMPT),
    "enkrypt-chat": Route("/ai-proxy/chat/completions", ENKRYPT, MESSAGES),
    "anthropic": Route("/v1/messages", SCALE, {**MESSAGES, "max_tokens": 64}),
    "openai-responses": Route("/v1/responses", BEARER, INPUT),
}

CASES = [
    pytest.param(route, streamed, id=f"{name}-{'streamed' if streamed else 'whole'}")
    for name, route in ROUTES.items()
    for streamed in ((False, True) if route.streams else (False,))
]
every_route = pytest.mark.parametrize(("route", "streamed"), CASES)
all_routes = for_each(("route", "streamed"), CASES)


def successful_response(route: Route, *, streamed: bool, **how: Any) -> Any:
    if streamed:
        events = chat_events if route.chat else legacy_events
        return stream(events(" Par", "is."), **how)
    return respond(chat(" Paris.") if route.chat else legacy_completion())


def _texts_of_blocks(raw: bytes, *, streamed: bool) -> str:
    if not streamed:
        return "".join(str(block.get("text", "")) for block in json.loads(raw)["content"])
    lines = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: {")]
    return "".join(line.get("delta", {}).get("text", "") for line in lines)


def _texts_of_items(raw: bytes, *, streamed: bool) -> str:
    if not streamed:
        items = json.loads(raw)["output"]
        return "".join(str(part.get("text", "")) for item in items for part in item["content"])
    lines = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: {")]
    return "".join(line["delta"] for line in lines if line["type"].endswith("_text.delta"))


def reply_text(route: Route, raw: bytes, *, streamed: bool) -> str:
    if "input" in route.content:
        return _texts_of_items(raw, streamed=streamed)
    if route.path == "/v1/messages":
        return _texts_of_blocks(raw, streamed=streamed)
    if not streamed:
        choice = json.loads(raw)["choices"][0]
        return str(choice["message"]["content"] if route.chat else choice["text"])
    fields = ""
    for line in raw.splitlines():
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:]).get("choices", ()):
                text = choice["delta"].get("content") or "" if route.chat else choice["text"]
                fields += text
    return fields


@all_routes
async def test_success_leaves_one_record_with_tokens_and_cost(
    route: Route, streamed: bool, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(successful_response(route, streamed=streamed))

    response = await proxy.send(route.path, route.body(streamed=streamed), route.credential)

    assert response.status == 200
    assert reply_text(route, response.raw, streamed=streamed) == " Paris."
    [record] = await proxy.sink.wait()
    assert record.outcome == "success"
    assert (record.billing.tokens.input, record.billing.tokens.output) == (5, 3)
    assert record.billing.usage_source == "provider"
    assert record.billing.cost == 5 * 150 + 3 * 600
    assert [(a.status, a.error) for a in record.attempts] == [(200, None)]


@all_routes
async def test_unknown_key_is_refused_before_the_upstream_is_called(
    route: Route, streamed: bool, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    wrong = {k: v.replace(KEY, "hr-wrong") for k, v in route.credential.items()}

    response = await proxy.send(route.path, route.body(streamed=streamed), wrong)

    assert response.status == 401
    [record] = await proxy.sink.wait()
    assert record.outcome == "client_error"
    assert upstream.requests == []


@all_routes
async def test_invalid_field_is_named_in_error_of_dialect(
    route: Route, streamed: bool, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    body = route.body(streamed=streamed, temperature="hot")

    response = await proxy.send(route.path, body, route.credential)

    scale = "x-api-key" in route.credential and route.path != "/v1/messages"
    assert response.status == (422 if scale else 400)
    if route.path == "/v1/messages":  # Anthropic's errors have no field member
        assert response.json["error"]["message"].startswith("temperature: ")
    else:
        assert response.json["error"]["param"] == "temperature"
    if scale:
        assert response.json["detail"][0]["loc"] == ["body", "temperature"]
    [record] = await proxy.sink.wait()
    assert record.outcome == "client_error"
    assert upstream.requests == []


@every_route
async def test_upstream_reset_before_response_head_is_502(
    route: Route, streamed: bool, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(cut_before_head())

    response = await proxy.send(route.path, route.body(streamed=streamed), route.credential)

    assert response.status == 502
    assert response.headers["x-headrace-error"] == "upstream_unavailable"
    assert response.json["error"]["message"]
    [record] = await proxy.sink.wait()
    assert record.outcome == "upstream_error"
    assert record.billing.tokens.total == 0
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("name", "route"), [pytest.param(n, r, id=n) for n, r in ROUTES.items() if r.streams]
)
async def test_cut_stream_ends_in_error_event_without_done(
    name: str, route: Route, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(successful_response(route, streamed=True, cut_after=2))

    reply = await proxy.send(route.path, route.body(streamed=True), route.credential)

    # Clients of OpenAI's and Anthropic's dialects raise on the event, and some lose it when the
    # connection breaks. Other SDKs ignore the event and notice only the broken connection.
    assert reply.is_cut is not name.startswith(("openai", "anthropic"))
    assert reply.status == 200
    events = [json.loads(part.split(b"\n")[0]) for part in reply.raw.split(b"data: ")[1:]]
    assert [event["error"]["type"] for event in events if event.get("error")]
    assert b"[DONE]" not in reply.raw
    [record] = await proxy.sink.wait()
    assert record.outcome == "upstream_error"
    assert record.billing.usage_source == "partial_estimate"
    assert record.billing.tokens.output > 0


async def disconnect_before_response(
    client: ClientSession, route: Route, upstream: ScriptedUpstream, *, streamed: bool
) -> None:
    """Send a request and disconnect once the upstream has it."""
    body = route.body(streamed=streamed)
    asking = asyncio.gather(client.post(route.path, headers=route.credential, json=body))
    async with asyncio.timeout(PATIENCE_S):
        await upstream.arrived.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def disconnect_during_stream(client: ClientSession, route: Route) -> None:
    """Request a stream, read its first bytes and disconnect."""
    response = await client.post(
        route.path, headers=route.credential, json=route.body(streamed=True)
    )
    await response.content.readany()
    response.close()


@every_route
async def test_disconnect_before_response_closes_upstream(
    route: Route, streamed: bool, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(hang())

    await disconnect_before_response(proxy.client, route, upstream, streamed=streamed)

    [record] = await proxy.sink.wait()
    async with asyncio.timeout(PATIENCE_S):
        await upstream.requests[0].closed.wait()
    assert record.outcome == "client_abort"
    assert record.status == 499
    assert (
        record.billing.usage_source == "partial_estimate"
    )  # the prompt: the upstream had the request
    assert record.billing.tokens.prompt_total > 0
    assert (record.billing.tokens.completion_total > 0) is not streamed


@pytest.mark.parametrize("route", [pytest.param(r, id=n) for n, r in ROUTES.items() if r.streams])
async def test_disconnect_during_stream_closes_upstream(
    route: Route, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    gate = asyncio.Event()
    events = chat_events("Paris", "...") if route.chat else legacy_events("Paris", "...")
    upstream.answer_with(stream(events[1:] if route.chat else events, gate=gate))

    await disconnect_during_stream(proxy.client, route)

    [record] = await proxy.sink.wait()
    async with asyncio.timeout(PATIENCE_S):
        await upstream.requests[0].closed.wait()
    assert record.outcome == "client_abort"
    assert record.billing.usage_source == "partial_estimate"
    assert record.billing.tokens.output == 2
    gate.set()
