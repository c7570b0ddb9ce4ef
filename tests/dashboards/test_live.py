"""Expressions of dashboards and rules, evaluated by Prometheus on real traffic."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.settings import LedgerLocation
from tests.conftest import running_proxy
from tests.dashboards import expressions
from tests.dashboards.expressions import Expression, board
from tests.dashboards.prometheus import Prometheus, eventually, prometheus
from tests.dashboards.traffic import Models, drive, policies
from tests.doubles import scripted_upstream
from tests.servers import program

WAVES = 4


@dataclass(frozen=True)
class History:
    """A Prometheus that scraped a proxy, with the ledger and the metrics of the proxy."""

    server: Prometheus
    scraped_at: float
    ledger: Path
    metrics: str

    def evaluate(self, expression: Expression, expr: str | None = None) -> list[Any]:
        text = Expression(expression.where, expr or expression.expr)
        filled = text.filled(range="10m", rate_interval="1m")
        for offset in (" offset 1w", " offset 1d", " offset 30m", " offset 15m"):
            filled = filled.replace(offset, "")  # without data of the past
        return self.server.query(filled, self.scraped_at)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    with ExitStack() as stack:
        yield asyncio.run(record_history(tmp_path_factory.mktemp("live"), stack))


async def record_history(folder: Path, stack: ExitStack) -> History:
    """Send waves of calls through a proxy that Prometheus scrapes."""
    ledger = folder / "ledger"
    candidate = folder / "candidate"
    candidate.mkdir()
    async with scripted_upstream() as upstream:
        upstream.answer_with(Models())
        text = policies(upstream.url)
        (candidate / "policies.yaml").write_text(text.replace("max_tokens: 200", "max_tokens: 100"))
        stores: dict[str, Any] = {
            "ledger": LedgerLocation("sqlite", ledger),
            "candidate": candidate,
        }
        async with running_proxy(folder / "policies", text, **stores) as proxy:
            target = proxy.admin.removeprefix("http://")
            server = stack.enter_context(prometheus(folder, target))
            await scraped(server, 0)
            async with aiohttp.ClientSession(base_url=proxy.url) as client:
                calls = 0
                for number in range(WAVES):
                    calls += await drive(client, number)
                    await proxy.sink.wait(calls)
                    await scraped(server, calls)
                    (proxy.policies / "policies.yaml").write_text(f"{text}# {number}\n")
                async with client.get(f"{proxy.admin}/metrics") as response:
                    metrics = await response.text()
            scraped_at = server.number("max(timestamp(headrace_build_info))")
    assert scraped_at is not None
    return History(server, scraped_at, ledger, metrics)


async def scraped(server: Prometheus, calls: int) -> None:
    """Wait until Prometheus has scraped this number of calls."""

    def is_scraped() -> bool:
        return server.number("(sum(headrace_requests_total) or vector(0)) * scalar(up)") == calls

    await asyncio.to_thread(eventually, is_scraped, f"{calls} calls are scraped")


def test_expressions_return_series(history: History) -> None:
    empty = [item.where for item in expressions.of_boards() if not history.evaluate(item)]

    assert not empty, "\n".join(empty)


def test_variables_have_values(history: History) -> None:
    for path in expressions.BOARDS:
        for variable in board(path)["templating"]["list"][1:]:
            metric, label = variable["query"][len("label_values(") : -1].split(", ")
            values = history.server.get(f"/api/v1/label/{label}/values", **{"match[]": metric})
            assert values, variable["query"]


ATTEMPTS = (
    "SELECT {}, SUM(a.cost_nano_usd) FROM attempts a JOIN calls c USING (run, seq) GROUP BY 1"
)
SPEND = {
    "Spend": ("", "'all'"),
    "Spend by deployment": ("deployment", "c.deployment"),
    "Spend by model": ("model", "a.model"),
    "Spend by key": ("key", "c.key"),
    "Spend by use": ("use", "a.money"),
    "By $tag": ("value", "COALESCE(json_extract(c.tags, '$.team'), 'none')"),
}


@pytest.mark.parametrize("title", SPEND)
def test_spend_equals_the_ledger(title: str, history: History) -> None:
    label, column = SPEND[title]
    [panel] = [item for item in expressions.of_boards() if item.where == f"cost: {title} A"]

    nano = {
        item["metric"].get(label, "all"): round(float(item["value"][1]) * 1e9, 1)
        for item in history.evaluate(panel)
    }

    with closing(sqlite3.connect(history.ledger)) as file:
        stored = dict(file.execute(ATTEMPTS.format(column)).fetchall())
    assert {name: money for name, money in nano.items() if money} == {
        name: money for name, money in stored.items() if money
    }
    assert sum(nano.values()) > 0


def test_promtool_accepts_the_metrics(history: History) -> None:
    process = subprocess.run(
        [program("promtool"), "check", "metrics"],
        input=history.metrics,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_rules_have_series(history: History) -> None:
    empty = [
        f"{rule.where}: {part}"
        for rule in expressions.of_rules()
        for part in expressions.operands(rule.expr)
        if "headrace_ledger_drift_usd" not in part  # updated every five minutes at most
        and not history.evaluate(rule, part)
    ]

    assert not empty, "\n".join(empty)
