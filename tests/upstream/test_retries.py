"""Retries, circuit breakers and slots, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.call.summary import summarize
from tests.conftest import KEY, Proxy, Reply, policies_for, running_proxy
from tests.doubles import (
    PATIENCE_S,
    Script,
    ScriptedUpstream,
    cut_before_head,
    hang,
    legacy_completion,
    legacy_events,
    respond,
    stream,
)
from tests.test_pipeline import BEARER, ROUTES, reply_text

REACH = "deployments: [support-chat, "
RESILIENT = "  resilient:\n"
VIRTUAL_KEY = {"x-portkey-virtual-key": "resilient"}


@asynccontextmanager
async def resilient_proxy(
    folder: Path, upstream: ScriptedUpstream, text: str, of_upstream: str = ""
) -> AsyncIterator[Proxy]:
    """Run the default policies with additions to deployment ``resilient`` and its upstream."""
    policies = policies_for(upstream.url).replace(RESILIENT, f"{RESILIENT}    {text}\n")
    policies = policies.replace("dialect: openai,", f"dialect: openai,{of_upstream}", 1)
    async with running_proxy(folder / "policies", policies) as proxy:
        yield proxy


async def ask(proxy: Proxy, **fields: Any) -> Reply:
    return await proxy.complete(**{"model": "resilient", **fields})


def models(upstream: ScriptedUpstream) -> list[str]:
    return [request.json["model"] for request in upstream.requests]


@pytest.mark.parametrize(
    "failure",
    [respond({}, 503), respond({}, 429, "retry-after: 0"), respond({}, 529), cut_before_head()],
    ids=["503", "429", "529", "cut"],
)
async def test_failed_attempt_is_retried(
    failure: Script, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    text = "retry: {times: 2, wait: 1ms}"
    async with resilient_proxy(tmp_path, upstream, text) as proxy:
        upstream.then(failure, failure, respond(legacy_completion()))

        status = (await ask(proxy)).status

        [record] = await proxy.sink.wait()
        metrics = await proxy.metrics()
    assert (status, models(upstream)) == (200, ["primary"] * 3)
    assert [attempt.reason for attempt in record.attempts] == ["first", "retry", "retry"]
    labels = 'model="primary",upstream="openai",why="retry"'
    assert f"headrace_upstream_repeats_total{{{labels}}} 2.0" in metrics


@pytest.mark.parametrize(
    ("retry", "failure", "requests"),
    [
        ("times: 1, wait: 1ms", respond({}, 503), ["primary", "primary", "spare"]),
        ("times: 2, max_wait: 2s", respond({}, 429, "retry-after: 60"), ["primary", "spare"]),
    ],
    ids=["tries used up", "long wait"],
)
async def test_next_target_is_tried(
    retry: str, failure: Script, requests: list[str], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with resilient_proxy(tmp_path, upstream, f"retry: {{{retry}}}") as proxy:
        upstream.by_model = {"primary": failure}

        status = (await ask(proxy)).status

    assert (status, models(upstream)) == (200, requests)


async def test_retries_fit_client_deadline(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    text = "retry: {times: 9, wait: 200ms, max_wait: 200ms}"
    async with resilient_proxy(tmp_path, upstream, text) as proxy:
        upstream.answer_with(respond({}, 503))

        headers = {"x-portkey-api-key": KEY, "x-portkey-request-timeout": "300"}
        reply = await ask(proxy, headers=headers)

    assert reply.status in (408, 503)  # the deadline passes during an attempt or before one
    assert 1 <= len(upstream.requests) < 9


async def test_retry_budget_bounds_a_storm(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    text = "retry: {times: 5, wait: 1ms, max_wait: 1ms}"
    async with resilient_proxy(tmp_path, upstream, text, "breaker: off,") as proxy:
        upstream.by_model = {"primary": respond({}, 503)}

        for _ in range(60):
            await ask(proxy)

    assert models(upstream).count("primary") <= 60 * 1.2 + 10


async def test_breaker_opens_probes_and_closes(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    breaker = "breaker: {failures: 2, rest: 300ms},"
    async with resilient_proxy(tmp_path, upstream, "", breaker) as proxy:
        upstream.by_model = {"primary": respond({}, 500)}
        for _ in range(4):
            assert (await ask(proxy)).status == 200
        assert models(upstream).count("primary") == 2
        records = await proxy.sink.wait(4)
        assert [skip.reason for skip in records[-1].skips] == ["upstream_circuit_open"]
        labels = 'endpoint="completions",model="primary",upstream="openai"'
        assert f"headrace_circuit_state{{{labels}}} 2.0" in await proxy.metrics()

        upstream.by_model = {}
        request = 4
        async with asyncio.timeout(PATIENCE_S):
            while models(upstream)[-1] != "primary":
                await ask(proxy)
                request += 1
                await proxy.sink.wait(request)

        assert f"headrace_circuit_state{{{labels}}} 0.0" in await proxy.metrics()


async def test_open_circuits_refuse_at_once(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    breaker = "breaker: {failures: 1, rest: 30s},"
    async with resilient_proxy(tmp_path, upstream, "", breaker) as proxy:
        upstream.answer_with(respond({}, 500))
        await ask(proxy, model="gpt-4o-mini")
        reply = await ask(proxy, model="gpt-4o-mini")
        _, record = await proxy.sink.wait(2)

    assert (reply.status, reply.error["code"]) == (503, "upstream_circuit_open")
    assert 0 < int(reply.headers["retry-after"]) <= 30
    assert record.attempts == []
    assert record.billing.cost == 0
    assert len(upstream.requests) == 1


async def test_full_upstream_sheds_load(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with resilient_proxy(tmp_path, upstream, "", "max_concurrency: 1,") as proxy:
        upstream.by_model = {"gpt-4o-mini": hang()}
        first_call = asyncio.ensure_future(ask(proxy, model="gpt-4o-mini"))
        await upstream.arrived.wait()

        reply = await ask(proxy, model="gpt-4o-mini")
        assert (reply.status, reply.error["code"]) == (503, "upstream_busy")
        assert reply.headers["retry-after"] == "1"
        assert (await ask(proxy)).status == 200  # served by the fallback

        first_call.cancel()
        await upstream.requests[0].closed.wait()
        upstream.by_model = {}
        assert (await ask(proxy, model="gpt-4o-mini")).status == 200


async def test_least_loaded_target_is_selected(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    targets = "[{upstream: openai, model: left}, {upstream: portkey, model: right}]"
    policies = (
        policies_for(upstream.url) + f"  even: {{balance: least_loaded, targets: {targets}}}\n"
    )
    policies = policies.replace(REACH, f"{REACH}even, ")
    gate = asyncio.Event()
    upstream.by_model = {"left": stream(legacy_events("a", "b"), gate=gate)}
    async with running_proxy(tmp_path / "policies", policies) as proxy:
        body = {"model": "even", "prompt": "Hi", "stream": True}
        async with proxy.client.post("/v1/completions", headers=BEARER, json=body) as slow:
            for _ in range(3):
                await ask(proxy, model="even")
            gate.set()
            await slow.read()
        upstream.by_model = {}
        await ask(proxy, model="even")

    assert models(upstream) == ["left", "right", "right", "right", "left"]


@pytest.fixture
def proxy(hasty_proxy: Proxy) -> Proxy:
    return hasty_proxy


ROUTE = ROUTES["openai"]
FAILURES = {
    "500": respond({}, 500),
    "cut": cut_before_head(),
    "silent": hang(),
    "garbled": respond(b'{"choices": ['),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
async def test_failure_falls_back(
    failure: Script, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.by_model = {"primary": failure, "spare": respond(legacy_completion())}

    reply = await ask(proxy)

    assert (reply.status, reply_text(ROUTE, reply.raw, streamed=False)) == (200, " Paris.")
    assert [request.path for request in upstream.requests][-1] == "/v4/beta/completions"
    [record] = await proxy.sink.wait()
    assert record.outcome == "success"
    assert [attempt.error is None for attempt in record.attempts] == [False, True]
    [served] = [bill for _, result, bill in summarize(record).attempts if bill and result.served]
    assert (served.usage.tokens.input, served.usage.tokens.output) == (5, 3)
    assert bool(summarize(record).lost_cost) == record.attempts[0].has_upstream_worked
    counted = await proxy.metrics()
    labels = 'deployment="resilient",to_upstream="scale",upstream="openai"'
    assert f"headrace_fallbacks_total{{{labels}}} 1.0" in counted


async def test_deadline_stops_fallback(upstream: ScriptedUpstream, proxy: Proxy) -> None:
    upstream.by_model = {"primary": hang()}
    timeout = {"x-portkey-request-timeout": "200"}

    reply = await ask(proxy, headers={"x-portkey-api-key": KEY, **VIRTUAL_KEY, **timeout})

    assert reply.status == 408
    assert len(upstream.requests) == 1


async def test_portkey_target_header(upstream: ScriptedUpstream, proxy: Proxy) -> None:
    upstream.by_model = {"primary": respond({}, 500)}

    reply = await ask(proxy, headers={**ROUTES["portkey"].credential, **VIRTUAL_KEY})

    assert reply.headers["x-portkey-retry-attempt-count"] == "1"
    assert reply.headers["x-portkey-last-used-option-index"] == "config.targets[1]"
