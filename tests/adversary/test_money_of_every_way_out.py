"""However a call goes and ends, its rows, the budget, the metrics, the log line and its explanation
say the same of its money: what it cost, what of that was lost, and why."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from proxy.emit.log import canonical
from proxy.ledger.audit import audit
from proxy.ledger.spending import spent
from proxy.usage import usd_text
from tests.conftest import Proxy
from tests.doubles import ScriptedUpstream, answer, hang, legacy, legacy_events, stream
from tests.ledger.kept import kept, ledgered
from tests.test_pipeline import BEARER

Client = ClientSession
Way = Callable[[Client, ScriptedUpstream], Awaitable[None]]
BODY = {"model": "resilient", "prompt": "x" * 40, "max_tokens": 1}  # 10 tokens of a prompt
LIMITS = "limits: [{name: month, usd: 900 per month}]"
GUARD = "policies: {{looked: {{output: [{{guard: keywords, words: [hippo], action: {}}}]}}}}"


async def call(client: Client, **more: Any) -> None:
    with suppress(aiohttp.ClientError):
        async with client.post("/v1/completions", headers=BEARER, json={**BODY, **more}) as asked:
            await asked.read()


async def leave(client: Client, upstream: ScriptedUpstream, asked: int = 1, **more: Any) -> None:
    """Ask, and close the connection once so many requests have reached the upstreams."""
    asking = asyncio.ensure_future(
        client.post("/v1/completions", headers=BEARER, json={**BODY, **more})
    )
    async with asyncio.timeout(10):
        while len(upstream.requests) < asked:  # noqa: ASYNC110  # the event is set by the first
            await asyncio.sleep(0.005)
    asking.cancel()
    await asyncio.wait([asking])


async def leave_midway(client: Client, **more: Any) -> None:
    body = {**BODY, "stream": True, **more}
    response = await client.post("/v1/completions", headers=BEARER, json=body)
    await response.content.readany()
    response.close()


def begun(**first: Any) -> Any:
    """A stream that says 40 characters, 10 tokens, and then no more."""
    events = [{**event, **first} for event in legacy_events("y" * 40, "z")]
    return stream(events, gate=asyncio.Event())


async def whole(client: Client, upstream: ScriptedUpstream) -> None:
    await call(client)


async def streamed(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(stream(legacy_events(" Par", "is.")))
    await call(client, stream=True)


async def early_usage_only(client: Client, upstream: ScriptedUpstream) -> None:
    """The usage of the first event is the only one, and 40 characters follow it."""
    first, *rest = legacy_events("", "y" * 40, with_usage=False)
    usage = {"prompt_tokens": 10, "completion_tokens": 0}
    upstream.answer_with(stream([{**first, "usage": usage}, *rest]))
    await call(client, stream=True)


async def gone_before_head(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(hang())
    await leave(client, upstream)


async def out_of_its_own_time(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(hang())
    await call(client, inference_timeout=1.1, max_tokens=20)


async def gone_before_head_of_a_stream(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(hang())
    await leave(client, upstream, stream=True)


async def gone_midway(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(begun())
    await leave_midway(client)


async def gone_midway_after_usage_0(client: Client, upstream: ScriptedUpstream) -> None:
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    upstream.answer_with(begun(usage=usage))
    await leave_midway(client)


async def gone_midway_after_more(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(begun(usage={"prompt_tokens": 12, "completion_tokens": 15}))
    await leave_midway(client)


async def gone_from_one_that_reasons(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(begun())
    await leave_midway(client, reasoning_effort="high", max_tokens=11)


async def gone_from_two(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(hang())
    await leave(client, upstream, asked=2)


async def cut(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(stream(legacy_events("y" * 40, "z"), cut_after=1))
    await call(client, stream=True)


async def failing(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer({}, 500))
    await call(client)


async def at_fault(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer({"error": {"code": "context_length_exceeded"}}, 400))
    await call(client)


async def at_fault_midway(client: Client, upstream: ScriptedUpstream) -> None:
    error = {"error": {"message": "no", "type": "invalid_request_error"}}
    upstream.answer_with(stream([*legacy_events("y" * 40), error]))
    await call(client, stream=True)


async def retried(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.then(answer({}, 503), answer(legacy()))
    await call(client)


async def garbled(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {"primary": answer(b'{"choices": [')}
    await call(client)


async def hedged(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {"primary": hang()}
    await call(client)


async def blocked(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer(legacy("a hippo")))
    await call(client)


async def blocked_midway(client: Client, upstream: ScriptedUpstream) -> None:
    """The guard ends the stream at its 48th character: 12 tokens."""
    events = legacy_events("y" * 40, " hippo .", "z" * 400)
    upstream.answer_with(stream(events))
    await call(client, stream=True)


async def asked_again(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.then(answer(legacy("a hippo")), answer(legacy("a horse")))
    await call(client)


def in_turn(*scripts: Any) -> Any:
    """Do one thing after the other, request by request."""
    left = iter(scripts)

    async def script(asked: Any, wire: Any) -> None:
        await next(left)(asked, wire)

    return script


async def asked_again_after_a_failure(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.then(answer({}, 503), answer(legacy("a hippo")), answer(legacy("a horse")))
    await call(client)


async def asked_again_after_an_answer_in_part(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {"primary": answer(b'{"choices": [')}
    upstream.by_model["spare"] = in_turn(answer(legacy("a hippo")), answer(legacy("a horse")))
    await call(client)


async def asked_again_after_a_hedge(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {"primary": hang()}
    upstream.by_model["spare"] = in_turn(answer(legacy("a hippo")), answer(legacy("a horse")))
    await call(client)


async def asked_again_and_failing(client: Client, upstream: ScriptedUpstream) -> None:
    upstream.then(answer(legacy("a hippo")), answer({}, 503), answer(legacy("a horse")))
    await call(client)


async def kept_answer(client: Client, upstream: ScriptedUpstream) -> None:
    await call(client)
    await call(client)


async def shared_answer(client: Client, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()

    async def slow(asked: Any, wire: Any) -> None:
        await gate.wait()
        await answer(legacy())(asked, wire)

    upstream.answer_with(slow)
    both = asyncio.gather(call(client), call(client))
    async with asyncio.timeout(10):
        await upstream.came.wait()
    await asyncio.sleep(0.05)  # the second one has no way to show that it waits
    gate.set()
    await both


class Row(NamedTuple):
    """What the row of an attempt says. In nano-USD a token asked costs 2000, one said 4000."""

    why: str
    usage_source: str
    cost: int | None
    money: str
    loss: str | None


@dataclass(frozen=True)
class Expected:
    rows: tuple[Row, ...]
    said: str = ""
    policies: str = ""
    calls: int = 1


GOOD = Row("first", "provider", 22_000, "useful", None)
CACHED = Row("first", "none", None, "cached", None)
HEDGE = "hedge: {after: 20ms}"
RETRY = "retry: {times: 1, wait: 1ms}"
LOOKED = "policy: looked"
CACHE = ("policy: looked", "policies: {looked: {cache: {ttl: 1h}}}")


def left(cost: int) -> Row:
    """A call that its client left, of so many micro-USD."""
    return Row("first", "partial_estimate", cost * 1000, "abandoned", "client_left")


WAYS: dict[Way, Expected] = {
    whole: Expected((GOOD,)),
    streamed: Expected((GOOD,)),
    early_usage_only: Expected((Row("first", "partial_estimate", 60_000, "useful", None),)),
    gone_before_head: Expected((left(20 + 4),)),  # a token at least of an answer that is whole
    out_of_its_own_time: Expected((left(20 + 80),)),  # 50 tokens in a second, of 20 at the most
    gone_before_head_of_a_stream: Expected((left(20),)),
    gone_midway: Expected((left(20 + 40),)),
    gone_midway_after_usage_0: Expected((left(20 + 40),)),
    gone_midway_after_more: Expected((left(24 + 60),)),
    gone_from_one_that_reasons: Expected((left(22 + 44),)),  # 11 tokens were allowed
    gone_from_two: Expected((left(24), left(24)._replace(why="hedge")), HEDGE),
    cut: Expected((Row("first", "partial_estimate", 60_000, "abandoned", "upstream_broke"),)),
    at_fault: Expected((Row("first", "none", None, "abandoned", None),)),
    at_fault_midway: Expected((Row("first", "partial_estimate", 60_000, "abandoned", "refused"),)),
    failing: Expected(
        (
            Row("first", "none", None, "retried", "retry"),
            Row("fallback", "none", None, "abandoned", "upstream_broke"),
        )
    ),
    retried: Expected(
        (Row("first", "none", None, "retried", "retry"), GOOD._replace(why="retry")), RETRY
    ),
    garbled: Expected(
        (
            Row("first", "partial_estimate", 24_000, "retried", "retry"),
            GOOD._replace(why="fallback"),
        )
    ),
    hedged: Expected(
        (
            Row("first", "partial_estimate", 24_000, "abandoned", "hedge"),
            GOOD._replace(why="hedge"),
        ),
        HEDGE,
    ),
    blocked: Expected(
        (Row("first", "provider", 22_000, "blocked", "guard"),), LOOKED, GUARD.format("block")
    ),
    blocked_midway: Expected(
        (Row("first", "partial_estimate", 68_000, "blocked", "guard"),),
        LOOKED,
        GUARD.format("block"),
    ),
    asked_again: Expected(
        (Row("first", "provider", 22_000, "blocked", "guard"), GOOD._replace(why="guard")),
        LOOKED,
        GUARD.format("retry"),
    ),
    asked_again_after_a_failure: Expected(
        (
            Row("first", "none", None, "retried", "retry"),
            Row("retry", "provider", 22_000, "blocked", "guard"),
            GOOD._replace(why="guard"),
        ),
        f"{LOOKED}\n    {RETRY}",
        GUARD.format("retry"),
    ),
    asked_again_after_an_answer_in_part: Expected(
        (
            Row("first", "partial_estimate", 24_000, "retried", "retry"),
            Row("fallback", "provider", 22_000, "blocked", "guard"),
            Row("guard", "partial_estimate", 24_000, "retried", "retry"),
            GOOD._replace(why="fallback"),
        ),
        LOOKED,
        GUARD.format("retry"),
    ),
    asked_again_after_a_hedge: Expected(
        (
            Row("first", "partial_estimate", 24_000, "abandoned", "hedge"),
            Row("hedge", "provider", 22_000, "blocked", "guard"),
            Row("guard", "partial_estimate", 24_000, "abandoned", "hedge"),
            GOOD._replace(why="hedge"),
        ),
        f"{LOOKED}\n    {HEDGE}",
        GUARD.format("retry"),
    ),
    asked_again_and_failing: Expected(
        (
            Row("first", "provider", 22_000, "blocked", "guard"),
            Row("guard", "none", None, "retried", "retry"),
            GOOD._replace(why="retry"),
        ),
        f"{LOOKED}\n    {RETRY}",
        GUARD.format("retry"),
    ),
    kept_answer: Expected((GOOD, CACHED), *CACHE, calls=2),
    shared_answer: Expected((GOOD, CACHED), *CACHE, calls=2),
}


@dataclass
class Told:
    """What every account says in the end."""

    records: list[Any]
    metrics: dict[str, list[tuple[dict[str, str], float]]]
    explained: str
    rows: list[dict[str, Any]]
    path: Path

    def metric(self, name: str, **labels: str) -> Decimal:
        """Nano-USD of all series with these labels."""
        found = self.metrics.get(name, [])
        values = [value for have, value in found if labels.items() <= have.items()]
        return round(sum((Decimal(str(value)) for value in values), Decimal(0)) * 10**9, 1)


async def told_of(way: Way, folder: Path, upstream: ScriptedUpstream) -> Told:
    expected = WAYS[way]
    said = f"{LIMITS}\n    {expected.said}"
    async with ledgered(folder, upstream, said, policies_too=expected.policies) as place:
        proxy, client, path = place
        await way(client, upstream)
        records = await proxy.sink.wait(expected.calls)
        metrics: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in text_string_to_metric_families(await read(proxy, client, "metrics")):
            for sample in family.samples:
                metrics.setdefault(sample.name, []).append((sample.labels, sample.value))
        [first, *_] = sorted(records, key=lambda record: -(record.billing.cost or 0))
        explained = await read(proxy, client, f"explain/{first.head.request_id}")
    assert audit(path).violations == ()
    return Told(records, metrics, explained, kept(path, "attempts"), path)


async def read(proxy: Proxy, client: Client, what: str) -> str:
    async with client.get(f"{proxy.admin}/{what}") as response:
        return await response.text()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_accounts_agree(way: Way, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    expected = WAYS[way].rows

    told = await told_of(way, tmp_path, upstream)

    columns = ("why", "usage_source", "cost_nano_usd", "money", "loss")
    found = sorted(told.rows, key=lambda row: (row["money"] == "cached", row["seq"], row["number"]))
    assert tuple(Row(*(row[name] for name in columns)) for row in found) == expected

    cost = sum(row.cost or 0 for row in expected)
    lost = sum(row.cost or 0 for row in expected if row.loss)
    lines = [canonical(record) for record in told.records]
    assert sum(Decimal(str(line["cost_usd"] or 0)) for line in lines) * 10**9 == cost
    assert sum(Decimal(str(line["lost_cost_usd"] or 0)) for line in lines) * 10**9 == lost
    for line in lines:
        is_used = line["usage_source"] != "none"
        assert (line["tokens"] is not None) == (is_used and line["usage_source"] != "unknown")
        assert is_used or line["cost_usd"] is line["lost_cost_usd"] is None
    assert told.metric("headrace_cost_usd_total") == cost
    assert told.metric("headrace_budget_spent_usd") == cost
    assert told.metric("headrace_lost_cost_usd_total") == lost
    for row in expected:
        same = [each for each in expected if (each.loss, each.money) == (row.loss, row.money)]
        used = sum(each.cost or 0 for each in same)
        assert told.metric("headrace_money_usd_total", use=row.money) == used
        if row.loss:
            assert told.metric("headrace_lost_cost_usd_total", cause=row.loss) == used
    if cost:
        dearest = max(record.billing.cost for record in told.records)
        assert f"{usd_text(dearest)} USD" in told.explained

    now = datetime.now(UTC)
    total = spent(told.path, ["loss"], now - timedelta(days=1), now + timedelta(days=1))
    assert (total.total.cost or 0, total.total.lost or 0) == (cost, lost)
    by_cause = {line.group[0]: line.cost or 0 for line in total.lines}
    for row in expected:
        assert by_cause[row.loss] == sum(e.cost or 0 for e in expected if e.loss == row.loss)


def test_every_cause_of_a_loss_is_gone_through() -> None:
    causes = {row.loss for expected in WAYS.values() for row in expected.rows}

    assert causes == {None, "client_left", "refused", "upstream_broke", "guard", "retry", "hedge"}
