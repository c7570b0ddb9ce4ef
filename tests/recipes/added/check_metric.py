"""What holds in a copy to which a metric was added: run by its test."""

from __future__ import annotations

import aiohttp

from tests.conftest import Proxy
from tests.test_pipeline import BEARER


async def test_new_metric_counts_calls(proxy: Proxy, client: aiohttp.ClientSession) -> None:
    async def samples() -> list[str]:
        async with client.get(f"{proxy.admin}/metrics") as response:
            lines = (await response.text()).splitlines()
        return [line for line in lines if line.startswith("headrace_acme_calls_total{")]

    samples_before = await samples()
    body = {"model": "support-chat", "prompt": "p"}
    async with client.post("/v1/completions", headers=BEARER, json=body) as response:
        await response.read()
    await proxy.sink.wait(1)

    assert 'headrace_acme_calls_total{deployment="support-chat"} 0.0' in samples_before
    assert 'headrace_acme_calls_total{deployment="support-chat"} 1.0' in await samples()
