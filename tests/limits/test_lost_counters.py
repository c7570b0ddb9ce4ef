"""Spend is counted once if Redis loses its data at any moment in the life of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import aiohttp
import pytest

from tests.conftest import Proxy
from tests.doubles import ScriptedUpstream, legacy_completion, legacy_events, respond, stream
from tests.ledger.records import stored_rows
from tests.limits.conftest import replicas, with_limits
from tests.limits.test_init import ask
from tests.servers import Server, eventually
from tests.test_pipeline import BEARER

BUDGET = "{name: month, usd: 1 per month, unpriced: allow}"
EVENTS = legacy_events(" a", " b", " c")


@dataclass
class Run:
    """Calls of some replicas that take turns, and a server that loses its data in between."""

    proxies: list[Proxy]
    server: Server
    upstream: ScriptedUpstream
    leaves_early: bool
    ledgers: list[Path]
    calls: int = 0
    streams: list[tuple[asyncio.Event, asyncio.Task[None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.turns = cycle(self.proxies)

    def next_proxy(self) -> Proxy:
        self.calls += 1
        return next(self.turns)

    async def call(self) -> None:
        self.upstream.answer_with(respond(legacy_completion()))
        assert (await ask(self.next_proxy().client))[0] == 200

    async def begin(self) -> None:
        """Begin a stream, and return when its first event has arrived."""
        gate, has_begun = asyncio.Event(), asyncio.Event()
        self.upstream.answer_with(stream(EVENTS, gate=gate))
        reading = self._read(self.next_proxy(), has_begun, gate)
        self.streams.append((gate, asyncio.ensure_future(reading)))
        await has_begun.wait()

    async def _read(self, proxy: Proxy, has_begun: asyncio.Event, gate: asyncio.Event) -> None:
        body = {"model": "support-chat", "prompt": "x" * 40, "max_tokens": 20, "stream": True}
        with suppress(aiohttp.ClientError):
            async with proxy.client.post("/v1/completions", headers=BEARER, json=body) as response:
                await response.content.readany()
                has_begun.set()
                await gate.wait()
                if self.leaves_early:
                    response.close()
                await response.read()

    async def end(self) -> None:
        """End the oldest stream, or leave it. Return when its record is complete."""
        (gate, reading), records = self.streams.pop(0), self.count_records()
        gate.set()
        await reading
        await eventually(lambda: self.count_records() > records)

    async def lose(self) -> None:
        self.server.admin.flushall()

    async def evict(self) -> None:
        """Remove the budget, and keep the calls."""
        with self.server.admin as admin:
            for key in list(admin.scan_iter("headrace:{limits}:nano_usd:month:*")):
                admin.delete(key)

    async def settle(self) -> None:
        """Wait until the ended calls are settled."""
        await eventually(lambda: self.count_claims() <= len(self.streams))

    async def write(self) -> None:
        """Wait until the ledgers have the rows of the ended calls."""
        await eventually(lambda: self.count_records() == self.calls - len(self.streams))
        await self.settle()
        if self.ledgers:
            await eventually(lambda: self.count_rows() == self.count_records())

    def count_claims(self) -> int:
        """Return the number of calls whose claims are charged and not settled."""
        with self.server.admin as admin:
            keys = list(admin.scan_iter("headrace:{limits}:call:*"))
            return sum(bool(admin.get(key)) for key in keys)

    def count_rows(self) -> int:
        return sum(len(stored_rows(path)) for path in self.ledgers)

    def count_records(self) -> int:
        return sum(len(proxy.records) for proxy in self.proxies)

    def count_spend(self) -> int:
        """Return the nano-USD in the counter, 0 without a counter."""
        spend = 0
        with self.server.admin as admin:
            for key in admin.scan_iter("headrace:{limits}:nano_usd:month:*"):
                fields = {name.decode(): int(value) for name, value in admin.hgetall(key).items()}
                spend += sum(value for name, value in fields.items() if name.isdigit())
        return spend


LIVES = {
    "before a claim": "lose call",
    "after a settlement": "call settle lose call",
    "after a row": "call write lose call",
    "before a settlement": "begin lose end call",
    "before a row": "begin lose end write call",
    "before a backfill": "begin lose call end",
    "before a backfill of a row": "call begin write lose call end",
    "before two settlements": "begin begin lose end write call end write call",
    "among other calls": "call begin begin settle lose begin call end end write call end",
    "during a backfilled call": "begin lose begin call lose end end write call",
    "twice": "begin lose end lose call",
    "twice after rows": "begin begin lose end write call lose end write call",
    "of the counter alone": "call begin settle evict call end write",
    "without a call afterwards": "begin begin lose end end write",
}
"""Steps by the moment of the loss. The last calls of each replica follow."""


@pytest.mark.parametrize("leaves_early", [False, True], ids=["complete", "disconnected"])
@pytest.mark.parametrize("has_ledgers", [True, False], ids=["ledger", "no ledger"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
async def test_spend_is_counted_once(
    life: str,
    count: int,
    has_ledgers: bool,
    leaves_early: bool,
    *,
    tmp_path: Path,
    upstream: ScriptedUpstream,
    server: Server,
) -> None:
    policies = with_limits(upstream, BUDGET)
    async with replicas(tmp_path, policies, server, count, ledgers=has_ledgers) as proxies:
        paths = [tmp_path / f"{number}.db" for number in range(count if has_ledgers else 0)]
        run = Run(proxies, server, upstream, leaves_early, paths)
        steps: dict[str, Callable[[], Awaitable[None]]] = {
            "call": run.call,
            "begin": run.begin,
            "end": run.end,
            "lose": run.lose,
            "evict": run.evict,
            "settle": run.settle,
            "write": run.write,
        }
        for step in (*life.split(), *["call"] * count, "write"):
            await steps[step]()
        counted = run.count_spend()

    charges = [charge for proxy in proxies for record in proxy.records for charge in record.charges]
    assert counted == sum(charge.cost for charge in charges)
    if has_ledgers:
        rows = [row for path in paths for row in stored_rows(path, "charges")]
        assert counted == sum(row["cost_nano_usd"] for row in rows)
