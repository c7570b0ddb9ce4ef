"""Alerts and recorded series: scenarios in promtool, and runbooks."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml

from tests.dashboards.expressions import RULES, TOP, rules
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
