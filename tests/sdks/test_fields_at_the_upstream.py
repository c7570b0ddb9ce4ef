"""No field that refers outside the request reaches the upstream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import ClientSession, web
from pytest_aiohttp.plugin import AiohttpRawServer

from tests.conftest import KEY, running_proxy
from tests.doubles import Json
from tests.passthrough.world import BEARER, digest
from tests.sdks.request_types import CANARY
from tests.sdks.test_request_types import HARMLESS, REFERS, is_free, read_fields

LISTED, BATCHES = "/v1/anything", "/v1/messages/batches"
MODELS = {"messages": "claude", "responses": "gpt-r", "chats": "gpt-c"}
OF_THE_PROVIDER = ("container.skills[].skill_id", ".content.content[].file_id")
"""Ids of what everybody may use: skills of Anthropic, and outputs that a message quotes."""


def policies(url: str) -> str:
    price = "price: {input: 1, output: 2}"
    return f"""
upstreams:
  openai: {{dialect: openai, base_url: '{url}/v1', breaker: off}}
  anthropic: {{dialect: anthropic, base_url: '{url}', breaker: off}}
keys:
  app: {{sha256: {digest(KEY)}, deployments: [chats, responses, messages]}}
deployments:
  chats: {{targets: [{{upstream: openai, model: gpt-c, endpoint: chat, {price}}}]}}
  responses:
    targets: [{{upstream: openai, model: gpt-r, {price}}}]
    passthrough: [{LISTED}]
  messages:
    targets: [{{upstream: anthropic, model: claude, {price}}}]
    passthrough: [{BATCHES}]
"""


def ways(url: str, body: Json) -> Iterator[tuple[str, str, Any]]:
    """Yield the deployment, the path and the body of each request that has a field."""
    served = {"/v1/messages": "messages", "/v1/chat/completions": "chats"}.get(url, "responses")
    if "conversations" not in url:
        body = {**body, "model": MODELS[served]}
    yield served, url, {"json": body}
    if served == "messages":
        yield served, BATCHES, {"json": {"requests": [{"custom_id": "a", "params": body}]}}
    body = {**body, "model": MODELS["responses"]}
    yield "responses", LISTED, {"json": body}
    form = aiohttp.FormData(default_to_multipart=True, quote_fields=False)
    for name, text in form_fields(body):
        form.add_field(name, text)
    yield "responses", LISTED, {"data": form}


def form_fields(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the fields of a form with a body, such as ``tools[0][type]``."""
    if not isinstance(value, dict | list):
        yield name, value if isinstance(value, str) else json.dumps(value)
        return
    for step, member in value.items() if isinstance(value, dict) else enumerate(value):
        yield from form_fields(member, f"{name}[{step}]" if name else str(step))


def refers_outside(path: str) -> bool:
    outer, _, name = path.replace("[]", "").rpartition(".")
    is_quoted = path.endswith(OF_THE_PROVIDER) or (bool(outer) and is_free(outer))
    return bool(REFERS.search(name)) and name not in HARMLESS and path != "model" and not is_quoted


async def test_drops_outside_refs(aiohttp_raw_server: AiohttpRawServer, tmp_path: Path) -> None:
    fields = [read_field for read_field in read_fields() if refers_outside(read_field[0])]
    bodies: list[bytes] = []

    async def upstream(request: web.BaseRequest) -> web.Response:
        bodies.append(await request.read())
        return web.json_response({"id": "conv_1", "object": "conversation", "created_at": 1})

    url = str((await aiohttp_raw_server(upstream)).make_url("")).rstrip("/")
    reached, events = list[tuple[str, str]](), list[str]()
    async with (
        running_proxy(tmp_path / "policies", policies(url), id_secrets=("a secret",)) as proxy,
        ClientSession(base_url=proxy.url, headers=BEARER) as client,
    ):
        headers = {"x-headrace-deployment": "responses"}
        async with client.post("/v1/conversations", headers=headers, json={}) as response:
            conversation = (await response.json())["id"]
        for path, _, route, body in fields:
            for deployment, place, sent_value in ways(route.format(id=conversation), body):
                bodies.clear()
                headers = {"x-headrace-deployment": deployment}
                async with client.post(place, headers=headers, **sent_value) as response:
                    refusal = await response.text()
                if any(CANARY.encode() in raw for raw in bodies):
                    reached.append((path, place))
                events.append(refusal)

    assert reached == []
    assert sum("unless the upstream accepts" in text for text in events) > 0.98 * len(events) > 600
