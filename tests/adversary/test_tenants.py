"""Searches for tenants that learn about each other or exhaust each other's limits and logs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from proxy.limits.kinds import KINDS
from proxy.limits.stores.memory import MemoryStore
from proxy.telemetry.log import LINES_PER_BURST
from proxy.types.limit import Claim, Limit
from proxy.types.windows import Calendar
from tests.cache.cached_proxy import Cached, cached_proxy, until_asked
from tests.cache.test_cache_call import wait_until_served
from tests.cli.test_init import serving
from tests.conftest import KEY, policies_for, running_proxy
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    gated,
    item_events,
    respond,
    response,
    response_events,
    stream,
    text_item,
)
from tests.limits.sample_limits import Clock, run_sync
from tests.test_pipeline import BEARER, ROUTES

ONE_KEY, OTHER_KEY = "hr-one-key", "hr-other-key"


def policies(upstream: str, limit: Json) -> str:
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in (ONE_KEY, OTHER_KEY)}
    limit = {"name": "few", "requests": "1 per day", **limit}
    return json.dumps(
        {
            "upstreams": {"up": {"dialect": "openai", "base_url": f"{upstream}/v1"}},
            "tags": {"feature": {"pattern": "[a-z]+", "caller": True}},
            "policies": {"default": {"limits": [limit]}},
            "keys": {
                "one": {"sha256": digests[ONE_KEY], "deployments": ["mine"]},
                "other": {"sha256": digests[OTHER_KEY], "deployments": ["theirs"]},
            },
            "deployments": {
                "mine": {"targets": [{"upstream": "up", "model": "small"}]},
                "theirs": {"targets": [{"upstream": "up", "model": "large"}]},
            },
        }
    )


async def statuses(folder: Path, text: str, *requests: tuple[str, Json, Json]) -> list[int]:
    """Return the status of each call of a key with additional headers and fields."""
    results = []
    async with running_proxy(folder, text) as proxy:
        for key, headers, body in requests:
            deployment = {ONE_KEY: "mine", OTHER_KEY: "theirs"}[key]
            caller = {"authorization": f"Bearer {key}", "x-headrace-deployment": deployment}
            reply = await proxy.complete(caller | headers, **{"model": deployment, **body})
            results.append(reply.status)
    return results


USER: Json = {"user": "anna"}
FEATURE: Json = {"x-headrace-tags": "feature=box"}


@pytest.mark.parametrize(
    ("limit", "headers", "body", "expected"),
    [
        ({"per": "user"}, {}, USER, [200, 429, 200, 429]),
        ({"per": ["model", "user"]}, {}, {**USER, "model": "same"}, [200, 429, 200, 429]),
        ({"per": "tag.feature"}, FEATURE, {}, [200, 429, 200, 429]),
        ({"per": ["user", "tag.feature"]}, FEATURE, USER, [200, 429, 200, 429]),
        ({"per": "user", "across": "keys"}, {}, USER, [200, 429, 429, 429]),
        ({"per": "tag.feature", "across": "keys"}, FEATURE, {}, [200, 429, 429, 429]),
    ],
    ids=str,
)
async def test_client_values_are_counted_per_scope(
    limit: Json,
    headers: Json,
    body: Json,
    expected: list[int],
    upstream: ScriptedUpstream,
    tmp_path: Path,
) -> None:
    text = policies(upstream.url, limit)
    mine, theirs = (ONE_KEY, headers, body), (OTHER_KEY, headers, body)

    assert await statuses(tmp_path, text, mine, mine, theirs, theirs) == expected


async def test_requested_model_is_counted_not_its_alias(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    text = policies(upstream.url, {"per": "model"})
    names = ("large", "up/small", "mine", "anything")
    requests: list[tuple[str, Json, Json]] = [(ONE_KEY, {}, {"model": name}) for name in names]

    matches = await statuses(tmp_path, text, *requests, (OTHER_KEY, {}, {"model": "large"}))

    assert matches == [200, 429, 429, 429, 200]


def settle(store: MemoryStore, name: str, *claims: Claim) -> bool:
    """Admit and settle a call, and return whether it was admitted."""
    is_admitted = run_sync(store.admit(name, claims)).admitted
    run_sync(store.settle(name, [claim.amount for claim in claims]))
    return bool(is_admitted)


def get_usage(store: MemoryStore, claims: Sequence[Claim]) -> list[int]:
    states = store.preview([replace(claim, amount=0) for claim in claims]).counter_states
    return [state.used for state in states]


@pytest.mark.parametrize("flood", ["rates", "budgets", "both"])
def test_flood_evicts_no_counter_of_others(flood: str) -> None:
    store = replace(Clock().memory(), max_counters=1000)
    calls = Limit("calls", KINDS["requests"], 10, 86_400)
    house = Limit("house", KINDS["usd"], 100, Calendar("month"))
    rate = Limit("user-calls", KINDS["requests"], 10, 86_400)
    budget = Limit("user-money", KINDS["usd"], 100, Calendar("month"))
    honest = [Claim(calls, f"key:honest-{n}", 10) for n in range(50)]
    honest += [Claim(budget, f"key:victim|user:{n}", 100) for n in range(20)]
    honest += [Claim(rate, f"key:victim|user:{n}", 10) for n in range(20)]
    honest += [Claim(house, f"tag.team:{n}", 100) for n in range(20)]
    kinds = {"rates": [rate], "budgets": [budget], "both": [rate, budget]}[flood]
    for number, claim in enumerate(honest):
        settle(store, f"honest-{number}", claim)

    for number in range(3000):
        claims = [Claim(limit, f"key:flood|user:{number}", 1) for limit in kinds]
        assert settle(store, f"flood-{number}", *claims)

    assert store.evicted_count > 1000
    assert get_usage(store, honest) == [claim.amount for claim in honest]


def test_rates_of_a_key_are_evicted_before_budgets() -> None:
    store = replace(Clock().memory(), max_counters=100)
    rate = Limit("calls", KINDS["requests"], 10, 86_400)
    budget = Limit("money", KINDS["usd"], 100, Calendar("month"))
    paid = [Claim(budget, f"key:one|user:{number}", 5) for number in range(50)]
    for number, claim in enumerate(paid):
        settle(store, f"paid-{number}", claim)
    for number in range(1000):
        settle(store, f"call-{number}", Claim(rate, f"key:one|user:{number}", 9))

    assert get_usage(store, paid) == [5] * 50


ROUTE = ROUTES["openai"]
STRANGER = {"Authorization": "Bearer hr-wrong"}
CROWD = 300


async def send_route(client: ClientSession, url: str, headers: dict[str, str]) -> int:
    body = ROUTE.body(streamed=False)
    async with client.post(url + ROUTE.path, headers=headers, json=body) as response:
        await response.read()
        return response.status


async def stopped(served: Any) -> list[dict[str, Any]]:
    served.process.terminate()
    async with asyncio.timeout(20):
        out, _ = await served.process.communicate()
    lines = [*served.lines, *map(json.loads, out.splitlines())]
    return [line for line in lines if line["event"] == "call"]


async def test_unknown_keys_are_counted_in_aggregate(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    ledger, decisions = tmp_path / "ledger.db", tmp_path / "decisions"
    stored = {"HEADRACE_LEDGER": f"sqlite:{ledger}", "HEADRACE_DECISION_LOG": str(decisions)}
    async with (
        serving(tmp_path / "p", policies_for(upstream.url), **stored) as (served, url),
        ClientSession() as client,
    ):
        assert await send_route(client, url, BEARER) == 200
        for _ in range(CROWD):
            assert await send_route(client, url, STRANGER) == 401
        assert await send_route(client, url, BEARER) == 200
        lines = await stopped(served)

    strangers = [line for line in lines if line["key"] is None]
    assert LINES_PER_BURST <= len(strangers) <= LINES_PER_BURST + 10
    assert len(lines) - len(strangers) == 2
    with closing(sqlite3.connect(ledger)) as rows:
        assert rows.execute("SELECT count(*) FROM calls").fetchone() == (len(lines),)
    sealed = [json.loads(line) for line in decisions.read_text().splitlines()]
    assert sum(entry["event"] == "call" for entry in sealed) == len(lines)


async def test_unknown_keys_evict_no_explanation(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with running_proxy(tmp_path / "p", policies_for(upstream.url)) as proxy:
        await proxy.complete({**BEARER, "x-request-id": "known"})
        for _ in range(CROWD):
            await proxy.complete({**STRANGER, "x-request-id": "known"})
        await proxy.sink.wait(CROWD + 1)
        explained = await proxy.read("/explain/known")
        metrics = await proxy.metrics()

    assert "success, status 200" in explained
    unknown = 'headrace_unauthenticated_requests_total{key="none",reason="unknown"}'
    assert f"{unknown} {CROWD}.0" in metrics


@pytest.mark.parametrize(("may", "count"), [("refresh", 0), ("trace", 5)])
async def test_trace_is_sampled_only_if_its_key_may(
    may: str, count: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    policies = policies_for(upstream.url).replace("may: [refresh]", f"may: [{may}]")
    always_chosen = f"00-{'0' * 31}1-{'0' * 15}1-01"
    async with (
        serving(tmp_path / "p", policies, HEADRACE_LOG_RATIO="0.000001") as (served, url),
        ClientSession() as client,
    ):
        for _ in range(5):
            assert await send_route(client, url, {**BEARER, "traceparent": always_chosen}) == 200
        lines = await stopped(served)

    assert len(lines) == count
    assert all(line["key"] == "support-widget" for line in lines)
    assert KEY not in str(lines)


ITEM = text_item("Let me see.")


def of(user: str) -> Json:
    return {"user": user, "metadata": {"for": user}, "safety_identifier": f"safe-{user}"}


def answering(gate: asyncio.Event, *, streamed: bool) -> Script:
    """Respond to the first call with an echo of its request."""
    document = response(ITEM, **of("anna"))
    events = response_events(item_events(0, ITEM, "Let me ", "see."), document=document)
    if streamed:
        return stream(events, is_done=False, gate=gate)
    return gated(gate, respond(document))


@pytest.fixture
async def cached(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Cached]:
    async with cached_proxy(tmp_path / "policies", upstream) as running:
        yield running


@pytest.mark.parametrize("streamed", [True, False])
async def test_echoed_request_is_that_of_the_client(
    streamed: bool, cached: Cached, upstream: ScriptedUpstream
) -> None:
    gate = asyncio.Event()
    upstream.answer_with(answering(gate, streamed=streamed))
    request: Json = {"model": "gpt-4o-mini", "input": "Hi", "stream": streamed}
    users = ("anna", "bertha", "carla")
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        tasks = []
        for user in users[:2]:
            body = {**request, **of(user)}
            tasks.append(group.create_task(cached.post("/v1/responses", BEARER, body)))
            await until_asked(upstream, 1)
        await wait_until_served(cached, 2)
        gate.set()
    answers = [task.result() for task in tasks]
    answers.append(await cached.post("/v1/responses", BEARER, {**request, **of(users[2])}))

    assert [result for _, result, _ in answers] == ["miss", "coalesced", "hit"]
    assert len(upstream.requests) == 1
    for user, (status, _, raw) in zip(users, answers, strict=True):
        assert status == 200
        assert b"safe-" + user.encode() in raw
        assert not any(other_user.encode() in raw for other_user in users if other_user != user)
