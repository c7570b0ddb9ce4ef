"""Real traffic, a real Prometheus: every expression answers, and money is what the ledger says."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.settings import LedgerAt
from tests.conftest import running_proxy
from tests.dashboards import expressions
from tests.dashboards.expressions import Said, board
from tests.dashboards.prometheus import Prometheus, eventually, prometheus
from tests.dashboards.traffic import Models, drive, policies
from tests.doubles import scripted_upstream
from tests.servers import program

WAVES = 4


@dataclass(frozen=True)
class History:
    """What Prometheus saw of a proxy up to its last scrape; that proxy's ledger and metrics."""

    server: Prometheus
    last: float
    ledger: Path
    metrics: str

    def ask(self, fields: Said, expr: str | None = None) -> list[Any]:
        filled = Said(fields.where, expr or fields.expr).filled(range="10m", rate_interval="1m")
        for value_before in (" offset 1w", " offset 1d", " offset 30m", " offset 15m"):
            filled = filled.replace(value_before, "")  # there is no past yet
        return self.server.ask(filled, self.last)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    with ExitStack() as opened:
        yield asyncio.run(lived(tmp_path_factory.mktemp("live"), opened))


async def lived(folder: Path, opened: ExitStack) -> History:
    """Drive waves of calls through a proxy that is scraped; Prometheus stays for the tests."""
    ledger = folder / "ledger"
    candidate = folder / "candidate"
    candidate.mkdir()
    async with scripted_upstream() as upstream:
        upstream.answer_with(Models())
        text = policies(upstream.url)
        (candidate / "policies.yaml").write_text(text.replace("max_tokens: 200", "max_tokens: 100"))
        position = LedgerAt("sqlite", ledger)
        async with running_proxy(
            folder / "policies", text, ledger=position, candidate=candidate
        ) as proxy:
            target = proxy.admin.removeprefix("http://")
            server = opened.enter_context(prometheus(folder, target))
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
            last_seconds = server.number("max(timestamp(headrace_build_info))")
    assert last_seconds is not None
    return History(server, last_seconds, ledger, metrics)


async def scraped(server: Prometheus, calls: int) -> None:
    """Wait until Prometheus knows of so many calls, and has evaluated its rules since."""

    def knows() -> bool:
        return server.number("(sum(headrace_requests_total) or vector(0)) * scalar(up)") == calls

    await asyncio.to_thread(eventually, knows, f"{calls} calls are scraped")


def test_every_expression_of_every_panel_gives_series(history: History) -> None:
    silent = [of_board.where for of_board in expressions.of_boards() if not history.ask(of_board)]

    assert not silent, "\n".join(silent)


def test_every_variable_has_values(history: History) -> None:
    for path in expressions.BOARDS:
        for variable in board(path)["templating"]["list"][1:]:
            metric, label = variable["query"][len("label_values(") : -1].split(", ")
            values = history.server.get(f"/api/v1/label/{label}/values", **{"match[]": metric})
            assert values, variable["query"]


ATTEMPTS = (
    "SELECT {}, SUM(a.cost_nano_usd) FROM attempts a JOIN calls c USING (run, seq) GROUP BY 1"
)
MONEY = {
    "Spent in range": ("", "'all'"),
    "Spent in range by deployment": ("deployment", "c.deployment"),
    "Spent in range by model": ("model", "a.model"),
    "Spent in range by key": ("key", "c.key"),
    "Spent in range by use": ("use", "a.money"),
    "By $tag": ("value", "COALESCE(json_extract(c.tags, '$.team'), 'none')"),
}


@pytest.mark.parametrize("title", MONEY)
def test_the_money_shown_is_the_ledgers_to_the_nano_dollar(title: str, history: History) -> None:
    label, column = MONEY[title]
    [output] = [
        of_board for of_board in expressions.of_boards() if of_board.where == f"cost: {title} A"
    ]

    nano = {
        item["metric"].get(label, "all"): round(float(item["value"][1]) * 1e9, 1)
        for item in history.ask(output)
    }

    with closing(sqlite3.connect(history.ledger)) as file:
        stored = dict(file.execute(ATTEMPTS.format(column)).fetchall())
    assert {name: money for name, money in nano.items() if money} == {
        name: money for name, money in stored.items() if money
    }
    assert sum(nano.values()) > 0


def test_prometheus_finds_nothing_to_mend_in_the_metrics(history: History) -> None:
    process = subprocess.run(
        [program("promtool"), "check", "metrics"],
        input=history.metrics,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_latencies_lead_to_traces(history: History) -> None:
    query = "headrace_request_duration_seconds_bucket"
    start, end = f"{history.last - 60:.0f}", f"{history.last + 1:.0f}"

    result = history.server.get("/api/v1/query_exemplars", query=query, start=start, end=end)

    names = [sery["labels"] for series in result for sery in series["exemplars"]]
    assert names
    assert all(re.fullmatch("[0-9a-f]{32}", labels["trace_id"]) for labels in names)


def test_every_alert_and_record_has_series_to_judge(history: History) -> None:
    silent = [
        f"{of_rule.where}: {part}"
        for of_rule in expressions.of_rules()
        for part in expressions.operands(of_rule.expr)
        if "headrace_ledger_drift_usd" not in part  # it is asked for every five minutes at most
        and not history.ask(of_rule, part)
    ]

    assert not silent, "\n".join(silent)
