"""Stored responses with guards, caches, retries, replicas, other keys and forged ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.conftest import KEY, Proxy, running_proxy
from tests.dialects.vendors.test_anthropic import events_of
from tests.doubles import (
    Json,
    ScriptedUpstream,
    chat,
    item_events,
    respond,
    response,
    response_events,
    stream,
    text_item,
)

SECRET, OLD = "a secret of replicas", "the secret of before"
OTHER_KEY = "hr-other-key"
TURNED = "hr-key-after-rotation"


def policy(upstream: str, extra: str = "", targets: str = "") -> str:
    """Policies with two keys and all reasons for which a call may change its target."""
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in (KEY, OTHER_KEY, TURNED)}
    price = "price: {input: 1, output: 2}"
    first_text = targets or f"{{upstream: openai, model: gpt-4o-mini, {price}}}"
    return f"""
upstreams:
  openai: {{dialect: openai, base_url: '{upstream}/v1', api_key: '${{UPSTREAM_KEY}}'}}
  spare: {{dialect: openai, base_url: '{upstream}/spare/v1', api_key: '${{UPSTREAM_KEY}}'}}
keys:
  support-widget:
    sha256: [{digests[KEY]}, {digests[TURNED]}]
    deployments: [support-chat, resilient, kept, guarded, chatting]
  search-box: {{sha256: {digests[OTHER_KEY]}, deployments: [support-chat]}}
deployments:
  support-chat:
    targets: [{first_text}]
    fallback: [{{upstream: spare, model: other, {price}}}]
  resilient:
    targets: [{{upstream: openai, model: primary, {price}}}]
    fallback: [{{upstream: spare, model: backup, {price}}}]
    retry: {{times: 1, on: [503], wait: 1ms}}
    hedge: {{after: 1ms}}
  kept:
    targets: [{{upstream: openai, model: keeper, {price}}}]
    cache: {{ttl: 1m}}
  guarded:
    targets: [{{upstream: openai, model: watched, {price}}}]
    policy: guarding
  chatting:
    targets: [{{upstream: openai, model: chatter, endpoint: chat, {price}}}]
