"""A deployment for listed paths alone serves no other route."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from proxy.dialects import BODILESS, ROUTES
from tests.conftest import KEY, running_proxy
from tests.doubles import ScriptedUpstream, answer
from tests.passthrough.world import digest

ALIAS, MODEL, NAME = "old-files", "file-keeper", "support-files"
IDS = {"deployment": NAME, "id": "conv_1", "item": "msg_1", "model": MODEL}
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
QUESTIONS: list[dict[str, Any]] = [HELLO, {"input": "Hello"}, {"prompt": "Hello"}, {}]
BODIES = [
    {**question, **named}
    for question in QUESTIONS
    for named in ({"model": NAME}, {"model": ALIAS}, {"model": MODEL}, {})
]
SERVED = {"chat", "completions", "conversations", "embeddings", "responses"}


def policy(upstream: str, *, only: bool) -> str:
    return f"""
upstreams: {{openai: {{dialect: openai, base_url: '{upstream}/v1'}}}}
keys: {{support-widget: {{sha256: {digest(KEY)}, deployments: [{NAME}]}}}}
deployments:
  {NAME}:
    also_known_as: [{ALIAS}]
    targets: [{{upstream: openai, model: {MODEL}, price: {{input: 0, output: 0}}}}]
    only_passthrough: {str(only).lower()}
    passthrough: [/v1/files]
"""


async def asked(folder: Path, policies: str, named: str | None) -> tuple[list[Any], list[Any]]:
    """Return the records and the answers of requests by all routes, each with all bodies."""
    headers = {name: KEY for name in ("apikey", "x-api-key")}
    headers |= {"authorization": f"Bearer {KEY}"}
    headers |= {} if named is None else {"x-headrace-deployment": named}
    answers = []
    async with (
        running_proxy(folder, policies, id_secrets=("a secret of replicas",)) as proxy,
        ClientSession(base_url=proxy.url, headers=headers) as client,
    ):
        for (method, route), (_, endpoint) in ROUTES.items():
            has_body = method == "POST" and endpoint not in BODILESS
            for body in BODIES if has_body else [None]:
                async with client.request(method, route.format(**IDS), json=body) as response:
                    answers.append((endpoint, response.status, await response.text()))
        return await proxy.sink.wait(len(answers)), answers


@pytest.mark.parametrize("name", [None, NAME, ALIAS])
async def test_others_skip(name: str | None, upstream: ScriptedUpstream, tmp_path: Path) -> None:
    records, answers = await asked(tmp_path / "p", policy(upstream.url, only=True), name)

    assert upstream.requests == []
    assert not any(record.attempts or record.billing.cost for record in records)
    for endpoint, status, text in answers:
        assert (status == 200 and endpoint == "models") or 400 <= status < 500
        assert status != 200 or (MODEL not in text and NAME not in text)


async def test_unlisted_target_takes_routes(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.answer_with(answer({"id": "x"}))

    records, _ = await asked(tmp_path / "p", policy(upstream.url, only=False), None)

    assert {record.head.endpoint for record in records if record.attempts} >= SERVED
