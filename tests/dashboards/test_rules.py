"""Alerts, recorded series and spend panels, evaluated by promtool, and runbooks."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml

from tests.dashboards.expressions import RULES, TOP, of_boards, rules
from tests.for_each import for_each
from tests.servers import program

SCENARIOS = sorted((Path(__file__).parent / "rules").glob("*.yaml"))
HEADINGS = ("Meaning", "Impact", "First checks", "Causes and fixes")
PAGES = TOP / "docs" / "runbooks"
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for _, rule in rules() if "alert" in rule}


def promtool(*arguments: str) -> str:
    process = subprocess.run(
        [program("promtool"), *arguments], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_promtool_accepts_the_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", *map(str, RULES))


@for_each("path", SCENARIOS, ids=lambda path: path.stem)
def test_alert_scenarios_pass(path: Path) -> None:
    promtool("test", "rules", str(path))


def scenario_alerts() -> Iterator[tuple[str, bool]]:
    for path in SCENARIOS:
        for case in yaml.safe_load(path.read_text())["tests"]:
            for item in case["alert_rule_test"]:
                yield item["alertname"], bool(item.get("exp_alerts"))


def test_alerts_have_both_scenarios() -> None:
    assert {*scenario_alerts()} == {(alert, fires) for alert in ALERTS for fires in (True, False)}


@for_each("alert", ALERTS)
def test_alerts_have_severity_and_runbook(alert: str) -> None:
    rule = ALERTS[alert]
    page = TOP / rule["annotations"]["runbook_url"]
    text = page.read_text()

    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"]["summary"]
    assert alert in text
    assert tuple(re.findall(r"^## (.*)", text, re.MULTILINE)) == HEADINGS


def test_runbooks_belong_to_alerts() -> None:
    names = {Path(rule["annotations"]["runbook_url"]).name for rule in ALERTS.values()}

    assert {page.name for page in PAGES.glob("*.md")} == names | {"README.md"}


@for_each("page", sorted(PAGES.glob("[a-z]*.md")), ids=lambda page: page.stem)
def test_runbook_has_three_checks_with_valid_queries(page: Path) -> None:
    checks = page.read_text().split("## First checks")[1].split("\n## ")[0]

    assert re.findall(r"^(\d)\. ", checks, re.MULTILINE) == ["1", "2", "3"]
    for query in re.findall(r"```promql\n(.*?)```", checks, re.DOTALL):
        promql.parse(query)


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


SPEND_SCENARIOS = (
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


@for_each("scenario", SPEND_SCENARIOS, ids=lambda scenario: scenario.name)
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
            }
        ],
    }
    file = tmp_path / "edge.yaml"
    file.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [case]}))

    promtool("test", "rules", str(file))
