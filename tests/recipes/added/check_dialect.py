"""Tests of the added dialect, run in a copy of the repository."""

from __future__ import annotations

from pathlib import Path

from multidict import CIMultiDict

from tests.conftest import DIGEST, KEY, metric_total, running_proxy
from tests.doubles import ScriptedUpstream, legacy_completion, respond

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
    upstream.answer_with(respond(legacy_completion()))
    policies = POLICIES.format(url=upstream.url, digest=DIGEST)
    body = {"model": "support-chat", "prompt": "p", "acme_mood": "good"}

    async with running_proxy(tmp_path / "policies", policies) as proxy:
        reply = await proxy.send("/acme/completions", body, {"x-acme-key": KEY})
        assert reply.status == 200, reply.raw
        repeated = CIMultiDict([("x-acme-key", KEY), ("x-acme-key", "other")])
        assert (await proxy.send("/acme/completions", body, repeated)).status == 400
        await proxy.sink.wait(1)
        metrics = await proxy.metrics()

    [request] = upstream.requests
    assert request.path == "/acme/completions"
    assert request.headers["x-acme-key"] == "sk-upstream-secret"
    assert request.json["acme_mood"] == "good"
    assert [record.head and record.head.dialect for record in proxy.records][:1] == ["acme"]
    requests = "headrace_requests_total"
    assert metric_total(metrics, requests, dialect="acme", outcome="success") == 1
    assert metric_total(metrics, requests, dialect="other") == 0
