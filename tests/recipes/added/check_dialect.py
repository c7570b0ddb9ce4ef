"""What holds in a copy to which the dialect beside this file was added: run by its test."""

from __future__ import annotations

import hashlib
from pathlib import Path

import aiohttp

from tests.conftest import KEY, running_proxy
from tests.doubles import ScriptedUpstream, answer, legacy

POLICIES = """
upstreams:
  acme:
    dialect: acme
    base_url: '{url}'
    api_key: '${{UPSTREAM_KEY}}'
    headers: {{x-acme-team: support}}
keys:
  support-widget: {{sha256: {digest}, deployments: [support-chat]}}
deployments:
  support-chat: {{targets: [{{upstream: acme, model: smol}}]}}
"""


async def test_new_dialect_serves_and_counts_calls(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.answer_with(answer(legacy()))
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    policies = POLICIES.format(url=upstream.url, digest=digest)
    body = {"model": "support-chat", "prompt": "p", "acme_mood": "good"}

    async with (
        running_proxy(tmp_path / "policies", policies) as proxy,
        aiohttp.ClientSession() as s,
    ):
        url, headers = f"{proxy.url}/acme/completions", {"x-acme-key": KEY}
        async with s.post(url, headers=headers, json=body) as response:
            assert response.status == 200, await response.text()
        twice = [("x-acme-key", KEY), ("x-acme-key", "other")]
        async with s.post(url, headers=twice, json=body) as response:
            assert response.status == 400
        await proxy.sink.wait(1)
        async with s.get(f"{proxy.admin}/metrics") as response:
            counted = [
                line
                for line in (await response.text()).splitlines()
                if line.startswith("headrace_requests_total{") and line.endswith(" 1.0")
            ]

    [request] = upstream.requests
    assert request.path == "/acme/completions"
    assert request.headers["x-acme-key"] == "sk-upstream-secret"
    assert request.json["acme_mood"] == "good"
    assert [record.head and record.head.dialect for record in proxy.records][:1] == ["acme"]
    assert [line for line in counted if 'dialect="acme"' in line and 'outcome="success"' in line]
    assert [line for line in counted if 'dialect="other"' in line] == []
