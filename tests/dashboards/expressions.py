"""Expressions of dashboards and rules, with their places and parts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml

TOP = Path(__file__).parents[2]
BOARDS = sorted((TOP / "dashboards").glob("*.json"))
RULES = sorted((TOP / "dashboards" / "rules").glob("*.yaml"))
COMPARISONS = ("==", "!=", ">", "<", ">=", "<=", "and", "unless", "or")
ALL_VALUES = {"deployment": ".*", "model": ".*", "upstream": ".*", "guard": ".*", "limit": ".*"}


@dataclass(frozen=True)
class Expression:
    """An expression with its panel or rule, and its legend or column."""

    where: str
    expr: str
    legend: str = ""

    def filled(self, **values: str) -> str:
        """Replace variables as Grafana does, such as ``range="5m"``."""
        text = self.expr.replace("$__range_s", str(_seconds(values.get("range", "1m"))))
        for name in ("range", "interval", "rate_interval"):
            text = text.replace(f"$__{name}", values.get(name, "1m"))
        for name, value in {**ALL_VALUES, "tag": "team", **values}.items():
            text = text.replace(f"${name}", value)
        return text


def _seconds(duration: str) -> int:
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[duration[-1]]


@cache
def board(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def panels(path: Path) -> list[dict[str, Any]]:
    return [panel for panel in board(path)["panels"] if panel["type"] != "row"]


def of_boards() -> Iterator[Expression]:
    for path in BOARDS:
        for annotation in board(path)["annotations"]["list"]:
            yield Expression(f"{path.stem}: {annotation['name']}", annotation["expr"])
        for panel in panels(path):
            for target in panel["targets"]:
                where = f"{path.stem}: {panel['title']} {target['refId']}"
                yield Expression(where, target["expr"], target.get("legendFormat", ""))


def rules() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in RULES:
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                yield path.stem, rule


def of_rules() -> Iterator[Expression]:
    for name, rule in rules():
        yield Expression(f"{name}: {rule.get('alert') or rule['record']}", rule["expr"])


@cache
def recorded() -> set[str]:
    return {rule["record"] for _, rule in rules() if "record" in rule}


def nodes(expr: promql.Expr) -> list[Any]:
    matches: list[Any] = []
    promql.walk(expr, matches.append)
    return matches


def selectors(text: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield each selected metric with its matched labels."""
    for node in nodes(promql.parse(text)):
        selector = getattr(node, "vector_selector", node)
        if isinstance(selector, promql.VectorSelector):
            matchers = selector.matchers.matchers
            yield selector.name or "", {matcher.name: matcher.value for matcher in matchers}


def grouped(text: str) -> Iterator[tuple[list[str], set[str]]]:
    """Yield the labels of each aggregation, and its metrics."""
    for node in nodes(promql.parse(text)):
        if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            inside = {name for name, _ in selectors(node.expr.prettify())}
            yield list(node.modifier.labels), inside


def operands(text: str) -> Iterator[str]:
    """Yield the compared expressions of an alert, which have series even if it does not fire."""
    for part in _operands(promql.parse(text)):
        if not part.startswith("absent("):
            yield part


def _operands(expr: Any) -> Iterator[str]:
    if isinstance(expr, promql.ParenExpr):
        yield from _operands(expr.expr)
    elif isinstance(expr, promql.BinaryExpr) and str(expr.op) in COMPARISONS:
        yield from _operands(expr.lhs)
        yield from _operands(expr.rhs)
    elif not isinstance(expr, promql.NumberLiteral):
        yield expr.prettify()


def legends(text: str) -> set[str]:
    return set(re.findall(r"\{\{(\w+)\}\}", text))
