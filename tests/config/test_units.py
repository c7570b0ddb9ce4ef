"""Types of policy keys: units, references, conditions and descriptions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from itertools import product
from typing import Annotated, Any, ClassVar

import jsonschema_rs
import pytest
from pydantic import Field, ValidationError, create_model

from proxy.config import units
from proxy.config.scalars import (
    FileName,
    Name,
    RefersTo,
    Section,
    get_key_descriptions,
    iter_references,
)
from proxy.config.shapes import (
    Requirement,
    ShapeCondition,
    all_of,
    any_of,
    equals,
    has_size,
    if_then,
    is_not_null,
    is_present,
    not_,
    one_of,
)
from tests.for_each import for_each


@for_each(
    ("parse", "text", "value"),
    [
        (units.parse_duration, "500ms", 0.5),
        (units.parse_duration, "5s", 5),
        (units.parse_duration, "2h", 7200),
        (units.parse_duration, "1m30s", 90),
        (units.parse_duration, "1d", 86_400),
        (units.parse_duration, "0.5s", 0.5),
        (units.parse_size, "64MiB", 2**26),
        (units.parse_size, "512kB", 512_000),
        (units.parse_size, "1B", 1),
        (units.parse_decimal_usd, 0.15, Decimal("0.15")),
        (units.parse_decimal_usd, "0.15", Decimal("0.15")),
        (units.parse_day, "2026-01-31", date(2026, 1, 31)),
        (units.parse_count, 5, 5),
        (units.parse_count, "5", 5),
        (units.parse_count, "2k", 2000),
        (units.parse_count, "1.5M", 1_500_000),
        (units.parse_percent, "80%", 0.8),
    ],
)
def test_text_is_parsed(parse: Callable[[Any], Any], text: Any, value: Any) -> None:
    assert parse(text) == value


INVALID: list[tuple[Callable[[Any], Any], str, list[Any]]] = [
    (units.parse_duration, "must be", [5, "5", "s", "5 s", "5x", "0s", "-5s", None, ["5s"], True]),
    (units.parse_size, "must be a size", [64, "64", "64 MiB", "64mb", "-1kB"]),
    (units.parse_decimal_usd, "number of USD",
        ["cheap", True, None, "inf", float("nan"), "1e19", "1e999999", "1e-19"]),
    (units.parse_day, "must be a day", ["31.1.2026", 20260131, "2026-02-30"]),
    (
        units.parse_rate,
        "must be a",
        [600, "600", "600/min", "0 per minute", "1.5 per minute", "5 per 0 minutes", "5 per month"],
    ),
    (units.parse_budget, "must be USD",
        [500, "500", "0 per day", "0.0000000001 per day", "5 per 2 days"]),
    (units.parse_budget, "must be at most 9,000,000 USD", ["9000000.000000001 per month"]),
    (units.parse_count, "must be a whole number", [0, -1, 1.5, "0.0001k", "k", True, None]),
    (units.parse_percent, "must be a percentage", ["0%", "101%", "80", 0.8, "80.5%"]),
]  # fmt: skip


@for_each(
    ("parse", "message", "text"),
    [(parse, message, text) for parse, message, texts in INVALID for text in texts],
)
def test_invalid_text_is_refused(parse: Callable[[Any], Any], message: str, text: Any) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


@for_each(
    ("text", "rate"),
    [
        ("600 per minute", (600, 60)),
        ("1 per second", (1, 1)),
        ("200k per 10 minutes", (200_000, 600)),
        ("1.5M per day", (1_500_000, 86_400)),
    ],
)
def test_rate_is_amount_and_seconds(text: str, rate: tuple[int, int]) -> None:
    assert units.parse_rate(text) == rate
    assert units.parse_rate(units.format_rate(rate)) == rate


@for_each(
    ("text", "budget"),
    [
        ("500 per month", (500 * 10**9, "month")),
        ("500 usd per month", (500 * 10**9, "month")),
        ("0.50 per day", (500_000_000, "day")),
        ("0.000000001 per hour", (1, "hour")),
        ("9000000 per month", (9 * 10**15, "month")),
    ],
)
def test_budget_is_nano_usd_and_calendar_unit(text: str, budget: tuple[int, str]) -> None:
    assert units.parse_budget(text) == budget
    assert units.parse_budget(units.format_budget(budget)) == budget


class Referring(Section):
    deployment: Annotated[Name, RefersTo("deployment")]
    single: Annotated[FileName | None, RefersTo("text")] = None
    several: Annotated[list[FileName], RefersTo("text")] = Field(default_factory=list)
    plain: Name = "a"


def test_references_have_their_key() -> None:
    part = Referring(deployment="chat", single="a.txt", several=["b.txt", "c.txt"])

    assert list(iter_references(part, "deployment")) == [("deployment", "chat")]
    assert list(iter_references(part, "text")) == [
        ("single", "a.txt"), ("several", "b.txt"), ("several", "c.txt")
    ]  # fmt: skip
    assert list(iter_references(Referring(deployment="chat"), "text")) == []


CONDITIONS = {
    "has": is_not_null("word"),
    "has, of a key that Python keeps": is_not_null("in"),
    "names": is_present("word"),
    "filled list": has_size("items"),
    "filled text": has_size("word"),
    "several": has_size("items", 2),
    "equals": equals("word", "a"),
    "equals the default": equals("kind", "plain"),
    "equals true": equals("on", True),
    "each": all_of(is_not_null("word"), has_size("items")),
    "some": any_of(is_not_null("word"), has_size("items")),
    "one": one_of(is_not_null("word"), has_size("items"), equals("on", True)),
    "no": not_(is_not_null("word")),
    "needs": if_then(is_not_null("word"), equals("kind", "other")),
}
VALUES: dict[str, tuple[Any, ...]] = {
    "word": (..., None, "", "a", "b"),
    "items": (..., None, [], ["a"], ["a", "b"]),
    "kind": (..., "plain", "other"),
    "on": (..., False, True),
    "in": (..., None, "a"),
}


def part(condition: ShapeCondition) -> type[Section]:
    """Return a section with a requirement."""

    class Part(Section):
        REQUIREMENTS: ClassVar[tuple[Requirement, ...]] = (Requirement(condition, "must not"),)

        word: str | None = None
        items: list[str] | None = None
        kind: str = "plain"
        on: bool = False
        in_: str | None = Field(None, alias="in")

    return Part


@for_each("name", CONDITIONS)
def test_condition_equals_its_schema(name: str) -> None:
    model = part(CONDITIONS[name])
    fits = jsonschema_rs.validator_for(model.model_json_schema()).is_valid
    result = set()
    for values in product(*VALUES.values()):
        pairs = zip(VALUES, values, strict=True)
        written = {key: value for key, value in pairs if value is not ...}
        try:
            model.model_validate(written)
            accepted = True
        except ValidationError:
            accepted = False
        assert fits(written) == accepted, written
        result.add(accepted)
    assert result == {True, False}


def test_requirements_of_bases_apply() -> None:
    class Narrow(part(is_not_null("word"))):  # type: ignore[misc]  # a class of the test
        REQUIREMENTS = (Requirement(has_size("items"), "must have items"),)

    with pytest.raises(ValidationError, match="must not"):
        Narrow.model_validate({"items": ["a"]})
    with pytest.raises(ValidationError, match="must have items"):
        Narrow.model_validate({"word": "a"})
    assert Narrow.model_validate({"word": "a", "items": ["a"]})


class Heater(Section):
    """A heater."""

    watts: int
    """Power;
    never negative."""
    silent: bool = False
    name: str = Field("", description="Name.")
    """Ignored."""


class Stove(Heater):
    """A stove."""

    watts: int = 3
    plates: int = 4
    """Number of plates."""


def test_string_below_a_key_is_its_description() -> None:
    assert get_key_descriptions(Heater) == {"watts": "Power;\nnever negative.", "name": "Name."}


def test_descriptions_of_bases_are_inherited() -> None:
    assert get_key_descriptions(Stove) == {"name": "Name.", "plates": "Number of plates."}


def test_created_model_inherits_descriptions() -> None:
    fields: Any = {"fuel": (str, Field(description="Fuel."))}
    result = create_model("Burner", __base__=Stove, **fields)

    assert get_key_descriptions(result) == {**get_key_descriptions(Stove), "fuel": "Fuel."}
    schema = result.model_json_schema()["properties"]
    assert schema["plates"]["description"] == "Number of plates."
    assert "description" not in schema["silent"]
