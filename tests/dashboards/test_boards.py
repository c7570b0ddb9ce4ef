"""The committed dashboards: as the code writes them, whole, and true to the metrics declared."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from dashboards.build import BOARDS as BUILT
from dashboards.build import drawing, promql, render
from dashboards.build.panels import Query, stat
from tests.dashboards import expressions
from tests.dashboards.expressions import BOARDS, TOP, Said, board, panels
from tests.for_each import for_each

SHAPES = {"stat", "timeseries", "bargauge", "table"}
MADE_UP = ("up", "ALERTS")  # by Prometheus itself
SCHEMA = json.loads((Path(__file__).parent / "grafana" / "dashboard.schema.json").read_text())
VALUES = [*expressions.of_boards(), *expressions.of_rules()]

every_board = for_each("path", BOARDS, ids=lambda path: path.stem)
every_expression = for_each("said", VALUES, ids=lambda said: said.where)


def test_there_are_three_and_each_has_its_file() -> None:
    assert {path.stem for path in BOARDS} == set(BUILT) == {"cost", "reliability", "policy"}


@every_board
def test_a_board_is_written_byte_for_byte_as_committed(path: Path) -> None:
    assert render(BUILT[path.stem]) == path.read_text(), "run make dashboards"


def test_writing_in_another_process_gives_the_same_bytes() -> None:
    script = "from dashboards.build import *; print(render(BOARDS['cost']), end='')"
    process = subprocess.run(
        [sys.executable, "-c", script], cwd=TOP, capture_output=True, text=True, check=True
    )

    assert process.stdout == (TOP / "dashboards" / "cost.json").read_text()


@every_board
def test_a_board_is_what_grafanas_own_types_say(path: Path) -> None:
    fields = json.loads(path.read_text())
    for annotation in fields["annotations"]["list"]:
        assert annotation.pop("expr")  # the types leave the query of an annotation open

    assert [e.message for e in jsonschema_rs.validator_for(SCHEMA).iter_errors(fields)] == []


def test_the_types_do_refuse_what_is_wrong() -> None:
    fields = json.loads(BOARDS[0].read_text())
    fields["panels"][1]["gridPos"]["w"] = "wide"

    assert not jsonschema_rs.validator_for(SCHEMA).is_valid(fields)


@every_board
def test_every_panel_asks_a_question_and_answers_in_a_unit(path: Path) -> None:
    for panel in panels(path):
        assert panel["title"], panel["id"]
        assert "?" in panel["description"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["type"] in SHAPES, panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
    titles = [panel["title"] for panel in panels(path)]
    assert len(titles) == len(set(titles))


@every_board
def test_panels_have_ids_of_their_own_and_do_not_overlap(path: Path) -> None:
    everything = board(path)["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    for value, other_value in combinations([panel["gridPos"] for panel in everything], 2):
        assert value["x"] + value["w"] <= 24
        assert (
            value["x"] + value["w"] <= other_value["x"]
            or other_value["x"] + other_value["w"] <= value["x"]
            or value["y"] + value["h"] <= other_value["y"]
            or other_value["y"] + other_value["h"] <= value["y"]
        ), (value, other_value)


@every_board
def test_every_variable_lists_values_of_a_metric_and_is_used(path: Path) -> None:
    fields = board(path)
    first_value, *queried = fields["templating"]["list"]
    used = {name for item in VALUES for name in re.findall(r"\$(\w+)", item.expr)}

    assert (first_value["name"], first_value["type"], first_value["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    for variable in queried:
        [(metric, label)] = re.findall(r"^label_values\((\w+), (\w+)\)$", variable["query"])
        assert label in promql.labels_of(metric)
        assert variable["name"] in used


@every_board
def test_every_board_leads_to_the_others(path: Path) -> None:
    [link] = board(path)["links"]

    assert (link["type"], link["keepTime"], link["includeVars"]) == ("dashboards", True, True)
    assert set(link["tags"]) <= set(board(path)["tags"])


def test_latencies_show_exemplars() -> None:
    output = {
        panel["title"]
        for path in BOARDS
        for panel in panels(path)
        if any(target.get("exemplar") for target in panel["targets"])
    }

    assert {"Duration", "Time to first text", "Overhead"} <= output


@every_expression
def test_an_expression_parses_and_names_what_is_declared(said: Said) -> None:
    text = said.filled()

    for name, labels in expressions.selectors(text):
        known_value = _labels(name)
        if known_value is not None:
            assert {*labels} <= {*known_value, *promql.SCRAPED}, name
    for stored_items, inside in expressions.grouped(text):
        for known_value in filter(None, map(_labels, inside)):
            assert {*stored_items} <= {*known_value, *promql.SCRAPED}, inside


def _labels(name: str) -> tuple[str, ...] | None:
    if name in MADE_UP or name in expressions.recorded():
        return None
    return promql.labels_of(name)


@every_board
def test_legends_and_columns_are_labels_that_the_query_keeps(path: Path) -> None:
    for panel in panels(path):
        for target in panel["targets"]:
            stored = {
                label for labels, _ in expressions.grouped(_plain(target)) for label in labels
            }
            output = expressions.legends(target.get("legendFormat", ""))
            assert output <= {*stored, *promql.SCRAPED}, panel["title"]


def _plain(target: dict[str, Any]) -> str:
    return Said("", target["expr"]).filled()


def test_a_metric_or_label_that_is_not_declared_stops_the_build() -> None:
    metric = promql.Selector()

    for wrong in ("requests", "request_duration_seconds"):
        with pytest.raises(KeyError):
            metric(wrong)
    with pytest.raises(KeyError, match="no label colour"):
        metric("requests_total", colour="red")


def test_a_selector_follows_the_variables_that_its_metric_has() -> None:
    metric = promql.Selector(("deployment", "upstream"))

    assert (
        metric("overhead_seconds_count")
        == 'headrace_overhead_seconds_count{deployment=~"$deployment"}'
    )
    assert metric("requests_total", "deployment") == "headrace_requests_total"
    assert metric("requests_total", "deployment", outcome="!=success").endswith(
        '{outcome!="success"}'
    )


def test_panels_are_laid_out_in_rows_of_24() -> None:
    drawn = drawing.panel(stat("Calls", "How many?", "short", "up", width=6)).build()

    assert drawn.grid_pos is not None
    assert (drawn.grid_pos.w, drawn.grid_pos.h) == (6, 4)
    assert Query("up").legend == ""
