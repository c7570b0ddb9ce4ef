"""Searches for calls after which the ledger, limits, metrics, logs and records disagree.

Calls combine guards, caches, failover, failures of the upstream and disconnects of the client.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import ClientSession

from proxy.call.summary import summarize
from proxy.ledger.audit import audit
from proxy.settings import LedgerLocation
from proxy.telemetry.log import build_call_line
from tests.adversary.combined_features import (
    EVERY_STEP,
    SEQUENCES,
    ObedientUpstream,
    Step,
    build_policies,
)
from tests.adversary.examples import check_examples
from tests.conftest import Proxy, metric_total, running_proxy
from tests.doubles import scripted_upstream
from tests.ledger.records import stored_rows
from tests.servers import eventually
from tests.test_pipeline import BEARER

BATCH_SIZE = 128
CALLS_PER_SEQUENCE = 3
MAX_CLAIM = 20 * 4000 + 20 * 2000  # nano-USD, maximum claim of the last call
SENTINEL = {"model": "one", "prompt": "a last one", "max_tokens": 20}
SPEND_PATTERN = re.compile(r"month admitted \(this call reserved [0-9.]+ USD; ([0-9.]+) USD of")


@dataclass
class CombinedProxy:
    """A proxy whose deployments combine features, and the steps sent to it."""

    proxy: Proxy
    client: ClientSession
    behaviors: ObedientUpstream
    ledger: Path
    calls: int = 0

    async def send_all(self, sequence: list[tuple[Step, int]]) -> None:
        """Send each step by its number of concurrent clients, then compare all accounts."""
        for step, clients in sequence:
            async with asyncio.TaskGroup() as group:
                for _ in range(clients):
                    group.create_task(self.send(step, self.calls))
                    self.calls += 1
        await self.proxy.sink.wait(self.calls)
        await self.compare_accounts()

    async def send(self, step: Step, number: int) -> None:
        headers = {**BEARER, "x-headrace-deployment": "-".join(step.combination)}
        post = partial(self.client.post, step.path, headers=headers, json=step.body(number))
        with suppress(aiohttp.ClientError, TimeoutError):
            if step.disconnect == "leaves-early":
                await self._disconnect_early(post)
                return
            async with asyncio.timeout(20), post() as response:
                if step.disconnect == "leaves-midway":
                    await response.content.readany()
                    response.close()
                    return
                text = await response.read()
                assert response.status < 500 or response.status in (502, 503, 504), text

    async def _disconnect_early(self, post: Callable[[], Any]) -> None:
        """Send a call, and disconnect once the proxy has started it."""

        async def posted() -> None:
            async with post() as response:
                await response.read()

        async with asyncio.TaskGroup() as group:
            task = group.create_task(posted())
            await eventually(lambda: task.done() or self.proxy.sink.begun >= self.calls)
            task.cancel()

    async def compare_accounts(self) -> None:
        """Raise ``AssertionError`` unless all accounts of all calls agree."""
        cost_before = sum(
            record.billing.cost or 0 for record in await self.proxy.sink.wait(self.calls)
        )
        name = f"sentinel-{self.calls}"
        headers = {**BEARER, "x-headrace-deployment": "none-unkept-plain", "x-request-id": name}
        async with self.client.post("/v1/completions", headers=headers, json=SENTINEL) as response:
            assert response.status == 200, await response.text()
        self.calls += 1
        records = await self.proxy.sink.wait(self.calls)
        assert len(records) == self.calls
        await eventually(lambda: self._count_rows() == self.calls)
        explained = await self.proxy.read(f"/explain/{name}")
        metrics = await self.proxy.metrics()
        attempts = stored_rows(self.ledger, "attempts")
        money = sum(record.billing.cost or 0 for record in records)
        assert money == sum(row["cost_nano_usd"] or 0 for row in attempts)
        assert money == round(metric_total(metrics, "headrace_cost_usd_total") * 10**9)
        lost_cost = sum(row["cost_nano_usd"] or 0 for row in attempts if row["loss"] is not None)
        assert lost_cost == sum(summarize(record).lost_cost or 0 for record in records)
        assert lost_cost == round(metric_total(metrics, "headrace_lost_cost_usd_total") * 10**9)
        failed = [row for row in attempts if row["error"] not in (None, "cancelled")]
        assert [row for row in failed if row["loss"] == "guard" and not row["served"]] == []
        amount = Decimal(self._month_spend(explained)) * 10**9
        assert cost_before <= amount <= cost_before + MAX_CLAIM
        assert "at-once admitted (this call reserved 1; 1 of 200 used)" in explained
        assert metric_total(metrics, "headrace_requests_total") == self.calls
        tokens = sum(record.billing.tokens.total for record in records)
        assert tokens >= self.behaviors.reported_tokens
        assert tokens == metric_total(metrics, "headrace_tokens_total")
        costs = [build_call_line(record)["cost_usd"] or 0 for record in records]
        assert money == sum(Decimal(str(cost)) for cost in costs) * 10**9

    def _count_rows(self) -> int:
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(self.ledger)) as file:
            return int(file.execute("SELECT COUNT(*) FROM calls").fetchone()[0])
        return -1

    @staticmethod
    def _month_spend(explained: str) -> str:
        match = SPEND_PATTERN.search(explained)
        assert match is not None, explained
        return match[1]


@asynccontextmanager
async def combined_proxy(folder: Path) -> AsyncIterator[CombinedProxy]:
    async with scripted_upstream() as upstream:
        behaviors = ObedientUpstream()
        upstream.answer_with(behaviors)
        ledger = folder / "ledger.db"
        location = LedgerLocation("sqlite", ledger)
        async with running_proxy(
            folder / "policies", build_policies(upstream.url), ledger=location
        ) as proxy:
            yield CombinedProxy(proxy, proxy.client, behaviors, ledger)
        violations = audit(ledger).violations
        assert violations == ()


async def test_accounts_agree_for_each_pair_of_features(tmp_path: Path) -> None:
    async with combined_proxy(tmp_path) as running:
        for start in range(0, len(EVERY_STEP), BATCH_SIZE):
            await running.send_all([(step, 1) for step in EVERY_STEP[start : start + BATCH_SIZE]])


async def test_accounts_agree_for_random_sequences(tmp_path: Path, examples: int) -> None:
    async with combined_proxy(tmp_path) as running:
        await check_examples(SEQUENCES, running.send_all, examples // CALLS_PER_SEQUENCE)
