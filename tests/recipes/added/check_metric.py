"""Tests of the added metric, run in a copy of the repository."""

from __future__ import annotations

from tests.conftest import Proxy, metric_total


async def test_new_metric_counts_calls(proxy: Proxy) -> None:
    async def count() -> float:
        metrics = await proxy.metrics()
        name = "headrace_acme_calls_total"
        assert f'{name}{{deployment="support-chat"}}' in metrics
        return float(metric_total(metrics, name, deployment="support-chat"))

    count_before = await count()
    await proxy.complete(model="support-chat")
    await proxy.sink.wait()

    assert (count_before, await count()) == (0, 1)
