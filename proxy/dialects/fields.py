"""What a body may say: each field with its type and inclusive range, as data.

A table of fields is read by three: the reader that refuses a wrong value, the writer that asks
whether an upstream can take a field, and the reference in ``docs/dialects.md``. ``null`` is
legal for every field that is not required and means its default. Fields that no table names
pass with their values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.errors import BadField
from proxy.types import Json

Check = Callable[[Any], str | None]


@dataclass(frozen=True, slots=True)
class Field:
    """One field. ``says`` describes what ``check`` accepts; ``default`` is what null means.

    ``check`` gives None for a good value, else the problem, never the value itself.
    """

    says: str
    check: Check
    required: bool = False
    default: Any = None


Fields = Mapping[str, Field]


def check_body(fields: Fields, body: Json) -> None:
    """Raise ``BadField`` for a field that is missing, or the first that has a wrong value."""
    for name, field in fields.items():
        if not field.required:
            break  # tables name required fields first, so that a short body is checked shortly
        if body.get(name) is None:
            _check_absent(name, field, body)
    for name, value in body.items():
        known = fields.get(name)
        if known is not None and value is not None:
            problem = known.check(value)
            if problem is not None:
                raise BadField(name, problem)


def _check_absent(name: str, field: Field, body: Json) -> None:
    if name not in body:
        raise BadField(name, f"is required: {field.says}")
    if field.default is None:
        raise BadField(name, f"must not be null: {field.says}")


def required(field: Field, default: Any = None) -> Field:
    """Give the field as one that must be there; with a default it may still be null."""
    return Field(field.says, field.check, required=True, default=default)


def _within(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def _range(kind: str, low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"{kind} from {low} to {high}"
    if low is not None:
        return f"{kind}, at least {low}"
    return kind if high is None else f"{kind}, at most {high}"


def number(low: float | None = None, high: float | None = None, default: Any = None) -> Field:
    """A number, whole or not; true and false are none."""
    says = _range("a number", low, high)

    def check(value: Any) -> str | None:
        good = type(value) in (int, float) and _within(value, low, high)
        return None if good else f"must be {says}"

    return Field(says, check, default=default)


def integer(low: int | None = None, high: int | None = None, default: Any = None) -> Field:
    """A whole number written as one: neither ``true`` nor ``1.0``."""
    says = _range("an integer", low, high)

    def check(value: Any) -> str | None:
        good = type(value) is int and _within(value, low, high)
        return None if good else f"must be {says}"

    return Field(says, check, default=default)


def _typed(says: str, kind: type, default: Any = None) -> Field:
    def check(value: Any) -> str | None:
        return None if type(value) is kind else f"must be {says}"

    return Field(says, check, default=default)


def boolean(default: Any = False) -> Field:
    return _typed("true or false", bool, default)


def string() -> Field:
    return _typed("a string", str)


def mapping() -> Field:
    return _typed("an object", dict)


def choice(*words: str, default: str | None = None) -> Field:
    """One of a closed set of words."""
    says = "one of " + ", ".join(words)

    def check(value: Any) -> str | None:
        return None if isinstance(value, str) and value in words else f"must be {says}"

    return Field(says, check, default=default)


def array(item: type | tuple[type, ...], says: str, low: int = 0, high: int | None = None) -> Field:
    """An array whose items are all of one kind; ``low`` and ``high`` bound its length."""
    kinds = item if isinstance(item, tuple) else (item,)

    def check(value: Any) -> str | None:
        good = (
            type(value) is list
            and _within(len(value), low, high)
            and all(type(each) in kinds for each in value)
        )
        return None if good else f"must be {says}"

    return Field(says, check)


def either(*fields: Field) -> Field:
    """Any one of several shapes."""
    says = " or ".join(field.says for field in fields)

    def check(value: Any) -> str | None:
        good = any(field.check(value) is None for field in fields)
        return None if good else f"must be {says}"

    return Field(says, check)


def anything() -> Field:
    return Field("any value", lambda value: None)


def stop() -> Field:
    return either(string(), array(str, "an array of at most 4 strings", high=4))


def _tokens(value: Any) -> bool:
    return type(value) is list and bool(value) and all(type(t) is int and t >= 0 for t in value)


def prompt() -> Field:
    """A text, texts, tokens, or token lists; an array must not be empty."""
    says = "a string, an array of strings, an array of tokens or an array of token arrays"

    def check(value: Any) -> str | None:
        if type(value) is str or _tokens(value):
            return None
        several = type(value) is list and bool(value)
        if several and (
            all(type(each) is str for each in value) or all(_tokens(each) for each in value)
        ):
            return None
        return f"must be {says}"

    return Field(says, check)


def logit_bias() -> Field:
    """Token ids, as strings, to a bias from -100 to 100."""
    says = "an object of token ids to numbers from -100 to 100"
    bias = number(-100, 100)

    def check(value: Any) -> str | None:
        good = type(value) is dict and all(bias.check(v) is None for v in value.values())
        return None if good else f"must be {says}"

    return Field(says, check)


def messages() -> Field:
    """Chat messages: objects with a role; what else they hold is the upstream's to judge."""
    says = "a non-empty array of objects, each with a string role"

    def check(value: Any) -> str | None:
        good = (
            type(value) is list
            and bool(value)
            and all(type(m) is dict and type(m.get("role")) is str for m in value)
        )
        return None if good else f"must be {says}"

    return Field(says, check)
