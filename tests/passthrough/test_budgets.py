"""Budgets over calls that are passed on: what their JSON costs is not what a picture costs."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.conftest import KEY, running_proxy
from tests.doubles import Script, ScriptedUpstream, answer
from tests.passthrough.world import BEARER, digest
from tests.servers import eventually

PICTURE = answer({"data": [], "usage": {"input_tokens": 10, "output_tokens": 4000}})
REQUEST = {"model": "pics", "prompt": "a tree", "n": 4}


def world(upstream: str, maximum: str = "", price: str = "{input: 5, output: 40}") -> str:
    return f"""
upstreams: {{openai: {{dialect: openai, base_url: '{upstream}/v1'}}}}
deployments:
  pics:
    targets: [{{upstream: openai, model: gpt-image-1, price: {price}}}]
    passthrough:
      - {{path: /v1/images/generations{maximum}}}
      - {{path: /v1/audio/speech{maximum}}}
      - {{path: /v1/files, methods: [GET]}}
    limits: [{{name: day, usd: 1 per day, per: key}}]
  free:
    targets: [{{upstream: openai, model: mod, price: {{input: 0, output: 0}}}}]
    only_passthrough: true
    passthrough: [/v1/moderations]
    limits: [{{name: both, usd: 1 per day}}]
keys: {{widget: {{sha256: {digest(KEY)}, deployments: [pics, free]}}}}
"""


async def post(client: ClientSession, path: str, body: dict[str, Any]) -> tuple[int, str]:
    async with client.post(path, headers=BEARER, json=body) as response:
        await response.read()
        return response.status, response.headers.get("x-headrace-cost-usd", "")


@pytest.mark.parametrize(("maximum", "served"), [(", most_usd: 0.2", 5), ("", 12)])
async def test_parallel_calls_respect_the_budget(
    maximum: str, served: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """Each picture costs 0.16005 USD, of 1 USD a day."""
    gate = asyncio.Event()

    def held(script: Script) -> Script:
        async def wait(request: Any, wire: Any) -> None:
            await gate.wait()
            await script(request, wire)

        return wait

    upstream.answer_with(held(PICTURE))
    async with running_proxy(tmp_path / "policies", world(upstream.url, maximum)) as proxy:
        calls = [
            asyncio.ensure_future(post(proxy.client, "/v1/images/generations", REQUEST))
            for _ in range(12)
        ]
        await eventually(
            lambda: len(upstream.requests) + sum(c.done() for c in calls) == len(calls)
        )
        gate.set()
        statuses = Counter([(await call)[0] for call in calls])

    assert statuses[200] == served
    assert statuses[429] == len(calls) - served
    assert (served * 0.16005 <= 1) is bool(maximum)


async def test_claim_covers_guard_route(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    dear = "{upstream: openai, model: dear, price: {input: 1000, output: 1000}}"
    guard = f"{{guard: keywords, words: [hippo], action: route, to: [{dear}]}}"
    text = world(upstream.url) + f"policies: {{default: {{match: all, input: [{guard}]}}}}\n"
    upstream.answer_with(answer({"usage": {"input_tokens": 30, "output_tokens": 0}}))
    async with running_proxy(tmp_path / "policies", text) as proxy:
        for model, path in (("pics", "/v1/images/generations"), ("free", "/v1/moderations")):
            request = {"model": model, "input": "A hippo by the river, in the evening."}
            assert await post(proxy.client, path, request) == (200, "0.03")
        records = await proxy.sink.wait(2)

    for record in records:
        [claim] = record.limit_decision.claims
        assert claim.amount >= 10_000_000  # nano-USD: ten tokens there


@pytest.mark.parametrize("free", ["/v1/moderations", "{path: /v1/moderations, most_usd: 0.01}"])
async def test_free_calls_pass(free: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    text = world(upstream.url).replace("name: both", "name: day, per: key")
    text = text.replace("[/v1/moderations]", f"[{free}]")
    text = text.replace("    limits: [{name: day, per: key, usd: 1 per day}]\n", "")
    text += "policies: {default: {match: all, limits: [{name: all, usd: 0.1 per day}]}}\n"
    async with running_proxy(tmp_path / "policies", text) as proxy:
        upstream.answer_with(PICTURE)
        assert await post(proxy.client, "/v1/images/generations", REQUEST) == (200, "0.16005")
        assert (await post(proxy.client, "/v1/images/generations", REQUEST))[0] == 429
        upstream.answer_with(answer({"results": []}))
        moderated = await post(proxy.client, "/v1/moderations", {"model": "free", "input": "x"})
        async with proxy.client.get("/v1/files", headers=BEARER) as response:
            looked_up = response.status, response.headers["x-headrace-cost-usd"]
        await proxy.sink.wait(4)

    assert moderated == looked_up == (200, "0")


async def test_passthrough_only_target(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer({"results": []}))
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    by_name = {**BEARER, "x-headrace-deployment": "free"}
    async with running_proxy(tmp_path / "policies", world(upstream.url)) as proxy:
        for model in ("free", "mod", "openai/mod"):
            assert (await post(proxy.client, "/v1/chat/completions", {**chat, "model": model}))[
                0
            ] == 404
        request = {**chat, "model": "gpt-image-1"}
        async with proxy.client.post(
            "/v1/chat/completions", headers=by_name, json=request
        ) as response:
            assert (response.status, "only its passthrough paths" in await response.text()) == (
                404,
                True,
            )
        async with proxy.client.get("/v1/models?names=all", headers=BEARER) as response:
            listed = {item["id"] for item in (await response.json())["data"]}
        for model in ("free", "mod"):
            assert (await post(proxy.client, "/v1/moderations", {"model": model, "input": "x"}))[
                0
            ] == 200

    assert "gpt-image-1" in listed
    assert listed.isdisjoint({"free", "mod", "openai/mod"})
