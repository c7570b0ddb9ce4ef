"""Upstreams that are gateways get declared and accepted fields only."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp import ClientSession

from proxy.dialects import DIALECTS
from proxy.policy.compile.targets import gateway_sign
from proxy.policy.schema import UpstreamConfig
from proxy.types import Endpoint
from proxy.types.providers import GATEWAYS
from tests.adversary.gateway_settings import SETTINGS
from tests.conftest import DIGEST, KEY, running_proxy
from tests.doubles import (
    Asked,
    ScriptedUpstream,
    Wire,
    answer,
    chat,
    legacy,
    message,
    response,
    usage,
)
from tests.test_pipeline import BEARER
from tools.losses import samples

UNHEARD_OF = ("a_setting_of_tomorrow", "ASettingOfTomorrow", "Metadata", "extra-body")
NAMES = frozenset({*UNHEARD_OF, *(name for names in SETTINGS.values() for name in names)})
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
PICTURE = {"prompt": "A cat", "size": "1024x1024"}
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
    "images": Api(IMAGES, "pictures", ("openai", "passthrough"), PICTURE),
}
ANSWERS: Mapping[str, Any] = {
    "/v1/chat/completions": chat(),
    "/v1/completions": legacy(),
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


async def by_path(request: Asked, wire: Wire) -> None:
    await answer(ANSWERS.get(request.path, {}))(request, wire)


def policies(url: str, extra: str) -> str:
    remainder = f"breaker: off, {extra}"
    return f"""
upstreams:
  openai: {{dialect: openai, base_url: '{url}/v1', {remainder}}}
  claude: {{dialect: anthropic, base_url: '{url}/v1', {remainder}}}
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
async def running(
    folder: Path, upstream: ScriptedUpstream, extra: str = "gateway: true"
) -> AsyncIterator[ClientSession]:
    upstream.answer_with(by_path)
    async with (
        running_proxy(folder / "policies", policies(upstream.url, extra)) as proxy,
        ClientSession(base_url=proxy.url, headers=BEARER) as client,
    ):
        yield client


class Reply(NamedTuple):
    status: int
    warnings: str
    requests: list[Asked]


async def send(
    client: ClientSession, upstream: ScriptedUpstream, api: Api, fields: dict[str, Any]
) -> Reply:
    upstream.requests.clear()
    body = {"model": api.deployment, **api.body, **fields}
    headers = {"x-api-key": KEY} if api.refusal == 422 else {}
    async with client.post(api.path, json=body, headers=headers) as reply:
        await reply.read()
        warnings = reply.headers.get("x-headrace-warning", "")
        return Reply(reply.status, warnings, list(upstream.requests))


def test_enough_settings_are_known() -> None:
    assert len(NAMES) >= 150


@pytest.mark.parametrize("name", APIS)
async def test_drops_undeclared(name: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    api = APIS[name]
    dialect, endpoint = api.upstream
    declared = DIALECTS[dialect].fields.get(endpoint, {}).keys() - {"metadata"}
    passed_value, odd = [], []
    async with running(tmp_path, upstream) as client:
        for index, setting in enumerate(sorted(NAMES - declared)):
            value = VALUES[index % len(VALUES)]
            status, warnings, askeds = await send(client, upstream, api, {setting: value})
            if any(MARK in request.body.decode() or setting in request.json for request in askeds):
                passed_value.append(setting)
            dropped = f"{setting} dropped".lower() in warnings.lower()
            is_refused = (status, askeds) == (api.refusal, [])
            if (status, len(askeds), dropped) != (200, 1, True) and not is_refused:
                odd.append((setting, status, warnings))

    assert (passed_value, odd) == ([], [])


@pytest.mark.parametrize("name", ["chat", "completions", "responses", "embeddings", "messages"])
async def test_forwards_declared(name: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
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
        async with running(tmp_path, upstream, extra) as client:
            arrived.append([await send(client, upstream, api, field) for field in fields])

    pairs = list(zip(fields, *arrived, strict=True))
    assert [field for field, *replies in pairs if differ(*replies)] == []
    assert sum(replies[0].status == 200 for _, *replies in pairs) > len(fields) * 0.7


def differ(reply: Reply, other_reply: Reply) -> bool:
    return [request.body for request in reply.requests] != [
        request.body for request in other_reply.requests
    ]


@pytest.mark.parametrize("name", ["chat", "responses", "embeddings", "messages", "images"])
async def test_forwards_accepted(name: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    accepted = ["additional_drop_params", "guardrails", "providerOptions", "metadata"]
    value = {"user_id": "b"}
    extra = f"gateway: true, accepts: [{', '.join(accepted)}]"
    async with running(tmp_path, upstream, extra) as client:
        replies = [await send(client, upstream, APIS[name], {item: value}) for item in accepted]

    sent_items = [
        reply.requests[0].json.get(item) for item, reply in zip(accepted, replies, strict=True)
    ]
    assert sent_items == [value] * len(accepted)


async def test_form_has_declared_fields_only(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    headers = {"x-headrace-deployment": "pictures"}
    names = [*NAMES, "image", "image[]", "prompt"]
    passed_value = []
    async with running(tmp_path, upstream) as client:
        upstream.then(*[by_path] * 6)
        for name, is_file in itertools.product(names, (True, False)):
            form = aiohttp.FormData(quote_fields=False, default_to_multipart=True)
            form.add_field("model", "m")
            form.add_field(name, "x", filename="x" if is_file else None)
            async with client.post("/v1/images/edits", data=form, headers=headers) as reply:
                assert reply.status in (200, 400)
                if reply.status == 200:
                    passed_value.append(name)

    assert sorted({*passed_value}) == ["image", "image[]", "prompt"]
    assert len(upstream.requests) == len(passed_value) == 6


async def test_fieldless_path_sends_model_only(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    moderations = Api("/v1/moderations", "pictures", ("openai", "passthrough"), {"input": "Hi"})
    async with running(tmp_path, upstream) as client:
        _, warnings, [request] = await send(client, upstream, moderations, {})

    assert request.json == {"model": "m"}
    assert "input dropped" in warnings


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        *(({"provider": name}, True) for name in sorted(GATEWAYS)),
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

    assert bool(gateway_sign(UpstreamConfig.model_validate(upstream))) is expected


@pytest.mark.parametrize("name", ["chat", "responses", "embeddings", "messages", "images"])
async def test_drops_settings(name: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    api = APIS[name]
    settings = sorted(setting for setting in NAMES if "_" in setting)
    headers = {f"x-litellm-{setting.replace('_', '-')}": MARK for setting in settings[::8]}
    headers |= {"x-litellm-api-key": MARK, "http-referer": MARK, "x-vercel-ai-gateway-order": MARK}
    query = {setting: MARK for setting in settings[::16]}
    async with running(tmp_path, upstream) as client:
        body = {"model": api.deployment, **api.body}
        async with client.post(api.path, json=body, headers=headers, params=query) as reply:
            assert reply.status == 200, await reply.text()

    [request] = upstream.requests
    assert MARK not in f"{request.path} {request.headers}"
