"""Conditions on several keys of a part, both as a test and as JSON Schema.

The test gets a validated part, the schema applies to its YAML. Keys are named as in YAML.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from typing import Any, NamedTuple

from pydantic import BaseModel

from proxy.runtime.frozen import frozen

JsonSchema = dict[str, Any]


@frozen
class ShapeCondition:
    """A condition on a part. ``schema`` returns its JSON Schema, which depends on the defaults."""

    test: Callable[[BaseModel], bool]
    schema: Callable[[type[BaseModel]], JsonSchema]


class Requirement(NamedTuple):
    """A condition that a part must meet, and the error message if it does not."""

    condition: ShapeCondition
    message: str


def has(key: str) -> ShapeCondition:
    """Match if a key is present and not null."""
    schema = {"required": [key], "properties": {key: {"not": {"type": "null"}}}}
    return ShapeCondition(lambda part: _value(part, key) is not None, lambda _: schema)


def names(key: str) -> ShapeCondition:
    """Match if a key is present."""
    return ShapeCondition(
        lambda part: _field(key) in part.model_fields_set, lambda _: {"required": [key]}
    )


def filled(key: str) -> ShapeCondition:
    """Match if the list, mapping or text of a key is not empty."""
    return _sized(key, 1)


def several(key: str) -> ShapeCondition:
    """Match if a list has two or more items."""
    return _sized(key, 2)


def _sized(key: str, least: int) -> ShapeCondition:
    content = {"type": ["array", "object", "string"], "minItems": least}
    content |= {"minProperties": least, "minLength": least}
    schema = {"required": [key], "properties": {key: content}}
    return ShapeCondition(lambda part: len(_value(part, key) or ()) >= least, lambda _: schema)


def equals(key: str, value: str | bool) -> ShapeCondition:
    """Match if a key has a value, explicitly or by default."""

    def schema(model: type[BaseModel]) -> JsonSchema:
        default = model.model_fields[_field(key)].default
        required = {} if default == value else {"required": [key]}
        return {"properties": {key: {"const": value}}} | required

    return ShapeCondition(lambda part: _value(part, key) == value, schema)


def each(*conditions: ShapeCondition) -> ShapeCondition:
    """Match if all conditions match."""
    return _joined("allOf", all, conditions)


def some(*conditions: ShapeCondition) -> ShapeCondition:
    """Match if at least one condition matches."""
    return _joined("anyOf", any, conditions)


def one(*conditions: ShapeCondition) -> ShapeCondition:
    """Match if exactly one condition matches."""
    return _joined("oneOf", lambda found: sum(found) == 1, conditions)


def no(condition: ShapeCondition) -> ShapeCondition:
    """Match if a condition does not match."""
    return ShapeCondition(
        lambda part: not condition.test(part), lambda model: {"not": condition.schema(model)}
    )


def needs(condition: ShapeCondition, other: ShapeCondition) -> ShapeCondition:
    """Match unless a condition matches and the other does not."""
    return ShapeCondition(
        lambda part: not condition.test(part) or other.test(part),
        lambda model: {"if": condition.schema(model), "then": other.schema(model)},
    )


def _joined(
    word: str, judge: Callable[[list[bool]], bool], conditions: tuple[ShapeCondition, ...]
) -> ShapeCondition:
    return ShapeCondition(
        lambda part: judge([each.test(part) for each in conditions]),
        lambda model: {word: [each.schema(model) for each in conditions]},
    )


def _field(key: str) -> str:
    return f"{key}_" if keyword.iskeyword(key) else key


def _value(part: BaseModel, key: str) -> Any:
    return getattr(part, _field(key))
