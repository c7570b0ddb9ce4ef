"""Contents of dashboards as values, without Grafana's library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack

Shape = Literal["stat", "lines", "stacked", "bars", "table"]
Steps = tuple[tuple[float | None, str], ...]
"""Lower bounds of values with their colors."""
ValueTexts = tuple[tuple[float, str, str], ...]
"""Values with the text and the color that replace them."""


@dataclass(frozen=True, slots=True)
class Query:
    """An expression and the name of its series, or of its column in a table."""

    expr: str
    legend: str = ""
    unit: str | None = None
    """Unit of the column in a table."""


class PanelOptions(TypedDict, total=False):
    """Optional fields of a panel."""

    width: int
    height: int
    steps: Steps
    value_texts: ValueTexts
    exemplars: bool
    maximum: float
    decimals: int
    time_from: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel whose description is a question.

    Stats, bars and tables show the end of the time range.
    """

    shape: Shape
    title: str
    question: str
    unit: str
    queries: tuple[Query, ...]
    width: int = 4
    height: int = 4
    steps: Steps = ()
    value_texts: ValueTexts = ()
    exemplars: bool = False
    """Show exemplars, which link to traces."""
    maximum: float | None = None
    """End of the scale, which then starts at 0."""
    decimals: int | None = None
    time_from: str | None = None
    """Start of the time range instead of the dashboard's, such as ``now/d``."""
    columns: tuple[str, ...] = ()
    """Labels of a table."""


def stat(title: str, question: str, unit: str, expr: str, **options: Unpack[PanelOptions]) -> Panel:
    return Panel("stat", title, question, unit, (Query(expr),), **options)


def _with_size(options: PanelOptions, width: int = 8) -> PanelOptions:
    sized: PanelOptions = {"width": width, "height": 8}
    sized.update(options)
    return sized


def lines(
    title: str, question: str, unit: str, *queries: Query, **options: Unpack[PanelOptions]
) -> Panel:
    return Panel("lines", title, question, unit, queries, **_with_size(options))


def stacked(
    title: str, question: str, unit: str, *queries: Query, **options: Unpack[PanelOptions]
) -> Panel:
    """Return stacked series, whose sum is meaningful."""
    return Panel("stacked", title, question, unit, queries, **_with_size(options))


def bars(
    title: str, question: str, unit: str, *queries: Query, **options: Unpack[PanelOptions]
) -> Panel:
    return Panel("bars", title, question, unit, queries, **_with_size(options))


def table(
    title: str,
    question: str,
    columns: tuple[str, ...],
    *queries: Query,
    **options: Unpack[PanelOptions],
) -> Panel:
    unit = queries[0].unit or "none"
    sized = _with_size(options, 12)
    return Panel("table", title, question, unit, queries, **sized, columns=columns)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels from left to right, wrapped at 24 columns."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a dashboard, with the values of a label of a metric."""

    name: str
    label: str
    metric: str
    single: str = ""
    """Initial value of a variable that has one value. Others have any number of values."""

    @property
    def query(self) -> str:
        return f"label_values({self.metric}, {self.name})"


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard. ``uid`` is part of its URL and never changes."""

    uid: str
    title: str
    description: str
    span: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
