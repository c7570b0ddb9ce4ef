"""Metrics: disjoint tokens, unknown prices counted, labels from policy only."""

from __future__ import annotations

import asyncio
import gzip
import re
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from proxy.policy.catalog import list_labels
from proxy.policy.store import read_folder
from proxy.telemetry.catalog.table import METRICS
from proxy.telemetry.metrics import Metrics
from tests.conftest import Proxy, policies_for, running_proxy
from tests.doubles import (
    ScriptedUpstream,
    hang,
    legacy_completion,
    legacy_events,
    respond,
    stream,
    usage,
)
from tests.test_pipeline import BEARER, ROUTES

SamplesByName = dict[str, dict[tuple[tuple[str, str], ...], float]]


async def scraped(proxy: Proxy, calls: int) -> SamplesByName:
    """Return all nonzero samples by name and labels, once ``calls`` calls are recorded."""
    await proxy.sink.wait(calls)
    results: dict[str, Any] = {}
    for family in text_string_to_metric_families(await proxy.metrics()):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            if sample.value:
                results.setdefault(sample.name, {})[labels] = sample.value
    return results


async def test_tokens_are_disjoint_and_cost_is_exact(
    proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    detailed = {
        **usage(1200, 300),
        "prompt_tokens_details": {"cached_tokens": 1000},
        "completion_tokens_details": {"reasoning_tokens": 100},
    }
    upstream.answer_with(respond(legacy_completion(usage=detailed)))

    await proxy.complete()

    result = await scraped(proxy, 1)
    tokens = {
        dict(labels)["token_type"]: n for labels, n in result["headrace_tokens_total"].items()
    }
    assert tokens == {"input": 200, "cached_input": 1000, "output": 200, "reasoning": 100}
    cost = {dict(labels)["cost_type"]: n for labels, n in result["headrace_cost_usd_total"].items()}
    assert cost == {"input": 0.00003, "cached": 0.000075, "output": 0.00018}


async def test_unknown_price_is_counted_and_adds_no_cost(
    proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    await proxy.complete(model="legacy-only")

    result = await scraped(proxy, 1)
    [(labels, number)] = result["headrace_unpriced_requests_total"].items()
    assert (dict(labels)["reason"], number) == ("no_price", 1)
    assert "headrace_cost_usd_total" not in result


async def test_missing_and_invalid_usage_is_estimated_and_labeled(
    proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    silent = {k: v for k, v in legacy_completion().items() if k != "usage"}
    upstream.then(respond(silent), respond(legacy_completion(usage={"prompt_tokens": -5})))

    await proxy.complete()
    await proxy.complete()

    result = await scraped(proxy, 2)
    assert sum(result["headrace_usage_estimated_total"].values()) == 2
    assert sum(result["headrace_usage_invalid_total"].values()) == 1
    assert all(dict(labels)["estimated"] == "true" for labels in result["headrace_tokens_total"])


async def test_cut_stream_has_the_outcome_of_its_cause(
    proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(stream(legacy_events(" Par", "is."), cut_after=1))

    await proxy.complete(stream=True)

    [labels] = (await scraped(proxy, 1))["headrace_stream_aborts_total"]
    assert (dict(labels)["side"], dict(labels)["phase"]) == ("upstream", "after_first")


METHODS = ("DELETE", "PUT", "PATCH", "PROPFIND", "LOCK")


async def test_values_of_clients_create_no_series(proxy: Proxy) -> None:
    """Models, tags, users, deployments, paths, methods, dialects and ids that are unknown."""
    values_before = await exposition(proxy)

    async def strange(number: int) -> None:
        headers = {
            **BEARER,
            "x-headrace-tags": f"t{number}=v{number},feature=f-{'x' * number}",
            "x-request-id": f"id-{number}",
            "x-portkey-config" if number % 2 else "x-enkrypt-deployment": f"d-{number}",
            "x-portkey-metadata": f'{{"_user": "u-{number}"}}',
        }
        body = {"model": f"model-{number}", "prompt": "p", "user": f"user-{number}"}
        routes = [item.path for item in ROUTES.values()]
        route = routes[number % len(routes)].replace("gpt-4o-mini", f"model-{number}")
        for path in (route, f"/path-{number}"):
            assert 400 <= (await proxy.send(path, body, headers)).status < 500
        method = METHODS[number % len(METHODS)]
        reply = await proxy.send("/v1/completions", b"", headers, method=method)
        assert 400 <= reply.status < 500

    for start in range(0, 300, 20):
        await asyncio.gather(*(strange(number) for number in range(start, start + 20)))

    result = await scraped(proxy, 900)
    assert total(result, "headrace_requests_total") == 900
    values_after = await exposition(proxy)
    catalog = list_labels(read_folder(proxy.policies, {"UPSTREAM_KEY": "sk"}))
    assert len(series(values_after)) <= sum(metric.max_series(catalog) for metric in METRICS)
    new = series(values_after) - series(values_before)
    for _, digest in catalog.credentials:  # digests of keys, in hexadecimal
        new = {item.replace(f'digest="{digest}"', 'digest="known"') for item in new}
    assert not [item for item in new if re.search(r'="[a-z]+-?\d', item)]
    assert len(new) < 200


def series(exposed: tuple[str, bytes, Any]) -> set[str]:
    lines = exposed[1].decode().splitlines()
    return {line.rpartition(" ")[0] for line in lines if not line.startswith("#")}


def total(result: SamplesByName, name: str, **labels: str) -> float:
    """Return the sum of the series of a metric with these labels."""
    expected = set(labels.items())
    return sum(value for values, value in result.get(name, {}).items() if expected <= set(values))


async def test_cost_sums_are_equal_by_every_label(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.then(
        respond(legacy_completion()), respond({}, status=503), respond(legacy_completion()), hang()
    )
    await proxy.complete()
    await proxy.complete(model="primary")
    await proxy.send("/v1/models", b"", method="GET")
    assert (await proxy.send("/v1/completions", {}, {"x-other": "x"})).status == 401

    result = await scraped(proxy, 4)
    cost = total(result, "headrace_cost_usd_total")
    assert cost > 0
    assert total(result, "headrace_money_usd_total") == pytest.approx(cost)
    assert total(result, "headrace_key_cost_usd_total", key="support-widget") == pytest.approx(cost)
    for tag in ("team", "env", "feature", "beta"):
        assert total(result, "headrace_tagged_cost_usd_total", tag=tag) == pytest.approx(cost)
        assert total(result, "headrace_tagged_requests_total", tag=tag) == 4
        tokens = total(result, "headrace_tokens_total")
        assert total(result, "headrace_tagged_tokens_total", tag=tag) == tokens


async def test_tag_values_are_bounded(proxy: Proxy) -> None:
    for number in range(3):
        await proxy.complete({**BEARER, "x-headrace-tags": f"feature=widget-{'x' * number}"})

    result = await scraped(proxy, 3)
    request = result["headrace_tagged_requests_total"]
    values = {(dict(fields)["tag"], dict(fields)["value"]): n for fields, n in request.items()}
    assert values == {
        ("team", "support"): 3,
        ("env", "prod"): 3,
        ("feature", "other"): 3,
        ("beta", "none"): 3,
    }
    assert "headrace_label_overflow_total" not in result


async def test_stream_has_token_latency_and_rate(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    events = [
        *legacy_events(" Par", "is."),
        {**legacy_completion(), "choices": [], "usage": usage(10, 5)},
    ]
    upstream.answer_with(stream(events))

    await proxy.complete(stream=True)

    result = await scraped(proxy, 1)
    assert total(result, "headrace_inter_token_latency_seconds_count", model="gpt-4o-mini") == 1
    assert total(result, "headrace_output_tokens_per_second_count", model="gpt-4o-mini") == 1
    assert total(result, "headrace_request_tokens_sum", direction="output") == 5


async def test_remaining_upstream_rate_limit_is_a_gauge(
    proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    remaining = ("x-ratelimit-remaining-requests: 59", "x-ratelimit-remaining-tokens: 149984")
    upstream.answer_with(respond(legacy_completion(), 200, *remaining))

    await proxy.complete()

    result = await scraped(proxy, 1)
    assert total(result, "headrace_upstream_ratelimit_remaining_requests") == 59
    assert total(result, "headrace_upstream_ratelimit_remaining_tokens") == 149984


async def test_process_metrics_are_exposed(proxy: Proxy) -> None:
    result = await scraped(proxy, 0)

    assert total(result, "process_open_fds") > 0
    assert total(result, "headrace_open_connections", side="client") == 0
    assert total(result, "headrace_open_connections", side="upstream") == 0
    [values] = result["headrace_policy_info"]
    assert len(dict(values)["revision"]) > 0
    assert total(result, "headrace_deployment_info", deployment="support-chat", tag="env") == 1


async def test_budgets_and_limits_are_exposed(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    limits = """
      - {name: day, usd: 5 per day, unpriced: allow, per: tag.team}
      - {name: minute, requests: 10 per minute, per: key}
      - {name: each-user, usd: 1 per day, unpriced: allow, per: user}
"""
    policies = policies_for(upstream.url).replace(
        "tags: {team: search, env: prod}",
        f"tags: {{team: search, env: prod}}\n    limits: {limits}",
    )
    async with running_proxy(tmp_path / "policies", policies) as proxy:
        found_before = await scraped(proxy, 0)
        await proxy.complete(user="alice")
        result = await scraped(proxy, 1)

    assert "headrace_budget_spent_usd" not in found_before
    cost = total(result, "headrace_cost_usd_total")
    owner = {"budget": "day", "scope": "tag.team:support"}
    assert total(result, "headrace_budget_spent_usd", **owner) == pytest.approx(cost)
    assert total(result, "headrace_budget_limit_usd", **owner) == 5
    assert total(result, "headrace_budget_remaining_usd", **owner) == pytest.approx(5 - cost)
    reset = total(result, "headrace_budget_reset_timestamp_seconds", **owner) - time.time()
    assert 0 < reset <= 86_400
    remaining = total(result, "headrace_limit_remaining_ratio", limit="minute")
    assert 0.9 <= remaining < 1
    assert not any(
        "each-user" in str(values) for values in result["headrace_limit_remaining_ratio"]
    )


async def exposition(proxy: Proxy, **headers: str) -> tuple[str, bytes, Any]:
    """Return the media type, the raw bytes and the headers."""
    headers = {"accept-encoding": "identity", **headers}
    async with (
        aiohttp.ClientSession(auto_decompress=False) as client,
        client.get(f"{proxy.admin}/metrics", headers=headers) as response,
    ):
        return response.headers["content-type"], await response.read(), response.headers


async def test_openmetrics_carries_trace_ids(proxy: Proxy) -> None:
    await proxy.complete()
    [record] = await proxy.sink.wait(1)

    accepted = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    media_type, text, _ = await exposition(proxy, accept=accepted)

    assert media_type.startswith("application/openmetrics-text")
    traces = {
        sample.exemplar.labels["trace_id"]
        for family in openmetrics(text.decode())  # type: ignore[no-untyped-call]  # an untyped library
        for sample in family.samples
        if sample.exemplar
    }
    assert traces == {record.ids.trace_id}


async def test_exposition_is_compressed_on_request(proxy: Proxy) -> None:
    _, plain, _ = await exposition(proxy)
    _, packed, headers = await exposition(proxy, **{"accept-encoding": "gzip"})

    assert headers["content-encoding"] == "gzip"
    assert len(packed) < len(plain) / 5
    assert gzip.decompress(packed).startswith(b"# HELP headrace_requests_total")


def test_metrics_have_help_and_conventional_names() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.name.startswith(("headrace_", "process_"))
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.help.endswith(".")
        assert len(metric.labels) == len(set(metric.labels))


def test_unknown_drift_has_no_sample() -> None:
    metrics = Metrics("1")

    metrics.set_ledger_drift({"month": -1_500_000_000, "week": 0})
    pair = metrics.render()[0].decode()
    metrics.set_ledger_drift({"week": 0})
    text = metrics.render()[0].decode()

    assert 'headrace_ledger_drift_usd{limit="month"} -1.5' in pair
    assert 'headrace_ledger_drift_usd{limit="week"} 0.0' in text
    assert 'limit="month"' not in text
