"""The deepest accepted body is served under any policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.conftest import running_proxy, world
from tests.doubles import Asked, ScriptedUpstream, Wire, answer, chat, legacy
from tests.test_pipeline import BEARER

LEVELS = 254
POLICY = """
policies:
  default:
    match: all
    cache: {ttl: 1h, semantic: {embeddings: support-chat}}
    capture: {share: 100%, fields: [input, output]}
    limits: [{name: month, usd: 100000 per month, unpriced: allow}]
    opaque: allow
    input: [{guard: pii, entities: [email], action: mask, restore: true}]
    rules: [{name: steady, set: {temperature: 0.5}}]
"""
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Write to ann@example.com"}]}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": HELLO,
    "/v1/messages": {**HELLO, "max_tokens": 5},
    "/v1/messages/count_tokens": HELLO,
    "/v1/completions": {"prompt": "Write to ann@example.com"},
    "/v1/embeddings": {"input": "Write to ann@example.com"},
}


VECTOR = {"object": "embedding", "index": 0, "embedding": [0.5]}
VECTORS = {"object": "list", "model": "m", "data": [VECTOR]}


async def reply(request: Asked, wire: Wire) -> None:
    document = chat() if "chat" in request.path else legacy()
    await answer(VECTORS if "embeddings" in request.path else document)(request, wire)


def as_deep(body: dict[str, Any], levels: int, extra: str) -> bytes:
    """Return a body with a field that nobody knows, and so many levels."""
    raw = orjson.dumps({**body, "model": "support-chat", "more": extra, "unknown": 0})
    deep = b"[" * (levels - 1) + b"1" + b"]" * (levels - 1)
    return raw.removesuffix(b"0}") + deep + b"}"


@pytest.mark.parametrize("extra", ["", "x" * 70_000], ids=["small", "large"])
async def test_serves_deepest_body(extra: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(reply)
    async with running_proxy(tmp_path / "policies", world(upstream.url) + POLICY) as proxy:
        headers = {**BEARER, "content-type": "application/json"}
        for path, body in BODIES.items():
            statuses = []
            for levels in (LEVELS, LEVELS + 1):
                raw = as_deep(body, levels, extra)
                async with proxy.client.post(path, headers=headers, data=raw) as response:
                    await response.read()
                    statuses.append(response.status)

            assert statuses == [200, 400], path


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def called(arguments: str) -> dict[str, Any]:
    function = {"name": "find", "arguments": arguments}
    call = {"id": "call_1", "type": "function", "function": function}
    return {
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "Paris"},
        ]
    }


@pytest.mark.parametrize("extra", ["", "x" * 70_000], ids=["small", "large"])
async def test_refuses_too_deep(extra: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(reply)
    schema = orjson.Fragment(nested(LEVELS - 3))
    tool = {"name": "find", "input_schema": schema, "description": extra}
    cases: list[tuple[str, dict[str, Any], str]] = [
        (
            "/v1/messages",
            {**HELLO, "max_tokens": 5, "tools": [tool]},
            "tools: is nested more than 254",
        )
    ]
    for levels in (247, 300, 1000, 1024, 5000):
        body = {**called(nested(levels)), "model": "via-anthropic", "user": extra[:64]}
        cases.append(("/v1/chat/completions", body, "must be a JSON object nested at most 246"))
    async with running_proxy(tmp_path / "policies", world(upstream.url)) as proxy:
        headers = {**BEARER, "content-type": "application/json"}
        for path, body, words in cases:
            raw = orjson.dumps({"model": "support-chat", **body})
            async with proxy.client.post(path, headers=headers, data=raw) as response:
                assert (response.status, words in await response.text()) == (400, True), path


@pytest.mark.parametrize("levels", [246, 247, 255, 1000, 1024, 5000])
async def test_shows_deep_args(levels: int, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    arguments = nested(levels)
    fields = called(arguments)["messages"][1]
    choice = {"index": 0, "message": fields, "finish_reason": "tool_calls"}
    upstream.answer_with(answer({**chat(), "choices": [choice]}))
    body = {"model": "support-chat", "max_tokens": 5, **HELLO}
    async with (
        running_proxy(tmp_path / "policies", world(upstream.url)) as proxy,
        proxy.client.post("/v1/messages", headers=BEARER, json=body) as response,
    ):
        assert response.status == 200
        [block] = orjson.loads(await response.read())["content"]

    shallow = levels <= 246
    assert block["input"] == (orjson.loads(arguments) if shallow else {"arguments": arguments})
