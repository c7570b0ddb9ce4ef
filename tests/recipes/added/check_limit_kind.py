"""Tests of the added limit kind, run in a copy of the repository."""

from __future__ import annotations

from pathlib import Path

from tests.doubles import ScriptedUpstream
from tests.limits.test_init import ask, proxy_with_limits


async def test_new_kind_limits_calls(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with proxy_with_limits(tmp_path, upstream, "{name: written, acme: 22 per day}") as (
        proxy,
        client,
    ):
        first_call = await ask(client, max_tokens=20)  # the response uses 3
        second = await ask(client, max_tokens=20)
        third = await ask(client, max_tokens=23)
        decided = 'headrace_limit_decisions_total{decision="deny",limit="written"} 2.0'
        assert decided in await proxy.metrics()
        remaining_ratio = (
            'headrace_limit_remaining_ratio{limit="written",scope="all"} 0.8636363636363636'
        )
        assert remaining_ratio in await proxy.metrics()

    assert [first_call[0], second[0], third[0]] == [200, 429, 429]
    assert first_call[1]["x-ratelimit-limit-acme"] == "22"
    assert second[2]["error"]["type"] == "acme"
    limit = 'imit "written" (22 written tokens per day)'
    assert f"L{limit} is reached" in second[2]["error"]["message"]
    assert f"exceeds the whole l{limit}" in third[2]["error"]["message"]
