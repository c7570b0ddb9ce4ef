"""Searches for ends of a call after which its accounts disagree on its money.

The accounts are ledger rows, budgets, metrics, log lines and the explanation of the call.
"""

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
    chat,
    hang,
    legacy_completion,
    legacy_events,
    respond,
    stream,
)
from tests.ledger.records import proxy_with_ledger, stored_rows
from tests.servers import eventually
from tests.test_pipeline import BEARER

BODY = {"model": "resilient", "prompt": "x" * 40, "max_tokens": 1}  # a prompt of 10 tokens
LIMITS = "limits: [{name: month, usd: 900 per month}]"
GUARD = (
    "policies: {{guarded-policy: {{output: [{{guard: keywords, words: [hippo], action: {}}}]}}}}"
)
HEDGE = "hedge: {after: 20ms}"
RETRY = "retry: {times: 1, wait: 1ms}"
GUARDED = "policy: guarded-policy"


def stalled(**first_document: Any) -> Script:
    """Return a stream that hangs after 40 characters (10 tokens)."""
    events = [{**event, **first_document} for event in legacy_events("y" * 40, "z")]
    return stream(events, gate=asyncio.Event())


def respond_in_order(*scripts: Script) -> Script:
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


PARIS, HIPPO, HORSE = (
    respond(legacy_completion(text)) for text in (" Paris.", "a hippo", "a horse")
)


@dataclass(frozen=True)
class CallEnd:
    """An end of a call, and the expected rows of its attempts."""

    rows: tuple[Row, ...] = ()
    script: Script = PARIS
    by_model: Mapping[str, Script] = field(default_factory=dict)
    first: tuple[Script, ...] = ()
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=lambda: BEARER)
    path: str = "/v1/completions"
    outcome: str = "success"
    settings: str = ""
    policies: str = ""
    leaves_after: int | None = None
    """Requests after which the client leaves. 0: it leaves once the response has started."""
    calls: int = 1
    is_concurrent: bool = False


BROKEN = respond(b'{"choices": [')
STREAMED: dict[str, Any] = {"stream": True}
PROMPT = {"prompt_tokens": 10, "completion_tokens": 0}
HEAD, *TAIL = legacy_events("", "y" * 40, with_usage=False)
NO_USAGE = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0)
BLOCK: dict[str, Any] = {
    "settings": GUARDED,
    "policies": GUARD.format("block"),
    "outcome": "blocked",
}
RETRIES: dict[str, Any] = {"settings": GUARDED, "policies": GUARD.format("retry")}
CACHING: dict[str, Any] = {
    "settings": GUARDED,
    "policies": "policies: {guarded-policy: {cache: {ttl: 1h}}}",
}


def aborted(cost: int, script: Script, *, after: int = 0, served: int = 1, **body: Any) -> CallEnd:
    """Return the end of a call whose client leaves, at a cost in micro-USD."""
    rows = (estimated(cost, "client_left", served=served),)
    return CallEnd(rows, script, body=body, leaves_after=after, outcome="client_abort")


