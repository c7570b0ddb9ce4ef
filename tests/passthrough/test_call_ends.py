"""Budgets and accounts of passthrough calls, with and without prices."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp import ClientSession

from proxy.ledger.audit import audit
from proxy.money.estimate import estimate_body_quarters, to_tokens
from proxy.settings import LedgerLocation
from proxy.telemetry.log import build_call_line
from tests.conftest import KEY, metric_total, running_proxy
from tests.doubles import (
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    Wire,
    cut_before_head,
    event,
    gated,
    hang,
    head,
    http_chunk,
    respond,
)
from tests.ledger.records import stored_rows
from tests.passthrough.listed_policies import BEARER, digest
from tests.servers import eventually

MAXIMUM = 200_000_000  # nano-USD
USED = {"usage": {"total_tokens": 7}}
REPORTED = 7 * 5000  # nano-USD
CHUNKED = "transfer-encoding: chunked"


def begun(media_type: str, first_data: bytes, *, cut: bool = False) -> Script:
    """Start a response, then break off, or hang until the proxy disconnects."""

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(head(200, media_type, CHUNKED), http_chunk(first_data))
        if cut:
            wire.cut()
        await request.closed.wait()

    return script


async def endless(request: ReceivedRequest, wire: Wire) -> None:
    await wire.send(head(200, JSON, CHUNKED))
    while not request.closed.is_set():
        await wire.send(http_chunk(b'["' + b"x" * 4096 + b'"]'))
        await asyncio.sleep(0)


class Way(NamedTuple):
    """Course of a call.

    ``used`` is its usage: ``reported``, ``partly`` so, ``unknown``, or ``nothing``. ``left`` is
    True if the client disconnects.
    """

    script: Script
    used: str
    outcome: str = "success"
    left: bool = False


SOUND, EVENTS, JSON = "audio/mpeg", "text/event-stream", "application/json"
GZIP = "content-encoding: gzip"
WAYS: dict[str, Way] = {
    "says-usage": Way(respond(USED), "reported"),
    "says-nothing": Way(respond({}), "unknown"),
    "bytes": Way(respond(b"\xff", media_type=SOUND), "unknown"),
    "empty": Way(respond(b"", media_type=SOUND), "unknown"),
    "left-before-head": Way(hang(), "unknown", "client_abort", left=True),
    "left-midway": Way(begun(SOUND, b"\xff"), "unknown", "client_abort", left=True),
    "left-after-usage": Way(begun(EVENTS, event(USED)), "partly", "client_abort", left=True),
    "total-timeout": Way(hang(), "unknown", "client_error"),
    "idle-timeout": Way(begun(SOUND, b"\xff"), "unknown", "timeout"),
    "gone-before-head": Way(cut_before_head(), "nothing", "upstream_error"),
    "gone-midway": Way(begun(SOUND, b"\xff", cut=True), "unknown", "upstream_error"),
    "gone-midway-in-json": Way(begun(JSON, b'{"a', cut=True), "unknown", "upstream_error"),
    "too-long": Way(endless, "unknown", "upstream_error"),
    "garbled": Way(respond(b"{"), "unknown", "upstream_error"),
    "encoded": Way(respond(b"\x1f\x8b", 200, GZIP), "unknown", "upstream_error"),
    "blocked": Way(respond({"text": "hippo"}), "unknown", "blocked"),
    "blocked-with-usage": Way(respond({"text": "hippo", **USED}), "reported", "blocked"),
    "refused": Way(respond({"error": {"message": "no"}}, 400), "nothing", "client_error"),
    "not-found": Way(respond({"error": {"message": "no"}}, 404), "nothing", "client_error"),
    "denied": Way(respond({"error": {"message": "no"}}, 401), "nothing", "upstream_error"),
    "overloaded": Way(respond({}, 503), "nothing", "upstream_error"),
    "broken": Way(respond({}, 500), "nothing", "upstream_error"),
}
BODY = {"prompt": "q" * 400}
ESTIMATE = to_tokens(estimate_body_quarters(BODY)) * 5000


class Price(NamedTuple):
    """The price of a deployment: in its policy, of ``REPORTED``, and of unknown usage."""

    target: str
    path: str
    reported: int | None
    claimed: int
    unknown: int | None = None


PRICED, MOST_USD = ", price: {input: 5, output: 40}", ", most_usd: 0.2"
PRICES = {
    "priced-most": Price(PRICED, MOST_USD, REPORTED, MAXIMUM),
    "priced": Price(PRICED, "", REPORTED, ESTIMATE),
    "unpriced-most": Price("", MOST_USD, None, MAXIMUM),
    "unpriced": Price("", "", None, 0),
    "free": Price(", price: {input: 0, output: 0}", MOST_USD, 0, MAXIMUM, unknown=0),
}


def expected_money(name: str, way: str, method: str) -> tuple[str, int | None, int]:
    """Return the source of a call's usage, its cost, and what budgets are charged, in nano-USD."""
    price, used = PRICES[name], WAYS[way].used
    if method == "GET" or used == "nothing":
        return "none", 0, 0
    source, cost = {
        "reported": ("provider", price.reported),
        "partly": ("partial_estimate", price.reported and ESTIMATE),
        "unknown": ("unknown", price.unknown),
    }[used]
    return source, cost, price.claimed if cost is None else cost


