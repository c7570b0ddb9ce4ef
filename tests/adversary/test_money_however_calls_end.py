"""However a call ends, its rows, budget, metrics, log line and explanation agree on its money."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from proxy.ledger.audit import audit
from proxy.ledger.spending import read_spending
from proxy.money.usage import format_usd
from proxy.telemetry.log import build_call_line
from tests.conftest import Proxy, metric_total
from tests.doubles import (
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    Wire,
    answer,
    chat,
    hang,
    legacy,
    legacy_events,
    stream,
)
from tests.ledger.records import proxy_with_ledger, stored_rows
from tests.servers import eventually
from tests.test_pipeline import BEARER

BODY = {"model": "resilient", "prompt": "x" * 40, "max_tokens": 1}  # a prompt of 10 tokens
LIMITS = "limits: [{name: month, usd: 900 per month}]"
GUARD = "policies: {{looked: {{output: [{{guard: keywords, words: [hippo], action: {}}}]}}}}"
HEDGE = "hedge: {after: 20ms}"
RETRY = "retry: {times: 1, wait: 1ms}"
GUARDED = "policy: looked"


def stalled(**first_document: Any) -> Script:
    """Return a stream that hangs after 40 characters (10 tokens)."""
    events = [{**event, **first_document} for event in legacy_events("y" * 40, "z")]
    return stream(events, gate=asyncio.Event())


def in_turn(*scripts: Script) -> Script:
    remaining = iter(scripts)

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await next(remaining)(request, wire)

    return script


class Row(NamedTuple):
    """The row of an attempt. In nano-USD an input token costs 2000, an output token 4000."""

    why: str
    usage_source: str = "provider"
    cost: int | None = 22_000
    money: str = "useful"
    loss: str | None = None
    served: int = 1


GOOD = Row("first")
CACHED = Row("first", "none", None, "cached")
RETRIED = Row("first", "none", None, "retried", "retry", 0)
BLOCKED = Row("first", "provider", 22_000, "blocked", "guard", 0)
GARBLED = RETRIED._replace(usage_source="partial_estimate", cost=24_000)
SLOW = Row("first", "partial_estimate", 24_000, "abandoned", "hedge", 0)


def next_attempt(why: str) -> Row:
    return GOOD._replace(why=why)


def estimated(cost: int, loss: str | None, money: str = "abandoned", served: int = 1) -> Row:
    """Return an attempt of ``cost`` micro-USD with estimated usage."""
    return Row("first", "partial_estimate", cost * 1000, money, loss, served)


PARIS, HIPPO, HORSE = (answer(legacy(text)) for text in (" Paris.", "a hippo", "a horse"))


@dataclass(frozen=True)
class Way:
    """One way for a call to end, and what its accounts say."""

    rows: tuple[Row, ...] = ()
    always: Script = PARIS
    models: Mapping[str, Script] = field(default_factory=dict)
    queue: tuple[Script, ...] = ()
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=lambda: BEARER)
    path: str = "/v1/completions"
    outcome: str = "success"
    settings: str = ""
    policies: str = ""
    leaves: int | None = None
    """Requests to upstreams before the client leaves; 0 to leave once the response has begun."""
    calls: int = 1
    at_once: bool = False


BROKEN = answer(b'{"choices": [')
STREAM: dict[str, Any] = {"stream": True}
PROMPT = {"prompt_tokens": 10, "completion_tokens": 0}
HEAD, *TAIL = legacy_events("", "y" * 40, with_usage=False)
NO_USAGE = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0)
QUIT: dict[str, Any] = {"outcome": "client_abort"}
BLOCK: dict[str, Any] = {
    "settings": GUARDED,
    "policies": GUARD.format("block"),
    "outcome": "blocked",
}
RETRIES: dict[str, Any] = {"settings": GUARDED, "policies": GUARD.format("retry")}
CACHING: dict[str, Any] = {
    "settings": GUARDED,
    "policies": "policies: {looked: {cache: {ttl: 1h}}}",
}
WAYS: dict[str, Way] = {
    "whole": Way((GOOD,)),
    "streamed": Way((GOOD,), stream(legacy_events(" Par", "is.")), body=STREAM),
    "streamed without usage": Way((estimated(60, None, "useful"),),
        stream(legacy_events("y" * 40, with_usage=False)), body=STREAM),
    "usage in the first event only": Way(
        (estimated(60, None, "useful"),), stream([{**HEAD, "usage": PROMPT}, *TAIL]), body=STREAM
    ),
    "unpriced": Way(
        (GOOD._replace(cost=None),), answer(chat(" Paris.")), body={"model": "search-answers"}
    ),
    "stranger": Way(headers={"Authorization": "Bearer hr-nobody"}, outcome="client_error"),
    "unknown path": Way(path="/v1/nothing", outcome="client_error"),
    "bad field": Way(body={"n": "many"}, outcome="client_error"),
    "gone before the head": Way(
        (estimated(20 + 4, "client_left", served=0),),  # a whole response has at least one token
        hang(),
        leaves=1,
        **QUIT,
    ),
    "out of the client's time": Way(
        (estimated(20 + 80, "client_left", served=0),),  # 50 tokens per second, at most 20
        hang(),
        body={"inference_timeout": 1.1, "max_tokens": 20},
        outcome="client_error",
    ),
    "gone before the head of a stream": Way(
        (estimated(20, "client_left", served=0),), hang(), body=STREAM, leaves=1, **QUIT
    ),
    "gone midway": Way(
        (estimated(20 + 40, "client_left"),), stalled(), body=STREAM, leaves=0, **QUIT
    ),
    "gone midway after usage 0": Way(
        (estimated(20 + 40, "client_left"),), stalled(usage=NO_USAGE), body=STREAM, leaves=0, **QUIT
    ),
    "gone midway after more usage": Way((estimated(24 + 60, "client_left"),),
        stalled(usage={"prompt_tokens": 12, "completion_tokens": 15}), body=STREAM, leaves=0,
        **QUIT),
    "gone from a model that reasons": Way(
        (estimated(22 + 44, "client_left"),),  # 11 tokens were allowed
        stalled(),
        body={**STREAM, "reasoning_effort": "high", "max_tokens": 11},
        leaves=0,
        **QUIT,
    ),
    "gone from two": Way(
        (
            estimated(24, "client_left", served=0),
            estimated(24, "client_left", served=0)._replace(why="hedge"),
        ),
        hang(),
        settings=HEDGE,
        leaves=2,
        **QUIT,
    ),
    "cut": Way((estimated(60, "upstream_broke"),),
        stream(legacy_events("y" * 40, "z"), cut_after=1), body=STREAM, outcome="upstream_error"),
    "failing": Way((RETRIED, Row("fallback", "none", None, "abandoned", "upstream_broke", 0)),
        answer({}, 500), outcome="upstream_error"),
    "at fault": Way((Row("first", "none", None, "abandoned", None, 0),),
        answer({"error": {"code": "context_length_exceeded"}}, 400), outcome="client_error"),
    "at fault midway": Way(
        (estimated(60, "refused"),),
        stream([*legacy_events("y" * 40), {"error": {"type": "invalid_request_error"}}]),
        body=STREAM,
        outcome="client_error",
    ),
    "fallback": Way((RETRIED, next_attempt("fallback")), models={"primary": answer({}, 500)}),
    "retried": Way((RETRIED, next_attempt("retry")), queue=(answer({}, 503),), settings=RETRY),
    "garbled": Way((GARBLED, next_attempt("fallback")), models={"primary": BROKEN}),
    "hedged": Way((SLOW, next_attempt("hedge")), models={"primary": hang()}, settings=HEDGE),
    "several": Way(
        (GOOD, Row("first", "none", None, "abandoned", "upstream_broke", 0)),
        models={"second": answer({}, 500)},
        path="/v1/completion",
        body={"model": ["first", "second"]},
    ),
    "blocked": Way((BLOCKED._replace(served=1),), HIPPO, **BLOCK),
    "blocked midway": Way(
        (estimated(68, "guard", "blocked"),),  # blocked at the 48th character: 12 tokens
        stream(legacy_events("y" * 40, " hippo .", "z" * 400)),
        body=STREAM,
        **BLOCK,
    ),
    "guard retry": Way((BLOCKED, next_attempt("guard")), queue=(HIPPO, HORSE), **RETRIES),
    "guard retry after a failure": Way(
        (RETRIED, BLOCKED._replace(why="retry"), next_attempt("guard")),
        queue=(answer({}, 503), HIPPO, HORSE),
        **RETRIES | {"settings": f"{GUARDED}\n    {RETRY}"},
    ),
    "guard retry after a part": Way(
        (
            GARBLED,
            BLOCKED._replace(why="fallback"),
            GARBLED._replace(why="guard"),
            next_attempt("fallback"),
        ),
        models={"primary": BROKEN, "spare": in_turn(HIPPO, HORSE)},
        **RETRIES,
    ),
    "guard retry after a hedge": Way(
        (SLOW, BLOCKED._replace(why="hedge"), SLOW._replace(why="guard"), next_attempt("hedge")),
        models={"primary": hang(), "spare": in_turn(HIPPO, HORSE)},
        **RETRIES | {"settings": f"{GUARDED}\n    {HEDGE}"},
    ),
    "guard retry that fails once": Way(
        (BLOCKED, RETRIED._replace(why="guard"), next_attempt("retry")),
        queue=(HIPPO, answer({}, 503), HORSE),
        **RETRIES | {"settings": f"{GUARDED}\n    {RETRY}"},
    ),
    "cached": Way((GOOD, CACHED), calls=2, **CACHING),
    "shared": Way((GOOD, CACHED), calls=2, at_once=True, **CACHING),
}  # fmt: skip


async def make_call(way: Way, proxy: Proxy, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()

    async def gated(request: ReceivedRequest, wire: Wire) -> None:
        await gate.wait()
        await way.always(request, wire)

    async def call() -> None:
        with suppress(aiohttp.ClientError):
            body = {**BODY, **way.body}
            async with proxy.client.post(way.path, headers=way.headers, json=body) as response:
                if way.leaves == 0:
                    await response.content.readany()
                    response.close()
                await response.read()

    upstream.answer_with(gated if way.at_once else way.always)
    upstream.by_model = dict(way.models)
    upstream.then(*way.queue)
    if way.at_once:
        calls = asyncio.gather(*(call() for _ in range(way.calls)))
        await upstream.arrived.wait()
        await asyncio.sleep(0.05)  # the second call gives no signal that it waits
        gate.set()
        await calls
        return
    for _ in range(way.calls):
        task = asyncio.ensure_future(call())
        if way.leaves:
            await eventually(lambda: len(upstream.requests) == way.leaves)
            task.cancel()
        await asyncio.wait([task])


@dataclass
class Accounts:
    records: list[Any]
    metrics: str
    explained: str
    rows: list[dict[str, Any]]
    path: Path

    def total(self, name: str, **labels: str) -> Decimal:
        return metric_total(self.metrics, name, **labels)

    def nano(self, name: str, **labels: str) -> Decimal:
        return round(self.total(name, **labels) * 10**9, 1)


async def accounts_of(way: Way, folder: Path, upstream: ScriptedUpstream) -> Accounts:
    text = f"{LIMITS}\n    {way.settings}"
    async with proxy_with_ledger(folder, upstream, text, policies_too=way.policies) as (
        proxy,
        _,
        ledger,
    ):
        await make_call(way, proxy, upstream)
        records = await proxy.sink.wait(way.calls)
        metrics = await proxy.metrics()
        dearest = max(records, key=lambda record: record.billing.cost or 0)
        path = f"/explain/{dearest.head.request_id}" if way.rows else "/health"
        explained = await proxy.read(path)
    assert audit(ledger).violations == ()
    return Accounts(records, metrics, explained, stored_rows(ledger, "attempts"), ledger)


@pytest.mark.parametrize("name", WAYS)
async def test_accounts_agree(name: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    way = WAYS[name]
    expected = way.rows
    event = await accounts_of(way, tmp_path, upstream)
    columns = ("why", "usage_source", "cost_nano_usd", "money", "loss", "served")
    matches = sorted(
        event.rows, key=lambda row: (row["money"] == "cached", row["seq"], row["number"])
    )
    lines = [build_call_line(record) for record in event.records]

    assert tuple(Row(*(row[name] for name in columns)) for row in matches) == expected
    assert {line["outcome"] for line in lines} == {way.outcome}
    check_rows(event, lines)
    check_money(event, lines, expected)
    requests = sum(row.money != "cached" for row in expected)
    assert len(upstream.requests) == requests == event.total("headrace_upstream_attempts_total")


def check_rows(event: Accounts, lines: list[dict[str, Any]]) -> None:
    """Compare the rows of calls and attempts with log lines and metrics."""
    rows = {row["request_id"]: row for row in stored_rows(event.path)}
    assert len(rows) == len(lines) == event.total("headrace_requests_total")
    for line in lines:
        row = rows[line["request_id"]]
        for column in ("trace_id", "span_id", "key", "deployment", "policy", "status", "outcome"):
            assert row[column] == line[column], column
        assert json.loads(row["tags"] or "{}") == line["tags"]
        assert (row["tokens"] or 0) == sum((line["tokens"] or {}).values())
        numbers = sorted(
            document["number"] for document in event.rows if document["seq"] == row["seq"]
        )
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) == row["attempts"]
    tokens = sum((row["tokens_in"] or 0) + (row["tokens_out"] or 0) for row in event.rows)
    assert sum(row["tokens"] or 0 for row in rows.values()) == tokens
    assert event.total("headrace_tokens_total") == tokens


def check_money(event: Accounts, lines: list[dict[str, Any]], expected: tuple[Row, ...]) -> None:
    """Compare cost and lost cost in log lines, metrics, the explanation and the ledger."""
    cost = sum(row.cost or 0 for row in expected)
    lost_count = sum(row.cost or 0 for row in expected if row.loss)
    assert sum(Decimal(str(line["cost_usd"] or 0)) for line in lines) * 10**9 == cost
    assert sum(Decimal(str(line["lost_cost_usd"] or 0)) for line in lines) * 10**9 == lost_count
    for line in lines:
        is_used = line["usage_source"] != "none"
        assert (line["tokens"] is not None) == (is_used and line["usage_source"] != "unknown")
        assert is_used or line["cost_usd"] is line["lost_cost_usd"] is None

    assert event.nano("headrace_cost_usd_total") == cost
    is_limited = all(line["deployment"] == "resilient" for line in lines)
    assert event.nano("headrace_budget_spent_usd") == (cost if is_limited else 0)
    assert event.nano("headrace_lost_cost_usd_total") == lost_count
    for row in expected:
        rows = [item for item in expected if (item.loss, item.money) == (row.loss, row.money)]
        used = sum(item.cost or 0 for item in rows)
        assert event.nano("headrace_money_usd_total", use=row.money) == used
        if row.loss:
            assert event.nano("headrace_lost_cost_usd_total", cause=row.loss) == used
    if cost:
        dearest = max(record.billing.cost for record in event.records)
        assert f"{format_usd(dearest)} USD" in event.explained
    now = datetime.now(UTC)
    total = read_spending(event.path, ["loss"], now - timedelta(days=1), now + timedelta(days=1))
    assert (total.total.cost or 0, total.total.lost_cost or 0) == (cost, lost_count)
    by_cause = {line.group[0]: line.cost or 0 for line in total.lines}
    for row in expected:
        assert by_cause[row.loss] == sum(e.cost or 0 for e in expected if e.loss == row.loss)


def test_every_loss_reason_has_a_case() -> None:
    causes = {row.loss for way in WAYS.values() for row in way.rows}
    assert causes == {None, "client_left", "refused", "upstream_broke", "guard", "retry", "hedge"}