policies:
  guarding:
    input: [{{guard: keywords, words: [forbidden], action: block}}]
    output: [{{guard: pii, action: mask}}]
{extra}"""


@dataclass
class StatefulProxy:
    proxy: Proxy
    session: ClientSession
    upstream: ScriptedUpstream

    async def ask(self, key: str = KEY, **body: Any) -> tuple[int, Json]:
        headers = {"authorization": f"Bearer {key}"}
        request = {"model": "gpt-4o-mini", "input": "Go on.", **body}
        async with self.session.post("/v1/responses", headers=headers, json=request) as reply:
            raw = await reply.read()
        if body.get("stream") and reply.status == 200:
            return reply.status, {"events": [data for _, data in events_of(raw)]}
        return reply.status, json.loads(raw)

    async def send(
        self, path: str, method: str = "GET", body: Any = None, key: str = KEY, **headers: str
    ) -> tuple[int, Json, dict[str, str]]:
        """Return the status, the document and the headers of a response."""
        headers = {"authorization": f"Bearer {key}", **headers}
        async with self.session.request(method, path, headers=headers, json=body) as reply:
            raw = await reply.read()
        lower = {name.lower(): value for name, value in reply.headers.items()}
        return reply.status, json.loads(raw) if raw else {}, lower

    async def explanation(self, call_id: str) -> str:
        async with self.session.get(f"{self.proxy.admin}/explain/{call_id}") as reply:
            assert reply.status == 200
            return await reply.text()

    async def id_of(self, **body: Any) -> str:
        status, document = await self.ask(**body)
        assert status == 200, document
        return str(document["id"])

    @property
    def last(self) -> Any:
        return self.upstream.requests[-1]


@asynccontextmanager
async def stateful_proxy(
    folder: Path, upstream: ScriptedUpstream, policies: str | None = None, **settings: Any
) -> AsyncIterator[StatefulProxy]:
    settings = {"id_secrets": (SECRET,), **settings}
    async with running_proxy(folder, policies or policy(upstream.url), **settings) as proxy:
        yield StatefulProxy(proxy, proxy.client, upstream)


@pytest.fixture
async def gateway(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[StatefulProxy]:
    upstream.answer_with(respond(response()))
    async with stateful_proxy(tmp_path / "policies", upstream) as running:
        yield running


def is_unknown(status: int, body: Json, text: str) -> bool:
    words = f"Previous response with id '{text[:200]}' not found."
    if text and not text.startswith("resp_"):
        words += " Responses whose id does not begin with resp_ are not stored. Send the whole "
        words += "conversation in input instead."
    error = body["error"]
    return (status, error["message"], error["param"]) == (404, words, "previous_response_id")


def without_ids(event: Json) -> Json:
    bare = {name: value for name, value in event.items() if name != "item_id"}
    return bare | ({"item": {**event["item"], "id": ""}} if "item" in event else {})


async def test_each_event_has_only_the_sealed_id(gateway: StatefulProxy) -> None:
    document = response(text_item("Paris."), previous_response_id="resp_1")
    events = response_events(item_events(0, text_item("Paris."), "Pa", "ris."), document=document)
    first_text = await gateway.id_of()
    gateway.upstream.answer_with(stream(events, is_done=False))

    status, streamed = await gateway.ask(stream=True, previous_response_id=first_text)

    assert status == 200
    observed = streamed["events"]
    assert [item["type"] for item in observed] == [item["type"] for item in events]
    event = [item["response"] for item in observed if "response" in item]
    assert {item["id"] for item in event} == {first_text}
    assert {item["previous_response_id"] for item in event} == {first_text}
    assert "resp_1" not in json.dumps(observed).replace(first_text, "")
    for streamed_event, sent_body in zip(observed, events, strict=True):
        if "response" not in sent_body:
            assert without_ids(streamed_event) == without_ids(sent_body)
    assert "msg_1" not in json.dumps(observed)


@pytest.mark.parametrize("stream_it", [False, True])
async def test_previous_response_is_part_of_the_cache_key(
    stream_it: bool, gateway: StatefulProxy
) -> None:
    ids = []
    for name in ("resp_1", "resp_2"):
        gateway.upstream.answer_with(respond(response(id=name)))
        ids.append(await gateway.id_of(model="kept", input=name))
    document = response(text_item("x"), id="resp_3")
    events = response_events(item_events(0, text_item("x"), "x"), document=document)
    gateway.upstream.answer_with(stream(events, is_done=False) if stream_it else respond(document))

    requests: list[tuple[int, Json]] = []
    for previous in (ids[0], ids[0], ids[1], None):
        options = {"previous_response_id": previous} if previous else {}
        requests.append(await gateway.ask(model="kept", stream=stream_it, **options))

    sent_ids = [
        request.json.get("previous_response_id") for request in gateway.upstream.requests[2:]
    ]
    assert sent_ids == ["resp_1", "resp_2", None]
    bodies = [body["events"][-1]["response"] if stream_it else body for _, body in requests]
    first_body, repeated = bodies[:2]
    assert (first_body["id"], first_body["output"]) == (repeated["id"], repeated["output"])
    assert repeated["previous_response_id"] == ids[0]
    records = await gateway.proxy.sink.wait(6)
    assert [record.cache for record in records[2:]] == ["miss", "hit", "miss", "miss"]


async def test_chat_upstream_stores_no_response(gateway: StatefulProxy) -> None:
    assert (await gateway.ask(previous_response_id=None))[0] == 200
    assert gateway.last.json.get("previous_response_id") is None
    gateway.upstream.answer_with(respond(chat(" Paris.")))
    first_text = await gateway.id_of(model="chatting")

    status, body = await gateway.ask(model="chatting", previous_response_id=first_text)

    assert is_unknown(status, body, first_text)


@pytest.mark.parametrize(
    "now",
    ["openai, model: another", "spare, model: gpt-4o-mini",
        "openai, model: gpt-4o-mini, endpoint: chat"],
)  # fmt: skip
async def test_response_of_a_removed_target_is_not_found(
    now: str, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.answer_with(respond(response()))
    async with stateful_proxy(tmp_path / "one", upstream) as house_before:
        sealed = await house_before.id_of(model="support-chat")
    request_count = len(upstream.requests)
    policies = policy(upstream.url, targets=f"{{upstream: {now}}}")
    async with stateful_proxy(tmp_path / "one", upstream, policies) as house_after:
        status, body = await house_after.ask(model="support-chat", previous_response_id=sealed)

    assert is_unknown(status, body, sealed)
    assert len(upstream.requests) == request_count


async def test_guard_route_needs_movable_state(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    route = "{guard: keywords, words: [private], action: route, to: [{upstream: spare, model: m}]}"
    block = "{guard: keywords, words: [forbidden], action: block}"
    policies = policy(upstream.url).replace(block, route)
    upstream.answer_with(respond(response()))
    async with stateful_proxy(tmp_path / "one", upstream, policies) as running:
        first_text = await running.id_of(model="guarded")
        in_thread = await running.id_of(model="guarded", input="private")
        request_count = len(upstream.requests)
        options = {"model": "guarded", "previous_response_id": first_text}
        status, body = await running.ask(input="private", **options)
        assert (status, body["error"]["code"]) == (400, "guardrail_blocked")
        assert len(upstream.requests) == request_count
        status, body = await running.ask(model="guarded", previous_response_id=in_thread)
        assert is_unknown(status, body, in_thread)
