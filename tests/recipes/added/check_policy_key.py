"""What holds in a copy to which a key of the policy files was added: run by its test."""

from __future__ import annotations

from pathlib import Path

import aiohttp

from tests.conftest import running_proxy, world
from tests.doubles import ScriptedUpstream
from tests.test_pipeline import BEARER

TARGETS = "    targets: [{upstream: openai, model: smol-legacy, endpoint: completions}]\n"


async def test_new_key_has_effect(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    policies = world(upstream.url)
    assert policies.count(TARGETS) == 1
    policies = policies.replace(TARGETS, f"{TARGETS}    acme_notice: retired in May\n")
    warned = []
    async with (
        running_proxy(tmp_path / "policies", policies) as proxy,
        aiohttp.ClientSession(proxy.url, headers=BEARER) as client,
    ):
        for model in ("legacy-only", "support-chat"):
            body = {"model": model, "prompt": "p"}
            async with client.post("/v1/completions", json=body) as response:
                warned.append(response.headers.get("x-headrace-warning"))

    assert warned == ["retired in May", None]
