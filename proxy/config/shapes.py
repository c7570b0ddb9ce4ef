"""Conditions on several keys of a section, both as a test and as JSON Schema.

The test gets a validated section, the schema applies to its YAML. Keys are named as in YAML.
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
    """A condition on keys of a section. ``schema`` returns its JSON Schema for a model class."""

    test: Callable[[BaseModel], bool]
    schema: Callable[[type[BaseModel]], JsonSchema]


class Requirement(NamedTuple):
    """A condition that a section must meet, and the error message if it does not."""

    condition: ShapeCondition
    message: str


def is_not_null(key: str) -> ShapeCondition:
    """Match if a key is present and not null."""
    schema = {"required": [key], "properties": {key: {"not": {"type": "null"}}}}
    return ShapeCondition(lambda part: _get_value(part, key) is not None, lambda _: schema)


def is_present(key: str) -> ShapeCondition:
    """Match if a key is present."""
    name, schema = _get_field_name(key), {"required": [key]}
    return ShapeCondition(lambda part: name in part.model_fields_set, lambda _: schema)


def has_size(key: str, min_size: int = 1) -> ShapeCondition:
    """Match if a list, mapping or text has at least ``min_size`` items or characters."""
    content = {"type": ["array", "object", "string"], "minItems": min_size}
    content |= {"minProperties": min_size, "minLength": min_size}
    schema = {"required": [key], "properties": {key: content}}
    return ShapeCondition(
        lambda part: len(_get_value(part, key) or ()) >= min_size, lambda _: schema
    )


def equals(key: str, value: str | bool) -> ShapeCondition:
    """Match if a key has a value, explicitly or by default."""

    def schema(model: type[BaseModel]) -> JsonSchema:
        default = model.model_fields[_get_field_name(key)].default
        required = {} if default == value else {"required": [key]}
        return {"properties": {key: {"const": value}}} | required

    return ShapeCondition(lambda part: _get_value(part, key) == value, schema)


def all_of(*conditions: ShapeCondition) -> ShapeCondition:
    return _combine("allOf", all, conditions)


def any_of(*conditions: ShapeCondition) -> ShapeCondition:
    return _combine("anyOf", any, conditions)


def one_of(*conditions: ShapeCondition) -> ShapeCondition:
    """Match if exactly one condition matches."""
    return _combine("oneOf", lambda results: sum(results) == 1, conditions)


def not_(condition: ShapeCondition) -> ShapeCondition:
    return ShapeCondition(
        lambda part: not condition.test(part), lambda model: {"not": condition.schema(model)}
    )


def if_then(condition: ShapeCondition, consequence: ShapeCondition) -> ShapeCondition:
    """Match unless ``condition`` matches and ``consequence`` does not."""
    return ShapeCondition(
        lambda part: not condition.test(part) or consequence.test(part),
        lambda model: {"if": condition.schema(model), "then": consequence.schema(model)},
    )


def _combine(
    json_keyword: str, combine: Callable[[list[bool]], bool], conditions: tuple[ShapeCondition, ...]
) -> ShapeCondition:
    return ShapeCondition(
        lambda part: combine([condition.test(part) for condition in conditions]),
        lambda model: {json_keyword: [condition.schema(model) for condition in conditions]},
    )


def _get_field_name(key: str) -> str:
    return f"{key}_" if keyword.iskeyword(key) else key


def _get_value(part: BaseModel, key: str) -> Any:
    return getattr(part, _get_field_name(key))