CALL_ENDS: dict[str, CallEnd] = {
    "whole": CallEnd((GOOD,)),
    "streamed": CallEnd((GOOD,), stream(legacy_events(" Par", "is.")), body=STREAMED),
    "streamed without usage": CallEnd((estimated(60, None, "useful"),),
        stream(legacy_events("y" * 40, with_usage=False)), body=STREAMED),
    "usage in the first event only": CallEnd(
        (estimated(60, None, "useful"),), stream([{**HEAD, "usage": PROMPT}, *TAIL]), body=STREAMED
    ),
    "unpriced": CallEnd(
        (GOOD._replace(cost=None),), respond(chat(" Paris.")), body={"model": "search-answers"}
    ),
    "stranger": CallEnd(headers={"Authorization": "Bearer hr-nobody"}, outcome="client_error"),
    "unknown path": CallEnd(path="/v1/nothing", outcome="client_error"),
    "bad field": CallEnd(body={"n": "many"}, outcome="client_error"),
    # a whole response has at least one token
    "gone before the head": aborted(20 + 4, hang(), after=1, served=0),
    "gone before the head of a stream": aborted(20, hang(), after=1, served=0, **STREAMED),
    "gone midway": aborted(20 + 40, stalled(), **STREAMED),
    "gone midway after usage 0": aborted(20 + 40, stalled(usage=NO_USAGE), **STREAMED),
    "gone midway after more usage": aborted(
        24 + 60, stalled(usage={"prompt_tokens": 12, "completion_tokens": 15}), **STREAMED
    ),
    "gone from a model that reasons": aborted(  # 11 tokens were allowed
        22 + 44, stalled(), **STREAMED, reasoning_effort="high", max_tokens=11
    ),
    "out of the client's time": CallEnd(
        (estimated(20 + 80, "client_left", served=0),),  # 50 tokens per second, at most 20
        hang(),
        body={"inference_timeout": 1.1, "max_tokens": 20},
        outcome="client_error",
    ),
    "gone from two": CallEnd(
        (
            estimated(24, "client_left", served=0),
            estimated(24, "client_left", served=0)._replace(why="hedge"),
        ),
        hang(),
        settings=HEDGE,
        leaves_after=2,
        outcome="client_abort",
    ),
    "cut": CallEnd((estimated(60, "upstream_broke"),),
        stream(legacy_events("y" * 40, "z"), cut_after=1), body=STREAMED, outcome="upstream_error"),
    "failing": CallEnd((RETRIED, Row("fallback", "none", None, "abandoned", "upstream_broke", 0)),
        respond({}, 500), outcome="upstream_error"),
    "at fault": CallEnd((Row("first", "none", None, "abandoned", None, 0),),
        respond({"error": {"code": "context_length_exceeded"}}, 400), outcome="client_error"),
    "at fault midway": CallEnd(
        (estimated(60, "refused"),),
        stream([*legacy_events("y" * 40), {"error": {"type": "invalid_request_error"}}]),
        body=STREAMED,
        outcome="client_error",
    ),
    "fallback": CallEnd(
        (RETRIED, next_attempt("fallback")), by_model={"primary": respond({}, 500)}
    ),
    "retried": CallEnd((RETRIED, next_attempt("retry")), first=(respond({}, 503),), settings=RETRY),
    "garbled": CallEnd((GARBLED, next_attempt("fallback")), by_model={"primary": BROKEN}),
    "hedged": CallEnd((SLOW, next_attempt("hedge")), by_model={"primary": hang()}, settings=HEDGE),
    "several": CallEnd(
        (GOOD, Row("first", "none", None, "abandoned", "upstream_broke", 0)),
        by_model={"second": respond({}, 500)},
        path="/v1/completion",
        body={"model": ["first", "second"]},
    ),
    "blocked": CallEnd((BLOCKED._replace(served=1),), HIPPO, **BLOCK),
    "blocked midway": CallEnd(
        (estimated(68, "guard", "blocked"),),  # blocked at the 48th character: 12 tokens
        stream(legacy_events("y" * 40, " hippo .", "z" * 400)),
        body=STREAMED,
        **BLOCK,
    ),
    "guard retry": CallEnd((BLOCKED, next_attempt("guard")), first=(HIPPO, HORSE), **RETRIES),
    "guard retry after a failure": CallEnd(
        (RETRIED, BLOCKED._replace(why="retry"), next_attempt("guard")),
        first=(respond({}, 503), HIPPO, HORSE),
        **RETRIES | {"settings": f"{GUARDED}\n    {RETRY}"},
    ),
    "guard retry after a part": CallEnd(
        (
            GARBLED,
            BLOCKED._replace(why="fallback"),
            GARBLED._replace(why="guard"),
            next_attempt("fallback"),
        ),
        by_model={"primary": BROKEN, "spare": respond_in_order(HIPPO, HORSE)},
        **RETRIES,
    ),
    "guard retry after a hedge": CallEnd(
        (SLOW, BLOCKED._replace(why="hedge"), SLOW._replace(why="guard"), next_attempt("hedge")),
        by_model={"primary": hang(), "spare": respond_in_order(HIPPO, HORSE)},
        **RETRIES | {"settings": f"{GUARDED}\n    {HEDGE}"},
    ),
    "guard retry that fails once": CallEnd(
        (BLOCKED, RETRIED._replace(why="guard"), next_attempt("retry")),
        first=(HIPPO, respond({}, 503), HORSE),
        **RETRIES | {"settings": f"{GUARDED}\n    {RETRY}"},
    ),
    "cached": CallEnd((GOOD, CACHED), calls=2, **CACHING),
    "shared": CallEnd((GOOD, CACHED), calls=2, is_concurrent=True, **CACHING),
}  # fmt: skip