def priced_policies(upstream: str) -> str:
    deployments = "".join(
        f"""
  {name}:
    targets: [{{upstream: openai, model: {name}-1{price.target}}}]
    passthrough:
      - {{path: '/ways/{{way}}', to: '/{name}/{{way}}', methods: [GET, POST]{price.path}}}
    policy: here"""
        for name, price in PRICES.items()
    )
    return f"""
upstreams:
  openai:
    dialect: openai
    base_url: '{upstream}/v1'
    breaker: off
    max_answer_bytes: 64KiB
    timeouts: {{first_byte: 30s, idle: 2s, total: 60s}}
deployments:{deployments}
policies:
  here:
    match: all
    limits: [{{name: month, usd: 900 per month, unpriced: allow, per: deployment}}]
    output: [{{guard: keywords, words: [hippo]}}]
    opaque: allow
keys: {{widget: {{sha256: {digest(KEY)}, deployments: [{", ".join(PRICES)}]}}}}
"""


async def by_path(request: ReceivedRequest, wire: Wire) -> None:
    await WAYS[request.path.rpartition("/")[2]].script(request, wire)


async def make_call(
    client: ClientSession, upstream: ScriptedUpstream, name: str, way: str, method: str
) -> None:
    """Make a call. Disconnect once its upstream has it or has started to respond."""
    started = asyncio.Event()
    headers = {**BEARER, "x-headrace-deployment": name}
    if way == "total-timeout":
        headers["x-litellm-timeout"] = "0.5"
    body: dict[str, Any] = {} if method == "GET" else {"json": BODY}

    async def call() -> None:
        with suppress(aiohttp.ClientError):
            async with client.request(method, f"/ways/{way}", headers=headers, **body) as response:
                started.set()
                await response.read()

    def is_received() -> bool:
        return (method, f"/{name}/{way}") in [(r.method, r.path) for r in upstream.requests]

    task = asyncio.ensure_future(call())
    if WAYS[way].left:
        await eventually(is_received)
        if way != "left-before-head":
            await started.wait()
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_accounts_agree_at_every_end(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    path, policies = tmp_path / "ledger", priced_policies(upstream.url)
    upstream.answer_with(by_path)
    calls = [(name, way, method) for name in PRICES for way in WAYS for method in ("GET", "POST")]
    async with (
        running_proxy(tmp_path / "p", policies, ledger=LedgerLocation("sqlite", path)) as proxy,
        ClientSession(base_url=proxy.url, connector=aiohttp.TCPConnector(limit=0)) as client,
    ):
        for is_late in (False, True):  # calls with a short timeout run alone
            some = [charge for charge in calls if (charge[1] == "total-timeout") == is_late]
            await asyncio.gather(*(make_call(client, upstream, *charge) for charge in some))
        records = await proxy.sink.wait(len(calls))
        metrics = await proxy.metrics()

    wrong = {}
    for record in records:
        name, way = record.plan.deployment, record.head.passthrough.path.rpartition("/")[2]
        billing, method = record.billing, record.head.method
        charged = sum(charge.cost for charge in record.charges)
        observed = (record.outcome, billing.usage_source, billing.cost, charged)
        expected = (WAYS[way].outcome, *expected_money(name, way, method))
        if observed != expected:
            wrong[name, way, method] = observed, expected
    assert not wrong, "\n".join(map(str, wrong.items()))
    assert "/ways/" not in metrics
    assert len(records) == len(calls) == metric_total(metrics, "headrace_requests_total")
    tokens = sum(record.billing.tokens.total for record in records)
    assert tokens == metric_total(metrics, "headrace_tokens_total")
    assert audit(path).violations == ()
    money = sum(record.billing.cost or 0 for record in records)
    assert money == round(metric_total(metrics, "headrace_cost_usd_total") * 10**9)
    assert money == sum(row["cost_nano_usd"] or 0 for row in stored_rows(path))
    lines = [build_call_line(record)["cost_usd"] for record in records]
    assert money == sum(Decimal(str(charge or 0)) for charge in lines) * 10**9
    unknown = [record for record in records if record.billing.cost is None]
    unused = [record for record in records if record.billing.usage_source == "none"]
    assert len(unknown) + len(unused) == lines.count(None)
    used = [row for row in stored_rows(path, "attempts") if row["usage_source"] != "none"]
    assert len(unknown) == [row["cost_nano_usd"] for row in used].count(None)
    assert len(unknown) == metric_total(metrics, "headrace_unpriced_requests_total")
    charged = sum(charge.cost for record in records for charge in record.charges)
    assert charged == sum(row["cost_nano_usd"] for row in stored_rows(path, "charges"))


PICTURE = respond({"data": [], "usage": {"input_tokens": 10, "output_tokens": 4000}})
REQUEST = {"model": "pics", "prompt": "a tree", "n": 4}


def budget_world(upstream: str, maximum: str = "", price: str = "{input: 5, output: 40}") -> str:
    return f"""
upstreams: {{openai: {{dialect: openai, base_url: '{upstream}/v1'}}}}
deployments:
  pics:
    targets: [{{upstream: openai, model: gpt-image-1, price: {price}}}]
    passthrough:
      - {{path: /v1/images/generations{maximum}}}
      - {{path: /v1/audio/speech{maximum}}}
      - {{path: /v1/files, methods: [GET]}}
    limits: [{{name: day, usd: 1 per day, per: key}}]
  free:
    targets: [{{upstream: openai, model: mod, price: {{input: 0, output: 0}}}}]
    only_passthrough: true
    passthrough: [/v1/moderations]
    limits: [{{name: both, usd: 1 per day}}]
keys: {{widget: {{sha256: {digest(KEY)}, deployments: [pics, free]}}}}
"""


async def post(client: ClientSession, path: str, body: dict[str, Any]) -> tuple[int, str]:
    async with client.post(path, headers=BEARER, json=body) as response:
        await response.read()
        return response.status, response.headers.get("x-headrace-cost-usd", "")


@pytest.mark.parametrize(("maximum", "served"), [(", most_usd: 0.2", 5), ("", 12)])
async def test_parallel_calls_respect_the_budget(
    maximum: str, served: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """Each image costs 0.16005 USD of 1 USD per day."""
    gate = asyncio.Event()

    upstream.answer_with(gated(gate, PICTURE))
    async with running_proxy(tmp_path / "policies", budget_world(upstream.url, maximum)) as proxy:
        requests = [post(proxy.client, "/v1/images/generations", REQUEST) for _ in range(12)]
        calls = [*map(asyncio.ensure_future, requests)]
        await eventually(lambda: len(upstream.requests) + sum(c.done() for c in calls) == 12)
        gate.set()
        statuses = Counter([(await call)[0] for call in calls])

    assert statuses[200] == served
    assert statuses[429] == len(calls) - served
    assert (served * 0.16005 <= 1) is bool(maximum)


async def test_claim_covers_guard_route(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    dear = "{upstream: openai, model: dear, price: {input: 1000, output: 1000}}"
    guard = f"{{guard: keywords, words: [hippo], action: route, to: [{dear}]}}"
    text = budget_world(upstream.url) + f"policies: {{default: {{match: all, input: [{guard}]}}}}\n"
    upstream.answer_with(respond({"usage": {"input_tokens": 30, "output_tokens": 0}}))
    async with running_proxy(tmp_path / "policies", text) as proxy:
        for model, path in (("pics", "/v1/images/generations"), ("free", "/v1/moderations")):
            request = {"model": model, "input": "A hippo by the river, in the evening."}
            assert await post(proxy.client, path, request) == (200, "0.03")
        records = await proxy.sink.wait(2)

    for record in records:
        [claim] = record.limit_decision.claims
        assert claim.amount >= 10_000_000  # nano-USD for ten tokens at the route's target


@pytest.mark.parametrize("free", ["/v1/moderations", "{path: /v1/moderations, most_usd: 0.01}"])
async def test_free_calls_pass(free: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    text = budget_world(upstream.url).replace("name: both", "name: day, per: key")
    text = text.replace("[/v1/moderations]", f"[{free}]")
    text = text.replace("    limits: [{name: day, per: key, usd: 1 per day}]\n", "")
    text += "policies: {default: {match: all, limits: [{name: all, usd: 0.1 per day}]}}\n"
    async with running_proxy(tmp_path / "policies", text) as proxy:
        upstream.answer_with(PICTURE)
        assert await post(proxy.client, "/v1/images/generations", REQUEST) == (200, "0.16005")
        assert (await post(proxy.client, "/v1/images/generations", REQUEST))[0] == 429
        upstream.answer_with(respond({"results": []}))
        moderated = await post(proxy.client, "/v1/moderations", {"model": "free", "input": "x"})
        async with proxy.client.get("/v1/files", headers=BEARER) as response:
            looked_up = response.status, response.headers["x-headrace-cost-usd"]
        await proxy.sink.wait(4)

    assert moderated == looked_up == (200, "0")


async def test_passthrough_only_target(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond({"results": []}))
    chat, path = {"messages": [{"role": "user", "content": "hi"}]}, "/v1/chat/completions"
    by_name = {**BEARER, "x-headrace-deployment": "free"}
    async with running_proxy(tmp_path / "policies", budget_world(upstream.url)) as proxy:
        for model in ("free", "mod", "openai/mod"):
            answer = await post(proxy.client, path, {**chat, "model": model})
            assert answer[0] == 404
        request = {**chat, "model": "gpt-image-1"}
        async with proxy.client.post(path, headers=by_name, json=request) as response:
            assert response.status == 404
            assert "only its passthrough paths" in await response.text()
        async with proxy.client.get("/v1/models?names=all", headers=BEARER) as response:
            listed = {item["id"] for item in (await response.json())["data"]}
        for model in ("free", "mod"):
            answer = await post(proxy.client, "/v1/moderations", {"model": model, "input": "x"})
            assert answer[0] == 200

    assert "gpt-image-1" in listed
    assert listed.isdisjoint({"free", "mod", "openai/mod"})
