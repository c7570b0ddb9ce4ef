"""Conditions on keys, which validation and JSON Schema apply equally."""

from __future__ import annotations

from itertools import product
from typing import Any, ClassVar

import jsonschema_rs
import pytest
from pydantic import Field, ValidationError

from proxy.config.scalars import Section
from proxy.config.shapes import (
    Requirement,
    ShapeCondition,
    all_of,
    any_of,
    equals,
    has,
    has_size,
    if_then,
    is_present,
    not_,
    one_of,
)
from tests.for_each import for_each

CONDITIONS = {
    "has": has("word"),
    "has, of a key that Python keeps": has("in"),
    "names": is_present("word"),
    "filled list": has_size("items"),
    "filled text": has_size("word"),
    "several": has_size("items", 2),
    "equals": equals("word", "a"),
    "equals the default": equals("kind", "plain"),
    "equals true": equals("on", True),
    "each": all_of(has("word"), has_size("items")),
    "some": any_of(has("word"), has_size("items")),
    "one": one_of(has("word"), has_size("items"), equals("on", True)),
    "no": not_(has("word")),
    "needs": if_then(has("word"), equals("kind", "other")),
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
    class Narrow(part(has("word"))):  # type: ignore[misc]  # it is made for the test
        REQUIREMENTS = (Requirement(has_size("items"), "must have items"),)

    with pytest.raises(ValidationError, match="must not"):
        Narrow.model_validate({"items": ["a"]})
    with pytest.raises(ValidationError, match="must have items"):
        Narrow.model_validate({"word": "a"})
    assert Narrow.model_validate({"word": "a", "items": ["a"]})