async def make_call(end: CallEnd, proxy: Proxy, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()

    async def gated(request: ReceivedRequest, wire: Wire) -> None:
        await gate.wait()
        await end.script(request, wire)

    async def call() -> None:
        with suppress(aiohttp.ClientError):
            body = {**BODY, **end.body}
            async with proxy.client.post(end.path, headers=end.headers, json=body) as response:
                if end.leaves_after == 0:
                    await response.content.readany()
                    response.close()
                await response.read()

    upstream.answer_with(gated if end.is_concurrent else end.script)
    upstream.by_model = dict(end.by_model)
    upstream.then(*end.first)
    if end.is_concurrent:
        calls = asyncio.gather(*(call() for _ in range(end.calls)))
        await upstream.arrived.wait()
        await asyncio.sleep(0.05)  # the second call gives no signal that it waits
        gate.set()
        await calls
        return
    for _ in range(end.calls):
        task = asyncio.ensure_future(call())
        if end.leaves_after:
            await eventually(lambda: len(upstream.requests) == end.leaves_after)
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


async def read_accounts(end: CallEnd, folder: Path, upstream: ScriptedUpstream) -> Accounts:
    text = f"{LIMITS}\n    {end.settings}"
    async with proxy_with_ledger(folder, upstream, text, policies_too=end.policies) as (
        proxy,
        _,
        ledger,
    ):
        await make_call(end, proxy, upstream)
        records = await proxy.sink.wait(end.calls)
        metrics = await proxy.metrics()
        most_expensive = max(records, key=lambda record: record.billing.cost or 0)
        path = f"/explain/{most_expensive.head.request_id}" if end.rows else "/health"
        explained = await proxy.read(path)
    assert audit(ledger).violations == ()
    return Accounts(records, metrics, explained, stored_rows(ledger, "attempts"), ledger)


@pytest.mark.parametrize("name", CALL_ENDS)
async def test_accounts_agree(name: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    end = CALL_ENDS[name]
    expected = end.rows
    accounts = await read_accounts(end, tmp_path, upstream)
    columns = ("why", "usage_source", "cost_nano_usd", "money", "loss", "served")
    matches = sorted(
        accounts.rows, key=lambda row: (row["money"] == "cached", row["seq"], row["number"])
    )
    lines = [build_call_line(record) for record in accounts.records]

    assert tuple(Row(*(row[name] for name in columns)) for row in matches) == expected
    assert {line["outcome"] for line in lines} == {end.outcome}
    check_rows(accounts, lines)
    check_money(accounts, lines, expected)
    requests = sum(row.money != "cached" for row in expected)
    assert len(upstream.requests) == requests == accounts.total("headrace_upstream_attempts_total")


def check_rows(accounts: Accounts, lines: list[dict[str, Any]]) -> None:
    """Compare the rows of calls and attempts with log lines and metrics."""
    rows = {row["request_id"]: row for row in stored_rows(accounts.path)}
    assert len(rows) == len(lines) == accounts.total("headrace_requests_total")
    for line in lines:
        row = rows[line["request_id"]]
        for column in ("trace_id", "span_id", "key", "deployment", "policy", "status", "outcome"):
            assert row[column] == line[column], column
        assert json.loads(row["tags"] or "{}") == line["tags"]
        assert (row["tokens"] or 0) == sum((line["tokens"] or {}).values())
        numbers = sorted(
            document["number"] for document in accounts.rows if document["seq"] == row["seq"]
        )
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) == row["attempts"]
    tokens = sum((row["tokens_in"] or 0) + (row["tokens_out"] or 0) for row in accounts.rows)
    assert sum(row["tokens"] or 0 for row in rows.values()) == tokens
    assert accounts.total("headrace_tokens_total") == tokens


def check_money(accounts: Accounts, lines: list[dict[str, Any]], expected: tuple[Row, ...]) -> None:
    """Compare cost and lost cost in log lines, metrics, the explanation and the ledger."""
    cost = sum(row.cost or 0 for row in expected)
    lost_cost = sum(row.cost or 0 for row in expected if row.loss)
    assert sum(Decimal(str(line["cost_usd"] or 0)) for line in lines) * 10**9 == cost
    assert sum(Decimal(str(line["lost_cost_usd"] or 0)) for line in lines) * 10**9 == lost_cost
    for line in lines:
        is_used = line["usage_source"] != "none"
        assert (line["tokens"] is not None) == (is_used and line["usage_source"] != "unknown")
        assert is_used or line["cost_usd"] is line["lost_cost_usd"] is None

    assert accounts.nano("headrace_cost_usd_total") == cost
    is_limited = all(line["deployment"] == "resilient" for line in lines)
    assert accounts.nano("headrace_budget_spent_usd") == (cost if is_limited else 0)
    assert accounts.nano("headrace_lost_cost_usd_total") == lost_cost
    for row in expected:
        rows = [item for item in expected if (item.loss, item.money) == (row.loss, row.money)]
        used = sum(item.cost or 0 for item in rows)
        assert accounts.nano("headrace_money_usd_total", use=row.money) == used
        if row.loss:
            assert accounts.nano("headrace_lost_cost_usd_total", cause=row.loss) == used
    if cost:
        most_expensive = max(record.billing.cost for record in accounts.records)
        assert f"{format_usd(most_expensive)} USD" in accounts.explained
    now = datetime.now(UTC)
    total = read_spending(accounts.path, ["loss"], now - timedelta(days=1), now + timedelta(days=1))
    assert (total.total.cost or 0, total.total.lost_cost or 0) == (cost, lost_cost)
    by_cause = {line.group[0]: line.cost or 0 for line in total.lines}
    for row in expected:
        assert by_cause[row.loss] == sum(r.cost or 0 for r in expected if r.loss == row.loss)


def test_every_loss_reason_has_a_case() -> None:
    causes = {row.loss for end in CALL_ENDS.values() for row in end.rows}
    assert causes == {None, "client_left", "refused", "upstream_broke", "guard", "retry", "hedge"}
