"""What a dashboard is made of, as values: questions, the queries that answer them, rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack

Shape = Literal["stat", "lines", "stacked", "bars", "table"]
Steps = tuple[tuple[float | None, str], ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """One query: its expression, and what its series are called.

    In a table ``legend`` is the column of its values, and ``unit`` that column's.
    """

    expr: str
    legend: str = ""
    unit: str | None = None


class Look(TypedDict, total=False):
    """What a panel may say beyond its question."""

    width: int
    height: int
    steps: Steps
    words: tuple[tuple[float, str, str], ...]
    traced: bool
    most: float
    decimals: int
    since: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A question and its answer. ``question`` becomes the description.

    A stat, bars and a table show the end of the range, lines all of it. ``steps`` colour values
    from each threshold on, ``words`` (value, text, colour) are shown for numbers that mean
    something, ``most`` is the end of the scale. ``traced`` shows exemplars, which lead to traces.
    ``since`` is a beginning of its own, such as ``now/d``. ``columns`` are the labels of a table.
    """

    shape: Shape
    title: str
    question: str
    unit: str
    asks: tuple[Ask, ...]
    width: int = 4
    height: int = 4
    steps: Steps = ()
    words: tuple[tuple[float, str, str], ...] = ()
    traced: bool = False
    most: float | None = None
    decimals: int | None = None
    since: str | None = None
    columns: tuple[str, ...] = ()


def stat(title: str, question: str, unit: str, expr: str, **look: Unpack[Look]) -> Panel:
    """One number."""
    return Panel("stat", title, question, unit, (Ask(expr),), **look)


def _large(look: Look, width: int = 8) -> Look:
    large: Look = {"width": width, "height": 8}
    large.update(look)
    return large


def lines(title: str, question: str, unit: str, *asks: Ask, **look: Unpack[Look]) -> Panel:
    """Series over time."""
    return Panel("lines", title, question, unit, asks, **_large(look))


def stacked(title: str, question: str, unit: str, *asks: Ask, **look: Unpack[Look]) -> Panel:
    """Series over time whose sum means something."""
    return Panel("stacked", title, question, unit, asks, **_large(look))


def bars(title: str, question: str, unit: str, *asks: Ask, **look: Unpack[Look]) -> Panel:
    """Values to be compared."""
    return Panel("bars", title, question, unit, asks, **_large(look))


def table(
    title: str, question: str, columns: tuple[str, ...], *asks: Ask, **look: Unpack[Look]
) -> Panel:
    """Rows of labels and values; each query has a unit of its own."""
    unit = asks[0].unit or "none"
    return Panel("table", title, question, unit, asks, **_large(look, 12), columns=columns)


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading, laid out from left to right and wrapped at 24 columns."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of a dashboard: the values of a label of a metric.

    Most offer all values at once; ``single`` is the first choice of one that takes but one value.
    """

    name: str
    label: str
    metric: str
    single: str = ""

    @property
    def query(self) -> str:
        return f"label_values({self.metric}, {self.name})"


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard. ``uid`` is its address and never changes."""

    uid: str
    title: str
    description: str
    span: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
