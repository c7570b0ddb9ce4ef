"""Types of request fields: what a value may be, with its inclusive range, as data.

``null`` is legal for every field that is not required, and means its default. Fields without a
declaration pass with their values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from math import inf
from types import MappingProxyType
from typing import Any

from proxy.errors import BadRequest, InvalidField
from proxy.errors.field_problems import describe_missing_field
from proxy.errors.words import MAX_LISTED, MAX_NAME, shorten_to_ascii
from proxy.fields.spelling import casefold_name, normalize_name, suggest_name
from proxy.runtime.frozen import frozen

Check = Callable[[Any], str | None]
MAX_TOKENS = 2**53


@frozen
class FieldType:
    """Type of a field.

    ``description`` describes the values that ``check`` accepts. ``default`` replaces null.

    ``check`` returns None for a valid value, otherwise the problem, without the value. Values of
    the class ``valid_class`` need no check. ``without_range`` is the type without its range, for
    servers with other ranges than the API's. It is None if there is no range, or if the range holds
    for all servers.
    """

    description: str
    check: Check
    required: bool = False
    default: Any = None
    without_range: FieldType | None = None
    valid_class: type[Any] | None = None


Fields = Mapping[str, FieldType]
PLURAL_BY_TYPE: Mapping[type, str] = {dict: "objects", int: "integers", str: "strings"}
NO_SPELLINGS: Mapping[str, str] = MappingProxyType({})


def check_body(
    fields: Fields, body: Mapping[str, Any], spellings: Mapping[str, str] = NO_SPELLINGS
) -> None:
    """Raise ``InvalidField`` for the first missing, invalid or misspelled field.

    ``spellings`` maps normalized names to known ones.
    """
    for name in fields:
        if not fields[name].required:
            break  # required fields are first, so that a short body is checked quickly
        if name not in body or body[name] is None:
            expected = fields[name].description
            problem_of_null = f"must be {expected}, not null"
            missing = describe_missing_field(expected)
            raise InvalidField(name, problem_of_null if name in body else missing)
    for name, value in body.items():
        if name not in fields:
            check_spelling(fields, spellings, name)
            continue
        field = fields[name]
        if value is not None and type(value) is not field.valid_class:
            problem = field.check(value)
            if problem is not None:
                raise InvalidField(name, problem)


def check_member(name: str, value: Any, field: FieldType, path: str) -> None:
    """Raise ``InvalidField`` if a member of the object at ``path`` is missing or wrong."""
    if value is None and not field.required:
        return
    problem = describe_missing_field(field.description) if value is None else field.check(value)
    if problem is not None:
        raise InvalidField(f"{path}.{name}", problem)


def check_spelling(
    fields: Collection[str], spellings: Mapping[str, str], name: str, path: str = ""
) -> None:
    """Raise ``BadRequest`` or ``InvalidField`` for a name that is too long or misspelled.

    A name is misspelled if some servers read it as a known one.
    """
    if len(name) > MAX_NAME and not path:
        raise BadRequest(f"A field name in the body is longer than {MAX_NAME} characters.")
    if len(name) > MAX_NAME:
        problem = f"must not contain a field name longer than {MAX_NAME} characters"
        raise InvalidField(path.removesuffix("."), problem)
    folded_name = casefold_name(name)
    exact_name = folded_name if folded_name in fields else spellings.get(normalize_name(name))
    if exact_name is not None:
        raise InvalidField(
            path + exact_name, f'use this exact name instead of "{shorten_to_ascii(name)}"'
        )


def list_misspelling_warnings(fields: Fields, body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a warning for each unknown field that may be a misspelled one."""
    unknown = [name for name in body if name not in fields]
    if not unknown:
        return ()
    pairs = ((name, suggest_name(name, fields)) for name in unknown[:MAX_LISTED])
    return tuple(
        f"{shorten_to_ascii(name)} unknown, did you mean {meant_name}?"
        for name, meant_name in pairs
        if meant_name
    )


def make_required(field: FieldType) -> FieldType:
    """Return the type of a field that must be present and is not null."""
    return replace(field, required=True)


def _make_type(
    expected: str,
    is_valid: Callable[[Any], bool],
    *,
    default: Any = None,
    valid_class: type | None = None,
) -> FieldType:
    def check(value: Any) -> str | None:
        return None if is_valid(value) else f"must be {expected}"

    return FieldType(expected, check, default=default, valid_class=valid_class)


def _format_bound_or_power(bound: float) -> str:
    """Return a bound as text, -2^63, 2^53 and 2^63 - 1 as powers."""
    for named_bound, text in ((-(2**63), "-2^63"), (2**53, "2^53"), (2**63 - 1, "2^63 - 1")):
        if bound == named_bound:
            return text
    return str(bound)


def _make_number_type(
    kind: str, classes: tuple[type, ...], low: float | None, high: float | None, default: Any
) -> FieldType:
    minimum, maximum = -inf if low is None else low, inf if high is None else high
    expected = kind
    if low is not None:
        bounds = f"{_format_bound_or_power(minimum)} and {_format_bound_or_power(maximum)}"
        expected += f" of at least {low}" if high is None else f" between {bounds}"
    elif high is not None:
        expected += f" of at most {high}"

    def check(value: Any) -> str | None:
        good = type(value) in classes and minimum <= value <= maximum
        return None if good else f"must be {expected}"

    has_range = low is not None or high is not None
    unbounded = _make_number_type(kind, classes, None, None, None) if has_range else None
    return FieldType(expected, check, default=default, without_range=unbounded)


