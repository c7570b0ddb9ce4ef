"""Which keys of a part go together: each rule stands once, for ``check`` and for editors.

A condition is tested on a part that was read, and says the same in JSON Schema of a part as it is
written. Keys go by their names in YAML.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable
from typing import Any, NamedTuple

from pydantic import BaseModel

from proxy.frozen import frozen

JsonSchema = dict[str, Any]


@frozen
class ShapeCondition:
    """What may be true of a part. ``schema`` is its JSON Schema, for a model with its defaults."""

    test: Callable[[BaseModel], bool]
    schema: Callable[[type[BaseModel]], JsonSchema]


class Requirement(NamedTuple):
    """What must be true of a part, and what is told where it is not."""

    condition: ShapeCondition
    message: str


def has(key: str) -> ShapeCondition:
    """True if a key is there, and not null."""
    schema = {"required": [key], "properties": {key: {"not": {"type": "null"}}}}
    return ShapeCondition(lambda part: _value(part, key) is not None, lambda _: schema)


def names(key: str) -> ShapeCondition:
    """True if a key is there, be it null."""
    return ShapeCondition(
        lambda part: _field(key) in part.model_fields_set, lambda _: {"required": [key]}
    )


def filled(key: str) -> ShapeCondition:
    """True if a key is there, and its list, mapping or text is not empty."""
    return _sized(key, 1)


def several(key: str) -> ShapeCondition:
    """True if a list has two items or more."""
    return _sized(key, 2)


def _sized(key: str, least: int) -> ShapeCondition:
    content = {"type": ["array", "object", "string"], "minItems": least}
    content |= {"minProperties": least, "minLength": least}
    schema = {"required": [key], "properties": {key: content}}
    return ShapeCondition(lambda part: len(_value(part, key) or ()) >= least, lambda _: schema)


def equals(key: str, value: str | bool) -> ShapeCondition:
    """True if a key has a value, said or by default."""

    def schema(model: type[BaseModel]) -> JsonSchema:
        default = model.model_fields[_field(key)].default
        required = {} if default == value else {"required": [key]}
        return {"properties": {key: {"const": value}}} | required

    return ShapeCondition(lambda part: _value(part, key) == value, schema)


def each(*conditions: ShapeCondition) -> ShapeCondition:
    """True if all conditions are."""
    return _joined("allOf", all, conditions)


def some(*conditions: ShapeCondition) -> ShapeCondition:
    """True if at least one condition is."""
    return _joined("anyOf", any, conditions)


def one(*conditions: ShapeCondition) -> ShapeCondition:
    """True if exactly one condition is."""
    return _joined("oneOf", lambda found: sum(found) == 1, conditions)


def no(condition: ShapeCondition) -> ShapeCondition:
    """True if a condition is not."""
    return ShapeCondition(
        lambda part: not condition.test(part), lambda model: {"not": condition.schema(model)}
    )


def needs(condition: ShapeCondition, other: ShapeCondition) -> ShapeCondition:
    """True if a condition is not, or another is too."""
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
