"""Spend panels whose time range starts without a sample, evaluated by promtool."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.dashboards.expressions import of_boards
from tests.dashboards.test_rules import promtool
from tests.for_each import for_each

PANELS = {item.where: item for item in of_boards()}
COST = 'headrace_cost_usd_total{deployment="reports", instance="a", job="headrace"}'
STARTED = 'process_start_time_seconds{instance="a", job="headrace"}'
DAY, MONTH = 1440, 31 * 1440  # minutes from 1970, where promtool starts


@dataclass(frozen=True)
class Scenario:
    """Samples of one minute each, and the result of a panel for its range before a minute."""

    name: str
    cost: str
    started: str
    minute: int
    range_minutes: int
    usd: int
    tolerance: int
    panel: str = "Spend"


def running(samples_before: int, gap: str, samples_after: int) -> tuple[str, str]:
    """Return samples of a process that started 3 days earlier and spends 1 USD per minute."""
    spend = 4320 + samples_before + int(gap.split("x")[1])
    costs = f"4320+1x{samples_before - 1} {gap} {spend}+1x{samples_after}"
    return costs, f"-259200x{samples_before - 1} {gap} -259200x{samples_after}"


SCENARIOS = (
    Scenario("range starts in a gap", *running(710, "_x20", 1500), 2160, DAY, 1440, 20),
    Scenario("a scrape failed at the start", *running(715, "_x10", 1500), 2160, DAY, 1440, 12),
    Scenario("no sample before the range", *running(1, "_x725", 1500), 2160, DAY, 1440, 12),
    Scenario("no gap", *running(10, "_x5", 2200), 2160, DAY, 1440, 1),
    Scenario(
        "day starts in a gap", *running(1435, "_x12", 800), DAY + 720, 720, 720, 12, "Spend today"
    ),
    Scenario("just after midnight", *running(1435, "_x7", 30), DAY + 4, 4, 2, 2, "Spend today"),
    Scenario(
        "month starts in a gap, at 1440 USD per day",
        *running(MONTH - 5, "_x12", 400),
        MONTH + 360,
        360,
        28 * 1440,
        12,
        "Forecast for the month",
    ),
    Scenario(
        "process starts in the range with a count above 0",
        "_x900 5+1x600",
        "_x900 54000x600",
        1440,
        DAY,
        545,
        1,
    ),
    Scenario(
        "series starts in a running process",
        "_x900 5+1x600",
        "-259200x1500",
        1440,
        DAY - 60,
        545,
        1,
    ),
    Scenario(
        "series starts in a running process, range in a gap",
        "_x900 5+1x600",
        "-259200x50 _x20 -259200x1500",
        1440,
        DAY - 60,
        545,
        1,
    ),
    Scenario(
        "range starts in a gap, process restarts in the range",
        "4320+1x710 _x20 5051+1x269 3+1x1500",
        "-259200x710 _x20 -259200x269 60060x1500",
        2160,
        DAY,
        1430,
        12,
    ),
)


@for_each("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_panel_shows_spend_of_its_range(scenario: Scenario, tmp_path: Path) -> None:
    panel = PANELS[f"cost: {scenario.panel} A"]
    expr = panel.filled(range=f"{scenario.range_minutes}m")
    series = [
        {"series": COST, "values": scenario.cost},
        {"series": STARTED, "values": scenario.started},
    ]
    case = {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [
            {
                "expr": f"abs(({expr}) - {scenario.usd}) <= bool {scenario.tolerance}",
                "eval_time": f"{scenario.minute}m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            },
        ],
    }
    file = tmp_path / "edge.yaml"
    file.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [case]}))

    promtool("test", "rules", str(file))
