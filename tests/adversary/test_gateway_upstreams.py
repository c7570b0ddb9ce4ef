"""Searches for settings of gateways that reach an upstream that is one, by any API or form."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import aiohttp
import pytest

from proxy.dialects import DIALECTS
from proxy.policy.compile.targets import find_gateway_reason
from proxy.policy.schema import UpstreamConfig
from proxy.types import Endpoint
from proxy.types.providers import GATEWAY_NAMES
from tests.adversary.gateway_settings import SETTINGS
from tests.conftest import DIGEST, KEY, Proxy, running_proxy
from tests.doubles import (
    ReceivedRequest,
    ScriptedUpstream,
    Wire,
    chat,
    legacy_completion,
    message,
    respond,
    response,
    usage,
)
from tests.test_pipeline import BEARER
from tools.losses import samples

UNKNOWN_SETTINGS = ("a_setting_of_tomorrow", "ASettingOfTomorrow", "Metadata", "extra-body")
NAMES = frozenset({*UNKNOWN_SETTINGS, *(name for names in SETTINGS.values() for name in names)})
MARK = "mark-of-the-setting"
VALUES: tuple[Any, ...] = (MARK, {MARK: MARK}, [MARK])


class Api(NamedTuple):
    """An API of clients, the deployment that serves it, and the API of the upstream."""

    path: str
    deployment: str
    upstream: tuple[str, Endpoint]
    body: dict[str, Any]
    refusal: int = 400


CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
SHORT_CHAT = {**CHAT, "max_tokens": 9}
TO_CHAT: tuple[str, Endpoint] = ("openai", "chat")
TO_MESSAGES: tuple[str, Endpoint] = ("anthropic", "chat")
PICTURE_REQUEST = {"prompt": "A cat", "size": "1024x1024"}
IMAGES = "/v1/images/generations"
APIS: dict[str, Api] = {
    "chat": Api("/v1/chat/completions", "chat", TO_CHAT, CHAT),
    "completions": Api("/v1/completions", "chat", ("openai", "completions"), {"prompt": "Hi"}),
    "responses": Api("/v1/responses", "chat", ("openai", "responses"), {"input": "Hi"}),
    "embeddings": Api("/v1/embeddings", "chat", ("openai", "embeddings"), {"input": "Hi"}),
    "messages": Api("/v1/messages", "claude", TO_MESSAGES, SHORT_CHAT),
    "tokens": Api("/v1/messages/count_tokens", "claude", ("anthropic", "count_tokens"), CHAT),
    "messages-to-chat": Api("/v1/messages", "only-chat", TO_CHAT, SHORT_CHAT),
    "responses-to-chat": Api("/v1/responses", "only-chat", TO_CHAT, {"input": "Hi"}),
    "chat-to-messages": Api("/v1/chat/completions", "claude", TO_MESSAGES, CHAT),
    "scale": Api("/v5/chat/completions", "chat", TO_CHAT, CHAT, refusal=422),
    "fireworks": Api("/inference/v1/chat/completions", "chat", TO_CHAT, CHAT),
    "images": Api(IMAGES, "pictures", ("openai", "passthrough"), PICTURE_REQUEST),
}
ANSWERS: Mapping[str, Any] = {
    "/v1/chat/completions": chat(),
    "/v1/completions": legacy_completion(),
    "/v1/responses": response(),
    "/v1/embeddings": {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
        "model": "m",
        "usage": usage(),
    },
    "/v1/messages": message({"type": "text", "text": "Hi"}),
    "/v1/messages/count_tokens": {"input_tokens": 2},
}


async def respond_by_path(request: ReceivedRequest, wire: Wire) -> None:
    await respond(ANSWERS.get(request.path, {}))(request, wire)


def build_policies(url: str, extra: str) -> str:
    settings = f"breaker: off, {extra}"
    return f"""
upstreams:
  openai: {{dialect: openai, base_url: '{url}/v1', {settings}}}
  claude: {{dialect: anthropic, base_url: '{url}/v1', {settings}}}
keys:
  app:
    sha256: {DIGEST}
    deployments: [chat, only-chat, claude, pictures]
deployments:
  chat: {{targets: [{{upstream: openai, model: m}}]}}
  only-chat: {{targets: [{{upstream: openai, model: m, endpoint: chat}}]}}
  claude: {{targets: [{{upstream: claude, model: m}}]}}
  pictures:
    only_passthrough: true
    targets: [{{upstream: openai, model: m}}]
    passthrough:
      - {{path: {IMAGES}, fields: [prompt, size]}}
      - {{path: /v1/images/edits, fields: [prompt, image]}}
      - /v1/moderations
"""


@asynccontextmanager
async def gateway_proxy(
    folder: Path, upstream: ScriptedUpstream, extra: str = "gateway: true"
) -> AsyncIterator[Proxy]:
    upstream.answer_with(respond_by_path)
    async with running_proxy(folder / "policies", build_policies(upstream.url, extra)) as proxy:
        yield proxy


async def send(
    proxy: Proxy, upstream: ScriptedUpstream, api: Api, fields: dict[str, Any]
) -> tuple[int, str, list[ReceivedRequest]]:
    """Return the status, the warnings and the upstream's requests."""
    upstream.requests.clear()
    body = {"model": api.deployment, **api.body, **fields}
    reply = await proxy.send(api.path, body, {"x-api-key": KEY} if api.refusal == 422 else None)
    return reply.status, reply.headers.get("x-headrace-warning", ""), list(upstream.requests)


