"""What panels of cost say when Prometheus has no sample where their range begins: played."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.dashboards.expressions import of_boards
from tests.dashboards.test_rules import promtool
from tests.for_each import for_each

PANELS = {said.where: said for said in of_boards()}
COST = 'headrace_cost_usd_total{deployment="reports", instance="a", job="headrace"}'
STARTED = 'process_start_time_seconds{instance="a", job="headrace"}'
DAY, MONTH = 1440, 31 * 1440  # minutes; Prometheus plays from the first second of 1970


@dataclass(frozen=True)
class Play:
    """Samples of a minute each, and what a panel says of the last ``shown`` minutes at ``at``."""

    name: str
    cost: str
    started: str
    at: int
    shown: int
    usd: int
    off: int
    panel: str = "Spent in range"


def old(count_before: int, gap: str, count_after: int, *, spend: int = 4320) -> tuple[str, str]:
    """Return the samples of a process that began three days earlier and spends 1 USD a minute."""
    lost_count = int(gap.split("x")[1])
    costs = (
        f"{spend}+1x{count_before - 1} {gap} {spend + count_before + lost_count}+1x{count_after}"
    )
    return costs, f"-259200x{count_before - 1} {gap} -259200x{count_after}"


PLAYS = (
    Play("the range begins in a gap", *old(710, "_x20", 1500), 2160, DAY, 1440, 20),
    Play("one scrape failed where it begins", *old(715, "_x10", 1500), 2160, DAY, 1440, 12),
    Play("there is nothing before it at all", *old(1, "_x725", 1500), 2160, DAY, 1440, 12),
    Play("no gap", *old(10, "_x5", 2200), 2160, DAY, 1440, 1),
    Play(
        "the day begins in a gap", *old(1435, "_x12", 800), DAY + 720, 720, 720, 12, "Spent today"
    ),
    Play("it is just past midnight", *old(1435, "_x7", 30), DAY + 4, 4, 2, 2, "Spent today"),
    Play(
        "the month begins in a gap, and is to cost 1440 a day",
        *old(MONTH - 5, "_x12", 400),
        MONTH + 360,
        360,
        28 * 1440,
        12,
        "Forecast for the month",
    ),
    Play(
        "the process began in the range, and its first count was no 0",
        "_x900 5+1x600",
        "_x900 54000x600",
        1440,
        DAY,
        545,
        1,
    ),
    Play(
        "a series begins in an old process that was seen where the range begins",
        "_x900 5+1x600",
        "-259200x1500",
        1440,
        DAY - 60,
        545,
        1,
    ),
    Play(
        "a series begins in an old process, and the range in a gap",
        "_x900 5+1x600",
        "-259200x50 _x20 -259200x1500",
        1440,
        DAY - 60,
        545,
        1,
    ),
    Play(
        "the range begins in a gap, and the process again in the range",
        "4320+1x710 _x20 5051+1x269 3+1x1500",
        "-259200x710 _x20 -259200x269 60060x1500",
        2160,
        DAY,
        1430,
        12,
    ),
)


@for_each("play", PLAYS, ids=lambda play: play.name)
def test_a_panel_says_what_was_spent_in_its_range(play: Play, tmp_path: Path) -> None:
    output = PANELS[f"cost: {play.panel} A"].filled(range=f"{play.shown}m")
    series = [{"series": COST, "values": play.cost}, {"series": STARTED, "values": play.started}]
    case = {
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [
            {
                "expr": f"abs(({output}) - {play.usd}) <= bool {play.off}",
                "eval_time": f"{play.at}m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            },
        ],
    }
    file = tmp_path / "edge.yaml"
    file.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [case]}))

    promtool("test", "rules", str(file))