def number(low: float | None = None, high: float | None = None, default: Any = None) -> FieldType:
    """Return the type of numbers. Booleans are not numbers."""
    return _make_number_type("a number", (int, float), low, high, default)


def integer(low: int | None = None, high: int | None = None, default: Any = None) -> FieldType:
    """Return the type of integers written as such, not as ``true`` or ``1.0``."""
    return _make_number_type("an integer", (int,), low, high, default)


def token_count(minimum: int) -> FieldType:
    """Return the type of counts that are small enough for exact sums."""
    return integer(minimum, MAX_TOKENS)


def _make_instance_type(expected: str, kind: type, default: Any = None) -> FieldType:
    return _make_type(
        expected, lambda value: type(value) is kind, default=default, valid_class=kind
    )


def boolean(default: Any = False) -> FieldType:
    return _make_instance_type("true or false", bool, default)


def string() -> FieldType:
    return _make_instance_type("a string", str)


def mapping() -> FieldType:
    return _make_instance_type("an object", dict)


def require_empty(field: FieldType, problem: str) -> FieldType:
    """Return the type of a field that must be empty: its values refer to stored objects."""

    def check(value: Any) -> str | None:
        return field.check(value) or (problem if value else None)

    return replace(field, check=check, valid_class=None)


def choice(*words: str, default: str | None = None) -> FieldType:
    """Return the type of strings from a closed set."""
    expected = "one of " + ", ".join(words)
    closed = _make_type(
        expected, lambda value: isinstance(value, str) and value in words, default=default
    )
    return replace(closed, without_range=string())


def array(
    item: type | tuple[type, ...], description: str, low: int = 0, high: int | None = None
) -> FieldType:
    """Return the type of arrays of one item type, with ``low`` to ``high`` items."""
    kinds = item if isinstance(item, tuple) else (item,)
    max_length = inf if high is None else high

    def is_good(value: Any) -> bool:
        if type(value) is not list or not low <= len(value) <= max_length:
            return False
        return all(type(element) in kinds for element in value)

    bounded = low > 0 or high is not None
    unbounded = "an array of " + " or ".join(PLURAL_BY_TYPE[kind] for kind in kinds)
    return replace(
        _make_type(description, is_good), without_range=array(item, unbounded) if bounded else None
    )


def object_array() -> FieldType:
    return array(dict, "an array of objects")


def string_array(*words: str) -> FieldType:
    """Return the type of arrays of strings, which ``words`` may restrict."""
    if not words:
        return array(str, "an array of strings")
    expected = f"an array whose items are {' or '.join(words)}"
    listed = _make_type(
        expected, lambda value: type(value) is list and all(word in words for word in value)
    )
    return replace(listed, without_range=string_array())


def any_of(*types: FieldType) -> FieldType:
    """Return the type of values that match at least one of several types."""
    expected = " or ".join(field.description for field in types)
    union = _make_type(expected, lambda value: any(field.check(value) is None for field in types))
    bounded = any(field.without_range for field in types)
    return replace(
        union, without_range=any_of(*(t.without_range or t for t in types)) if bounded else None
    )


def add_maximum(field: FieldType, maximum: float) -> FieldType:
    """Return the type with a bound on its number, or on the length of its array."""

    def check(value: Any) -> str | None:
        problem = field.check(value)
        if problem is not None:
            return problem
        if type(value) is list:
            return f"must have at most {maximum:g} items" if len(value) > maximum else None
        too_much = type(value) in (int, float) and value > maximum
        return f"must be at most {maximum:g}" if too_much else None

    return replace(field, check=check, valid_class=None, without_range=field)


def anything() -> FieldType:
    return FieldType("any value", lambda value: None)


def stop_sequences() -> FieldType:
    """Return the type of one stop sequence, or a list of up to 4."""
    several = array(str, "an array of at most 4 strings", high=4)
    return replace(any_of(string(), several), without_range=any_of(string(), string_array()))


def _is_token_list(value: Any) -> bool:
    return type(value) is list and bool(value) and all(type(t) is int and t >= 0 for t in value)


def prompt(default: str | None = None) -> FieldType:
    """Return the type of a text, texts, tokens or token lists. Arrays must not be empty."""

    def is_good(value: Any) -> bool:
        if type(value) is str or _is_token_list(value):
            return True
        if type(value) is not list or not value:
            return False
        return all(type(item) is str for item in value) or all(map(_is_token_list, value))

    expected = "a string, an array of strings, an array of tokens, or an array of token arrays"
    return _make_type(expected, is_good, default=default)


def logit_bias() -> FieldType:
    """Return the type of a map from token ids, as strings, to biases from -100 to 100."""

    def by_token(bounds: str, bias: FieldType) -> FieldType:
        def is_good(value: Any) -> bool:
            return type(value) is dict and all(bias.check(v) is None for v in value.values())

        return _make_type(f"an object of token ids to numbers{bounds}", is_good)

    return replace(
        by_token(" between -100 and 100", number(-100, 100)), without_range=by_token("", number())
    )


def messages() -> FieldType:
    """Return the type of chat messages: objects with a role. The upstream checks other members."""

    def is_good(value: Any) -> bool:
        if type(value) is not list or not value:
            return False
        for message in value:  # this loop runs for each message, and a generator is slower
            if type(message) is not dict or "role" not in message:
                return False
            if type(message["role"]) is not str:
                return False
        return True

    return _make_type("a non-empty array of objects, each with a string role", is_good)