@pytest.mark.parametrize("name", APIS)
async def test_undeclared_fields_are_dropped(
    name: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    api = APIS[name]
    dialect, endpoint = api.upstream
    declared = DIALECTS[dialect].fields.get(endpoint, {}).keys() - {"metadata"}
    assert len(NAMES) >= 150
    forwarded, odd = [], []
    async with gateway_proxy(tmp_path, upstream) as proxy:
        for index, setting in enumerate(sorted(NAMES - declared)):
            value = VALUES[index % len(VALUES)]
            status, warnings, requests = await send(proxy, upstream, api, {setting: value})
            if any(
                MARK in request.body.decode() or setting in request.json for request in requests
            ):
                forwarded.append(setting)
            dropped = f"{setting} dropped".lower() in warnings.lower()
            is_refused = (status, requests) == (api.refusal, [])
            if (status, len(requests), dropped) != (200, 1, True) and not is_refused:
                odd.append((setting, status, warnings))

    assert (forwarded, odd) == ([], [])


@pytest.mark.parametrize("name", ["chat", "completions", "responses", "embeddings", "messages"])
async def test_declared_fields_are_forwarded(
    name: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """Each field arrives as at an upstream that is no gateway, except ``metadata``."""
    api = APIS[name]
    dialect, endpoint = api.upstream
    fields = [
        {sample.name: sample.value}
        for sample in samples(DIALECTS[dialect], endpoint)
        if sample.name not in ("metadata", "model")
    ]
    arrived = []
    for extra in ("gateway: true", "gateway: false"):
        async with gateway_proxy(tmp_path, upstream, extra) as proxy:
            arrived.append([await send(proxy, upstream, api, field) for field in fields])

    bodies = [[[item.body for item in requests] for *_, requests in replies] for replies in arrived]
    assert [field for field, a, b in zip(fields, *bodies, strict=True) if a != b] == []
    assert sum(status == 200 for status, *_ in arrived[0]) > len(fields) * 0.7


@pytest.mark.parametrize("name", ["chat", "responses", "embeddings", "messages", "images"])
async def test_accepted_fields_are_forwarded(
    name: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    accepted = ["additional_drop_params", "guardrails", "providerOptions", "metadata"]
    value = {"user_id": "b"}
    extra = f"gateway: true, accepts: [{', '.join(accepted)}]"
    async with gateway_proxy(tmp_path, upstream, extra) as proxy:
        replies = [await send(proxy, upstream, APIS[name], {item: value}) for item in accepted]

    pairs = zip(accepted, replies, strict=True)
    assert [requests[0].json.get(item) for item, (*_, requests) in pairs] == [value] * len(accepted)


async def test_form_has_declared_fields_only(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    headers = BEARER | {"x-headrace-deployment": "pictures"}
    names = [*NAMES, "image", "image[]", "prompt"]
    forwarded = []
    async with gateway_proxy(tmp_path, upstream) as proxy:
        upstream.then(*[respond_by_path] * 6)
        for name, is_file in itertools.product(names, (True, False)):
            form = aiohttp.FormData(quote_fields=False, default_to_multipart=True)
            form.add_field("model", "m")
            form.add_field(name, "x", filename="x" if is_file else None)
            post = proxy.client.post("/v1/images/edits", data=form, headers=headers)
            async with post as reply:
                assert reply.status in (200, 400)
                if reply.status == 200:
                    forwarded.append(name)

    assert sorted({*forwarded}) == ["image", "image[]", "prompt"]
    assert len(upstream.requests) == len(forwarded) == 6


async def test_fieldless_path_sends_model_only(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    moderations = Api("/v1/moderations", "pictures", ("openai", "passthrough"), {"input": "Hi"})
    async with gateway_proxy(tmp_path, upstream) as proxy:
        _, warnings, [request] = await send(proxy, upstream, moderations, {})

    assert request.json == {"model": "m"}
    assert "input dropped" in warnings


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        *(({"provider": name}, True) for name in sorted(GATEWAY_NAMES)),
        ({"base_url": "https://openrouter.ai/api/v1"}, True),
        ({"base_url": "https://ai-gateway.vercel.sh/v1"}, True),
        ({"base_url": "http://litellm:4000"}, True),
        ({"base_url": "https://gateway.ai.cloudflare.com/v1/account/name/openai"}, True),
        ({"base_url": "https://api.portkey.ai/v1"}, True),
        ({"gateway": True}, True),
        ({"gateway": False, "provider": "litellm"}, False),
        ({}, False),
        ({"provider": "vllm"}, False),
    ],
    ids=str,
)
def test_gateways_are_recognized(settings: dict[str, Any], expected: bool) -> None:
    upstream = {"dialect": "openai", "base_url": "https://llm.example/v1", **settings}

    assert bool(find_gateway_reason(UpstreamConfig.model_validate(upstream))) is expected


@pytest.mark.parametrize("name", ["chat", "responses", "embeddings", "messages", "images"])
async def test_gateway_settings_are_dropped(
    name: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    api = APIS[name]
    settings = sorted(setting for setting in NAMES if "_" in setting)
    headers = {f"x-litellm-{setting.replace('_', '-')}": MARK for setting in settings[::8]}
    headers |= {"x-litellm-api-key": MARK, "http-referer": MARK, "x-vercel-ai-gateway-order": MARK}
    query = {setting: MARK for setting in settings[::16]}
    async with gateway_proxy(tmp_path, upstream) as proxy:
        body = {"model": api.deployment, **api.body}
        reply = await proxy.send(f"{api.path}?{urlencode(query)}", body, BEARER | headers)
        assert reply.status == 200, reply.raw

    [request] = upstream.requests
    assert MARK not in f"{request.path} {request.headers}"
