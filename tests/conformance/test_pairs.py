"""Checks docs/dialects.md for each of the 49 pairs of client and upstream dialects."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from proxy.dialects import DIALECTS
from proxy.dialects.responses.schema import CONVERSATION, PREVIOUS_RESPONSE_ID
from proxy.dialects.responses.sealing import CONVERSATIONS, IdSealer
from proxy.types import Endpoint, Target
from tests.conformance.checking import BEARER
from tests.conformance.test_vendors import OWN_RESPONSE
from tests.conftest import KEY, Proxy, policies_for, running_proxy
from tests.dialects.test_responses import accumulated as accumulated_response
from tests.dialects.vendors.test_anthropic import accumulated, events_of
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    chat,
    chat_events,
    item_events,
    legacy_completion,
    legacy_events,
    message,
    message_events,
    respond,
    response,
    response_events,
    stream,
    text_events,
    text_item,
    usage,
)
from tests.for_each import for_each
from tools.losses import ReceivedRequest, Sample, classify, samples, targets, translate

CREDENTIALS: Mapping[str, dict[str, str]] = {
    "openai": BEARER,
    "portkey": {"x-portkey-api-key": KEY},
    "fireworks": BEARER,
    "scale": {"x-api-key": KEY},
    "multimodel": BEARER,
    "enkrypt": {"apikey": KEY},
    "anthropic": {"x-api-key": KEY},
}
SECRETS = {"openai": "authorization", "fireworks": "authorization", "multimodel": "authorization"}
SECRETS |= {"portkey": "x-portkey-api-key", "scale": "x-api-key", "enkrypt": "apikey"}
SECRETS |= {"anthropic": "x-api-key"}
DEPLOYMENTS = {name: f"via-{name}" for name in DIALECTS} | {
    "openai": "support-chat",
    "a chat-only target": "search-answers",
    "a legacy-only target": "legacy-only",
    "a Responses-only target": "responses-only",
}
STORED_AT = {name: f"{name}/{name}-model" for name in DIALECTS} | {
    "openai": "openai/gpt-4o-mini",
    "a chat-only target": "openai/smol",
    "a legacy-only target": "openai/smol-legacy",
    "a Responses-only target": "openai/smol-responses",
}
"""The targets of these deployments, where a client may have an id from."""
SECRET = "a secret of replicas"
PROMPT: Mapping[Endpoint, Json] = {
    "completions": {"model": "m", "prompt": "p"},
    "chat": {"model": "m", "messages": [{"role": "user", "content": "p"}]},
    "responses": {"model": "m", "input": "p"},
}
ENDPOINTS: tuple[Endpoint, ...] = ("completions", "chat", "responses")
RESPONDING = frozenset({"openai", "portkey"})


@pytest.fixture
async def proxy(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    folder = tmp_path / "policies"
    async with running_proxy(folder, policies_for(upstream.url), id_secrets=(SECRET,)) as running:
        yield running


@dataclass(frozen=True)
class Way:
    """A client of a dialect at an endpoint, before an upstream."""

    client: str
    endpoint: Endpoint
    upstream: str

    @property
    def path(self) -> str:
        routes = DIALECTS[self.client].client.routes
        return next(path for (_, path), kind in routes.items() if kind == self.endpoint)

    @property
    def headers(self) -> dict[str, str]:
        return {**CREDENTIALS[self.client], "x-headrace-deployment": DEPLOYMENTS[self.upstream]}

    def sealed(self, body: Json) -> Json:
        """Return a body with its id sealed for this target."""
        ids = IdSealer.from_secrets([SECRET])
        if CONVERSATION in body:
            place = DEPLOYMENTS[self.upstream], STORED_AT[self.upstream].partition("/")[0]
            own_value = body[CONVERSATION]
            sealed = ids.seal("support-widget", *place, own_value, CONVERSATIONS)
            return {**body, CONVERSATION: sealed}
        if PREVIOUS_RESPONSE_ID not in body:
            return body
        place = DEPLOYMENTS[self.upstream], STORED_AT[self.upstream]
        own_value = body[PREVIOUS_RESPONSE_ID]
        return {**body, PREVIOUS_RESPONSE_ID: ids.seal("support-widget", *place, own_value)}

    @property
    def upstream_chats(self) -> bool:
        if self.upstream == "anthropic":
            return True
        return self.endpoint != "completions" and self.upstream != "multimodel"

    @property
    def upstream_responds(self) -> bool:
        if self.upstream == "a Responses-only target":
            return True
        return self.endpoint == "responses" and self.upstream in RESPONDING

    @property
    def prompt(self) -> Json:
        options = {"max_tokens": 64} if self.client == "anthropic" else {}
        return {**PROMPT[self.endpoint], **options}

    def script(self, *, streamed: bool) -> Script:
        if self.upstream == "multimodel":
            return respond(OWN_RESPONSE)
        if self.upstream_responds:
            item = text_item(" Paris.")
            spoken = response_events(item_events(0, item, " Par", "is."))
            return stream(spoken, is_done=False) if streamed else respond(response())
        if self.upstream == "anthropic":
            spoken = message_events(text_events(0, " Par", "is."))
            return stream(spoken, is_done=False) if streamed else respond(message())
        if streamed:
            events = (chat_events if self.upstream_chats else legacy_events)(" Par", "is.")
            return stream(events, is_done=self.upstream != "scale")
        return respond(chat(" Paris.") if self.upstream_chats else legacy_completion())


PAIRS = [(client, upstream) for client in DIALECTS for upstream in DIALECTS]
WAYS = [
    Way(client, endpoint, upstream)
    for client, upstream in PAIRS
    for endpoint in ENDPOINTS
    if endpoint in DIALECTS[client].fields
]
each_pair = pytest.mark.parametrize(("client_dialect", "upstream_dialect"), PAIRS)


def ways(client: str, upstream: str) -> list[Way]:
    return [way for way in WAYS if (way.client, way.upstream) == (client, upstream)]


@each_pair
async def test_whole_and_streamed_responses_are_translated(
    client_dialect: str, upstream_dialect: str, client: ClientSession, upstream: ScriptedUpstream
) -> None:
    for way in ways(client_dialect, upstream_dialect):
        for streamed in (False, True) if client_dialect != "multimodel" else (False,):
            upstream.requests.clear()
            upstream.answer_with(way.script(streamed=streamed))
            options = {"stream_options": {"include_usage": True}}
            extra = {"stream": True, **options} if streamed else {}
            if streamed and (client_dialect == "anthropic" or way.endpoint == "responses"):
                del extra["stream_options"]
            body = {**way.prompt, **extra}
            async with client.post(way.path, headers=way.headers, json=body) as answered:
                raw = await answered.text()

            assert answered.status == 200, raw
            _check_answer(way, raw, streamed=streamed)
            [request] = upstream.requests
            assert request.path.endswith(_path_there(way))
            assert "sk-upstream-secret" in request.headers[SECRETS[upstream_dialect]]
            assert KEY not in str(request.headers)


def _path_there(way: Way) -> str:
    server = DIALECTS[way.upstream].server
    if way.upstream_responds:
        return server.paths["responses"]
    return server.paths["chat" if way.upstream_chats else "completions"]


def _check_answer(way: Way, raw: str, *, streamed: bool) -> None:
    if way.client == "anthropic":
        answered = accumulated(events_of(raw.encode())) if streamed else json.loads(raw)
        assert answered["content"] == [{"type": "text", "text": " Paris."}]
        assert answered["stop_reason"] == "end_turn"
        assert answered["usage"] == {"input_tokens": 5, "output_tokens": 3}
        return
    if way.endpoint == "responses":
        answered = accumulated_response(raw.encode()) if streamed else json.loads(raw)
        assert answered["output"][0]["content"][0]["text"] == " Paris."
        assert answered["status"] == "completed"
        assert (answered["usage"]["input_tokens"], answered["usage"]["output_tokens"]) == (5, 3)
        return
    documents = _documents(raw) if streamed else [json.loads(raw)]
    assert ("[DONE]" in raw) is (streamed and way.client != "scale")
    choices = [choice for document in documents for choice in document["choices"]]
    assert "".join(_text(choice) for choice in choices) == " Paris."
    assert [choice["finish_reason"] for choice in choices if choice.get("finish_reason")] == [
        _finish(way)
    ]
    counts = [document["usage"] for document in documents if document.get("usage")]
    assert [{name: count[name] for name in usage()} for count in counts] == [usage()]
    kinds = {document["object"] for document in documents}
    ending = ".chunk" if streamed else ""
    assert kinds == (
        {f"chat.completion{ending}"} if way.endpoint == "chat" else {"text_completion"}
    )


def _finish(way: Way) -> str:
    return "stop token reached" if way.client == way.upstream == "multimodel" else "stop"


def _documents(raw: str) -> list[Json]:
    parts = [part.removeprefix("data: ") for part in raw.split("\n\n") if part]
    return [json.loads(part) for part in parts if part != "[DONE]"]


def _text(choice: Json) -> str:
    if "text" in choice:
        return str(choice["text"])
    fields = choice.get("delta") or choice.get("message") or {}
    return str(fields.get("content") or "")


TABLES = [
    pytest.param(client, endpoint, id=f"{client}-{endpoint}")
    for client, dialect in DIALECTS.items()
    for endpoint in ENDPOINTS
    if endpoint in dialect.fields
]


@for_each(("client_dialect", "endpoint"), TABLES)
async def test_fields_are_translated_as_documented(
    client_dialect: str, endpoint: Endpoint, client: ClientSession, upstream: ScriptedUpstream
) -> None:
    event, known_values = {}, {}
    for to, target in targets(endpoint).items():
        way = Way(client_dialect, endpoint, to)
        baselines: dict[str, ReceivedRequest | None] = {}
        for sample in samples(DIALECTS[client_dialect], endpoint):
            if sample.name == "model":
                continue  # decided by the policy
            extra = json.dumps(sample.body_without_field)
            if extra not in baselines:
                baselines[extra] = await _arrived(way, client, upstream, sample.body_without_field)
            arrived = await _arrived(way, client, upstream, sample.body)
            event[to, sample.title] = translate(sample, _at_another_address(target))
            known_values[to, sample.title] = _fate(sample, target, arrived, baselines[extra])

    assert known_values == event


def _at_another_address(target: Target) -> Target:
    """Return a target with another address than OpenAI's, like the test's upstream."""
    is_openai = target.upstream.dialect == "openai"
    return replace(target, upstream=replace(target.upstream, skips_range_checks=is_openai))


def _fate(
    sample: Sample,
    target: Target,
    arrived: ReceivedRequest | None,
    excluded: ReceivedRequest | None,
) -> str:
    assert excluded is not None
    return "refused" if arrived is None else classify(sample, target, arrived, excluded)


async def _arrived(
    way: Way, client: ClientSession, upstream: ScriptedUpstream, body: Any
) -> ReceivedRequest | None:
    """Return the upstream's body and the client's warnings, or None if refused."""
    upstream.requests.clear()
    upstream.answer_with(way.script(streamed=False))
    sent_body = way.sealed(body)
    async with client.post(way.path, headers=way.headers, json=sent_body) as answered:
        await answered.read()
        warnings = answered.headers.get("x-headrace-warning", "")
    if answered.status in (400, 404, 422):
        assert upstream.requests == []
        return None
    assert answered.status == 200
    [request] = upstream.requests
    names = [name.removesuffix(" dropped") for name in warnings.split("; ") if name]
    return ReceivedRequest(request.json, tuple(names))
