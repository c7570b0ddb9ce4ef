"""Metrics: disjoint tokens, unknown prices counted, labels from policy only."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from proxy.emit.declared import METRICS, declared
from tests.conftest import Proxy
from tests.doubles import ScriptedUpstream, answer, legacy, legacy_events, stream, usage
from tests.test_pipeline import BEARER, ROUTES

ROUTE = ROUTES["openai"]


async def scraped(proxy: Proxy, calls: int) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Give all samples that are not zero by name and labels, once so many calls were recorded."""
    await proxy.sink.wait(calls)
    async with aiohttp.ClientSession() as client, client.get(f"{proxy.admin}/metrics") as response:
        text = await response.text()
    found: dict[str, Any] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            if sample.value:
                found.setdefault(sample.name, {})[labels] = sample.value
    return found


async def call(client: aiohttp.ClientSession, **fields: Any) -> None:
    streamed = fields.pop("stream", False)
    body = {**ROUTE.body(streamed=streamed), **fields}
    async with client.post(ROUTE.path, headers=BEARER, json=body) as response:
        await response.read()


async def test_tokens_are_disjoint_and_cost_is_exact(
    proxy: Proxy, upstream: ScriptedUpstream, client: aiohttp.ClientSession
) -> None:
    detailed = {
        **usage(1200, 300),
        "prompt_tokens_details": {"cached_tokens": 1000},
        "completion_tokens_details": {"reasoning_tokens": 100},
    }
    upstream.answer_with(answer(legacy(usage=detailed)))

    await call(client)

    found = await scraped(proxy, 1)
    tokens = {dict(labels)["token_type"]: n for labels, n in found["headrace_tokens_total"].items()}
    assert tokens == {"input": 200, "cached_input": 1000, "output": 200, "reasoning": 100}
    cost = {dict(labels)["cost_type"]: n for labels, n in found["headrace_cost_usd_total"].items()}
    assert cost == {"input": 0.00003, "cached": 0.000075, "output": 0.00018}


async def test_an_unknown_price_is_counted_and_costs_nothing_known(
    proxy: Proxy, upstream: ScriptedUpstream, client: aiohttp.ClientSession
) -> None:
    await call(client, model="legacy-only")

    found = await scraped(proxy, 1)
    assert list(found["headrace_unpriced_requests_total"].values()) == [1]
    assert "headrace_cost_usd_total" not in found


async def test_missing_and_invalid_usage_is_estimated_and_said(
    proxy: Proxy, upstream: ScriptedUpstream, client: aiohttp.ClientSession
) -> None:
    silent = {k: v for k, v in legacy().items() if k != "usage"}
    upstream.then(answer(silent), answer(legacy(usage={"prompt_tokens": -5})))

    await call(client)
    await call(client)

    found = await scraped(proxy, 2)
    assert sum(found["headrace_usage_estimated_total"].values()) == 2
    assert sum(found["headrace_usage_invalid_total"].values()) == 1
    assert all(dict(labels)["estimated"] == "true" for labels in found["headrace_tokens_total"])


async def test_a_cut_stream_tells_whose_doing_it_was(
    proxy: Proxy, upstream: ScriptedUpstream, client: aiohttp.ClientSession
) -> None:
    upstream.answer_with(stream(legacy_events(" Par", "is."), cut_after=1))

    with contextlib.suppress(aiohttp.ClientPayloadError):
        await call(client, stream=True)

    [labels] = (await scraped(proxy, 1))["headrace_stream_aborts_total"]
    assert (dict(labels)["side"], dict(labels)["phase"]) == ("upstream", "after_first")


async def test_what_clients_choose_mints_no_series(
    proxy: Proxy, client: aiohttp.ClientSession
) -> None:
    async def strange(number: int) -> None:
        headers = {
            **BEARER,
            "x-headrace-tags": f"t{number}=v{number}",
            "x-request-id": f"id-{number}",
        }
        body = {"model": f"model-{number}", "prompt": "p", "user": f"user-{number}"}
        async with client.post("/v1/completions", headers=headers, json=body) as response:
            assert response.status == 404
        async with client.get(f"/path-{number}", headers=headers) as response:
            assert response.status == 404

    for start in range(0, 200, 20):
        await asyncio.gather(*(strange(number) for number in range(start, start + 20)))

    found = await scraped(proxy, 400)
    assert len(found["headrace_requests_total"]) == 2
    assert sum(map(len, found.values())) < 150


def test_every_metric_is_declared_once_with_help_and_named_by_the_book() -> None:
    names = [name for name, *_ in declared()]

    assert len(names) == len(set(names)) == len(METRICS)
    for name, kind, labels, help_text in declared():
        assert name.startswith(("headrace_", "process_"))
        assert name.endswith("_total") == (kind == "counter")
        assert help_text.endswith(".")
        assert len(labels) == len(set(labels))
