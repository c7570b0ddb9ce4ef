"""Committed dashboards: current, valid, and based on declared metrics."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path

import jsonschema_rs
import pytest

from dashboards.build import BOARDS as BUILT
from dashboards.build import promql, render
from tests.dashboards import expressions
from tests.dashboards.expressions import BOARDS, Expression, board, panels
from tests.for_each import for_each

SHAPES = {"stat", "timeseries", "bargauge", "table"}
OF_PROMETHEUS = ("up", "ALERTS")
SCHEMA = json.loads((Path(__file__).parent / "grafana" / "dashboard.schema.json").read_text())
EXPRESSIONS = [*expressions.of_boards(), *expressions.of_rules()]

every_board = for_each("path", BOARDS, ids=lambda path: path.stem)
every_expression = for_each("expression", EXPRESSIONS, ids=lambda item: item.where)


def test_each_board_has_a_file() -> None:
    assert {path.stem for path in BOARDS} == set(BUILT) == {"cost", "reliability", "policy"}


@every_board
def test_committed_boards_are_current(path: Path) -> None:
    assert render(BUILT[path.stem]) == path.read_text(), "run make dashboards"


@every_board
def test_boards_match_grafana_schema(path: Path) -> None:
    fields = json.loads(path.read_text())
    for annotation in fields["annotations"]["list"]:
        assert annotation.pop("expr")  # not in the schema

    assert [e.message for e in jsonschema_rs.validator_for(SCHEMA).iter_errors(fields)] == []


def test_schema_rejects_errors() -> None:
    fields = json.loads(BOARDS[0].read_text())
    fields["panels"][1]["gridPos"]["w"] = "wide"

    assert not jsonschema_rs.validator_for(SCHEMA).is_valid(fields)


@every_board
def test_panels_have_question_and_unit(path: Path) -> None:
    for panel in panels(path):
        assert panel["title"], panel["id"]
        assert "?" in panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["type"] in SHAPES, panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
    titles = [panel["title"] for panel in panels(path)]
    assert len(titles) == len(set(titles))


@every_board
def test_panels_do_not_overlap(path: Path) -> None:
    board_panels = board(path)["panels"]
    assert len({panel["id"] for panel in board_panels}) == len(board_panels)
    boxes = [
        (grid["x"], grid["y"], grid["x"] + grid["w"], grid["y"] + grid["h"])
        for grid in (panel["gridPos"] for panel in board_panels)
    ]
    assert max(right for _, _, right, _ in boxes) <= 24
    for (x, y, end_x, end_y), (other_x, other_y, other_end_x, other_end_y) in combinations(
        boxes, 2
    ):
        is_beside = end_x <= other_x or other_end_x <= x
        assert is_beside or end_y <= other_y or other_end_y <= y


@every_board
def test_variables_are_valid_and_used(path: Path) -> None:
    fields = board(path)
    source, *variables = fields["templating"]["list"]
    used = {name for item in EXPRESSIONS for name in re.findall(r"\$(\w+)", item.expr)}

    assert (source["name"], source["type"]) == ("datasource", "datasource")
    assert source["query"] == "prometheus"
    for variable in variables:
        [(metric, label)] = re.findall(r"^label_values\((\w+), (\w+)\)$", variable["query"])
        assert label in promql.labels_of(metric)
        assert variable["name"] in used


@every_board
def test_boards_link_each_other(path: Path) -> None:
    [link] = board(path)["links"]

    assert (link["type"], link["keepTime"], link["includeVars"]) == ("dashboards", True, True)
    assert set(link["tags"]) <= set(board(path)["tags"])


def test_latencies_show_exemplars() -> None:
    titles = {
        panel["title"]
        for path in BOARDS
        for panel in panels(path)
        if any(target.get("exemplar") for target in panel["targets"])
    }

    assert {"Duration", "Time to first text", "Overhead"} <= titles


@every_expression
def test_expressions_use_declared_metrics(expression: Expression) -> None:
    text = expression.filled()

    for name, labels in expressions.selectors(text):
        declared = _labels(name)
        if declared is not None:
            assert {*labels} <= {*declared, *promql.SCRAPED}, name
    for grouping, metrics in expressions.grouped(text):
        for declared in filter(None, map(_labels, metrics)):
            assert {*grouping} <= {*declared, *promql.SCRAPED}, metrics


def _labels(name: str) -> tuple[str, ...] | None:
    if name in OF_PROMETHEUS or name in expressions.recorded():
        return None
    return promql.labels_of(name)


@every_board
def test_legends_are_labels_of_the_query(path: Path) -> None:
    for panel in panels(path):
        for target in panel["targets"]:
            text = Expression("", target["expr"]).filled()
            grouping = {label for labels, _ in expressions.grouped(text) for label in labels}
            legends = expressions.legends(target.get("legendFormat", ""))
            assert legends <= {*grouping, *promql.SCRAPED}, panel["title"]


def test_undeclared_metric_raises() -> None:
    metric = promql.Selector()

    for wrong in ("requests", "request_duration_seconds"):
        with pytest.raises(KeyError):
            metric(wrong)
    with pytest.raises(KeyError, match="no label colour"):
        metric("requests_total", colour="red")
