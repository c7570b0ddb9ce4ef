"""Records, logs, metrics, ledger and budget agree on money and tokens under faults."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from proxy.ledger.audit import audit
from proxy.money.usage import usd_text
from proxy.telemetry.log import canonical
from tests.doubles import (
    Asked,
    Script,
    ScriptedUpstream,
    Wire,
    answer,
    cut_before_head,
    event,
    head,
    legacy,
    legacy_events,
    piece,
    stream,
)
from tests.ledger.kept import kept, ledgered
from tests.test_pipeline import BEARER

CALLS = 150
TEXT = """retry: {times: 1, wait: 1ms, max_wait: 2ms}
    limits:
      - {name: month, usd: 900 per month, unpriced: allow}
      - {name: tokens, tokens: 100M per day}
      - {name: at-once, concurrency: 500}"""
CLAIM = 10 * 2000 + 20 * 4000  # nano-USD that the last call claims beforehand
REPORTED = 5 * 2000 + 3 * 4000  # nano-USD of what the scripted answers report


WAYS = (
    "answered", "streamed", "overloaded", "broken", "refused", "garbled", "gone", "cut", "left"
)  # fmt: skip


def begun(first_value: Any) -> Script:
    async def script(request: Asked, wire: Wire) -> None:
        await wire.send(head(200, "text/event-stream", "transfer-encoding: chunked"))
        await wire.send(piece(event(first_value)))
        await request.closed.wait()

    return script


def drawn(draw: random.Random) -> tuple[str, Script, bool]:
    long = legacy_events("y" * 40, "z" * 40)
    ways: dict[str, tuple[Script, bool]] = {
        "answered": (answer(legacy()), False),
        "streamed": (stream(legacy_events(" Par", "is.")), True),
        "overloaded": (answer({}, 503), False),
        "broken": (answer({}, 500), False),
        "refused": (answer({}, 400), False),
        "garbled": (answer(b"{"), False),
        "gone": (cut_before_head(), False),
        "cut": (stream(long, cut_after=1), True),
        "left": (begun(long[0]), True),
    }
    name = draw.choice(WAYS)
    return name, *ways[name]


async def ask(client: ClientSession, model: str, way: str, *, streamed: bool) -> None:
    body = {"model": "resilient", "prompt": "x" * 40, "user": model, "stream": streamed}
    with suppress(aiohttp.ClientError):
        async with client.post("/v1/completions", headers=BEARER, json=body) as response:
            if way == "left":
                await response.content.readany()
                return  # in the middle of its stream
            await response.read()


def summed(metrics: str, name: str) -> Decimal:
    return sum(
        (
            Decimal(str(sample.value))
            for family in text_string_to_metric_families(metrics)
            for sample in family.samples
            if sample.name == name
        ),
        Decimal(0),
    )


class Mixed:
    """A provider whose first response to each call is drawn. Counts whole responses."""

    def __init__(self) -> None:
        self.firsts: dict[str, Script] = {}
        self.ways: list[tuple[str, str, bool]] = []
        self.later = 0
        draw = random.Random(20260131)  # noqa: S311  # a mix that can be had again
        for number in range(CALLS):
            way, script, streamed = drawn(draw)
            self.firsts[f"call-{number}"] = script
            self.ways.append((f"call-{number}", way, streamed))

    async def __call__(self, request: Any, wire: Any) -> None:
        script = self.firsts.pop(request.json.get("user"), None)
        if script is None:
            self.later += 1
            script = answer(legacy())
        await script(request, wire)

    @property
    def answers(self) -> int:
        return self.later + sum(way in ("answered", "streamed") for _, way, _ in self.ways)


@dataclass
class Told:
    records: list[Any]
    metrics: str
    explained: str
    attempts: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    charges: list[dict[str, Any]]


async def told_of(mixed: Mixed, folder: Path, upstream: ScriptedUpstream) -> Told:
    async with ledgered(folder, upstream, TEXT) as (proxy, client, path):
        for start in range(0, CALLS, 10):
            batch = mixed.ways[start : start + 10]
            await asyncio.gather(*(ask(client, u, w, streamed=s) for u, w, s in batch))
        await proxy.sink.wait(CALLS)
        body = {"model": "resilient", "prompt": "x" * 40, "max_tokens": 20}
        headers = {**BEARER, "x-request-id": "the-last"}
        async with client.post("/v1/completions", headers=headers, json=body) as response:
            assert response.status == 200
        records = await proxy.sink.wait(CALLS + 1)
        async with client.get(f"{proxy.admin}/explain/the-last") as response:
            explained = await response.text()
        metrics = await proxy.metrics()
    assert audit(path).violations == ()
    charges = kept(path, "charges")
    return Told(records, metrics, explained, kept(path, "attempts"), kept(path), charges)


async def test_accounts_agree_under_faults(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    mixed = Mixed()
    upstream.answer_with(mixed)

    event = await told_of(mixed, tmp_path, upstream)

    lines = [canonical(record) for record in event.records]
    money = sum(record.billing.cost for record in event.records)
    assert {way for _, way, _ in mixed.ways} == set(WAYS)
    assert money == sum(Decimal(str(line["cost_usd"] or 0)) for line in lines) * 10**9
    assert money == round(summed(event.metrics, "headrace_cost_usd_total") * 10**9)
    assert money == sum(row["cost_nano_usd"] or 0 for row in event.attempts)
    assert money == sum(row["cost_nano_usd"] for row in event.charges)
    count_before = money - REPORTED + CLAIM  # as it stood when the last call was admitted
    reserved = f"this call reserved {usd_text(CLAIM)} USD"
    used = f"{usd_text(count_before)} USD of 900 USD used"
    assert f"month admitted ({reserved}; {used})" in event.explained
    assert "at-once admitted (this call reserved 1; 1 of 500 used)" in event.explained

    tokens = sum(record.billing.tokens.total for record in event.records)
    assert tokens == summed(event.metrics, "headrace_tokens_total")
    assert tokens == sum((r["tokens_in"] or 0) + (r["tokens_out"] or 0) for r in event.attempts)
    assert money >= mixed.answers * REPORTED
    assert len(event.calls) == CALLS + 1 == summed(event.metrics, "headrace_requests_total")
    removed = sum(way == "gone" for _, way, _ in mixed.ways)  # a dead connection is replaced once
    assert len(event.attempts) <= len(upstream.requests) <= len(event.attempts) + removed
