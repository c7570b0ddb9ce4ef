"""What a body may say: each field with its type and inclusive range, as data.

A table of fields is read by three: the reader that refuses a wrong value, the writer that asks
whether an upstream can take a field, and the reference in ``docs/dialects.md``. ``null`` is
legal for every field that is not required and means its default. Fields that no table names
pass with their values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import islice
from math import inf
from types import MappingProxyType
from typing import Any

from proxy.errors import BadField, BadRequest
from proxy.field_problems import missing
from proxy.frozen import frozen
from proxy.types import Json
from proxy.types.spelling import folded, meant_by, squeezed
from proxy.words import MAX_LISTED, MAX_NAME, ascii_word

Check = Callable[[Any], str | None]
Class = type[Any]


@frozen
class Field:
    """One field. ``says`` describes what ``check`` accepts; ``default`` is what null means.

    ``check`` returns None for a good value, else the problem, never the value itself. It need not
    be asked for a value of the class ``good``. ``type`` is the same field without its range, where
    it has one.
    """

    says: str
    check: Check
    required: bool = False
    default: Any = None
    type: Field | None = None
    good: Class | None = None


Fields = Mapping[str, Field]
PLURALS: Mapping[type, str] = {dict: "objects", int: "integers", str: "strings"}
NO_SPELLINGS: Mapping[str, str] = MappingProxyType({})


def check_body(fields: Fields, body: Json, spellings: Mapping[str, str] = NO_SPELLINGS) -> None:
    """Raise ``BadField`` for a field that is missing, or the first that has a wrong value or a name
    that some servers take for a known one. ``spellings`` are names by what they are squeezed to.
    """
    for name in fields:
        if not fields[name].required:
            break  # tables name required fields first, so that a short body is checked shortly
        if name not in body or body[name] is None:
            _check_absent(name, body, fields[name])
    for name, value in body.items():
        if name not in fields:
            check_spelling(fields, spellings, name)
            continue
        known = fields[name]
        if value is not None and type(value) is not known.good:
            problem = known.check(value)
            if problem is not None:
                raise BadField(name, problem)


def check_spelling(
    fields: Collection[str], spellings: Mapping[str, str], name: str, path: str = ""
) -> None:
    """Raise ``BadRequest`` or ``BadField`` for a name that is longer than any is, and ``BadField``
    for one that some servers take for a known one."""
    if len(name) > MAX_NAME and not path:
        raise BadRequest(f"A field name in the body is longer than {MAX_NAME} characters.")
    if len(name) > MAX_NAME:
        problem = f"must not contain a field name longer than {MAX_NAME} characters"
        raise BadField(path.removesuffix("."), problem)
    small = folded(name)
    known = small if small in fields else spellings.get(squeezed(name))
    if known is not None:
        raise BadField(path + known, f'use this exact name instead of "{ascii_word(name)}"')


def misspelled(fields: Fields, body: Json) -> tuple[str, ...]:
    """Return a warning for each unknown field that may be a misspelled one."""
    if body.keys() <= fields.keys():
        return ()
    unknown = islice((name for name in body if name not in fields), MAX_LISTED)
    pairs = ((name, meant_by(name, fields)) for name in unknown)
    return tuple(
        f"{ascii_word(name)} unknown, did you mean {known}?" for name, known in pairs if known
    )


def _check_absent(name: str, body: Json, field: Field) -> None:
    problem = f"must be {field.says}, not null" if name in body else missing(field.says)
    raise BadField(name, problem)


def required(field: Field) -> Field:
    """Return the field as one that must be there and is not null."""
    return replace(field, required=True)


def optional(field: Field, default: Any) -> Field:
    """Return the field as one that may be left out, and then means ``default``."""
    return replace(field, default=default)


def types_of(fields: Fields) -> Fields:
    """Return the fields without their ranges."""
    return {
        name: replace(field.type or field, required=field.required, default=field.default)
        for name, field in fields.items()
    }


def _bounds(low: float | None, high: float | None) -> tuple[float, float]:
    return (-inf if low is None else low, inf if high is None else high)


def _shown(bound: float) -> str:
    """Return a bound as text, a large one as a power of two."""
    for least, text in ((-(2**63), "-2^63"), (2**53, "2^53"), (2**63 - 1, "2^63 - 1")):
        if bound == least:
            return text
    return str(bound)


def _range(kind: str, low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"{kind} between {_shown(low)} and {_shown(high)}"
    if low is not None:
        return f"{kind} of at least {low}"
    return kind if high is None else f"{kind} of at most {high}"


def number(low: float | None = None, high: float | None = None, default: Any = None) -> Field:
    """A number, whole or not; true and false are none."""
    says = _range("a number", low, high)
    least, most = _bounds(low, high)

    def check(value: Any) -> str | None:
        good = type(value) in (int, float) and least <= value <= most
        return None if good else f"must be {says}"

    return Field(says, check, default=default, type=None if low is high is None else number())


def integer(low: int | None = None, high: int | None = None, default: Any = None) -> Field:
    """A whole number written as one: neither ``true`` nor ``1.0``."""
    says = _range("an integer", low, high)
    least, most = _bounds(low, high)

    def check(value: Any) -> str | None:
        good = type(value) is int and least <= value <= most
        return None if good else f"must be {says}"

    return Field(says, check, default=default, type=None if low is high is None else integer())


def _typed(says: str, kind: type, default: Any = None) -> Field:
    def check(value: Any) -> str | None:
        return None if type(value) is kind else f"must be {says}"

    return Field(says, check, default=default, good=kind)


def boolean(default: Any = False) -> Field:
    return _typed("true or false", bool, default)


def string() -> Field:
    return _typed("a string", str)


def mapping() -> Field:
    return _typed("an object", dict)


def unserved(field: Field, problem: str) -> Field:
    """Return a field that may only say what its absence says, as it leans on what a provider
    keeps."""

    def check(value: Any) -> str | None:
        return field.check(value) or (problem if value else None)

    return replace(field, check=check, good=None)


def choice(*words: str, default: str | None = None) -> Field:
    """One of a closed set of words."""
    says = "one of " + ", ".join(words)

    def check(value: Any) -> str | None:
        return None if isinstance(value, str) and value in words else f"must be {says}"

    return Field(says, check, default=default, type=string())


def array(item: type | tuple[type, ...], says: str, low: int = 0, high: int | None = None) -> Field:
    """An array whose items are all of one kind; ``low`` and ``high`` bound its length."""
    kinds = item if isinstance(item, tuple) else (item,)
    most = inf if high is None else high

    def check(value: Any) -> str | None:
        good = (
            type(value) is list
            and low <= len(value) <= most
            and all(type(each) in kinds for each in value)
        )
        return None if good else f"must be {says}"

    bounded = low > 0 or high is not None
    unbounded = "an array of " + " or ".join(PLURALS[kind] for kind in kinds)
    return Field(says, check, type=array(item, unbounded) if bounded else None)


def either(*fields: Field) -> Field:
    """Any one of several shapes."""
    says = " or ".join(field.says for field in fields)

    def check(value: Any) -> str | None:
        good = any(field.check(value) is None for field in fields)
        return None if good else f"must be {says}"

    bounded = any(field.type for field in fields)
    return Field(says, check, type=either(*(f.type or f for f in fields)) if bounded else None)


def at_most(field: Field, most: float) -> Field:
    """The field with a bound on a number, or on how many entries an array has."""

    def check(value: Any) -> str | None:
        problem = field.check(value)
        if problem is not None:
            return problem
        if type(value) is list:
            return f"must have at most {most:g} items" if len(value) > most else None
        too_much = type(value) in (int, float) and value > most
        return f"must be at most {most:g}" if too_much else None

    return replace(field, check=check, good=None, type=field)


def anything() -> Field:
    return Field("any value", lambda value: None)


def stop() -> Field:
    """One sequence that ends the answer, or up to 4."""
    several = array(str, "an array of at most 4 strings", high=4)
    any_number = either(string(), array(str, "an array of strings"))
    return replace(either(string(), several), type=any_number)


def _tokens(value: Any) -> bool:
    return type(value) is list and bool(value) and all(type(t) is int and t >= 0 for t in value)


def prompt() -> Field:
    """A text, texts, tokens, or token lists; an array must not be empty."""
    says = "a string, an array of strings, an array of tokens, or an array of token arrays"

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
    any_number = numbers_by_name("an object of token ids to numbers", number())
    says = "an object of token ids to numbers between -100 and 100"
    return replace(numbers_by_name(says, number(-100, 100)), type=any_number)


def numbers_by_name(says: str, item: Field) -> Field:
    """An object whose values are all of one kind."""

    def check(value: Any) -> str | None:
        good = type(value) is dict and all(item.check(v) is None for v in value.values())
        return None if good else f"must be {says}"

    return Field(says, check)


def messages() -> Field:
    """Chat messages: objects with a role; what else they hold is the upstream's to judge."""
    says = "a non-empty array of objects, each with a string role"

    def check(value: Any) -> str | None:
        good = type(value) is list and bool(value)
        for each in value if good else ():
            if type(each) is not dict or "role" not in each or type(each["role"]) is not str:
                good = False
        return None if good else f"must be {says}"

    return Field(says, check)
