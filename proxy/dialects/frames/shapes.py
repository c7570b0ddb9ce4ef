"""Shapes of JSON values that hold no text: ids, types, counts.

The reader of an API family declares the shape of each event that is ordinary there. Guards read the
whole document of an event that has any other shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[Any], bool]
Shape = Check | Mapping[str, Any]
"""A check of a value, or the shapes of the members that an object may have."""

MAX_NAME = 128
"""Characters of a name or an id; a longer one is a text."""
COUNTS = frozenset(
    {"accepted_prediction_tokens", "audio_tokens", "cache_creation_input_tokens"}
    | {"cache_read_input_tokens", "cache_write_tokens", "cached_tokens", "completion_tokens"}
    | {"completion_tokens_details", "cost", "image_tokens", "input_tokens", "output_tokens"}
    | {"input_tokens_details", "output_tokens_details", "prompt_tokens", "prompt_tokens_details"}
    | {"reasoning_tokens", "rejected_prediction_tokens", "text_tokens", "total_tokens"}
)
"""Members of the usage of a chat."""


def fits(value: Any, shape: Shape) -> bool:
    """Return True if a value has a shape. An object needs none of the members that it may have."""
    if callable(shape):
        return shape(value)
    if value.__class__ is not dict:
        return False
    for name, member in value.items():
        inner = shape.get(name)
        if inner is None or not fits(member, inner):
            return False
    return True


def is_name(value: Any) -> bool:
    """Return True for null, and for a string without white space of at most 128 characters."""
    if value.__class__ is not str:
        return value is None
    return len(value) <= MAX_NAME and value.split() in ([value], [])


def is_number(value: Any) -> bool:
    return value is None or value.__class__ in (int, float, bool)


def is_counts(value: Any, depth: int = 2) -> bool:
    """Return True for a number, and for numbers under the names of `COUNTS` in up to two levels."""
    if value.__class__ is not dict:
        return is_number(value)
    return depth > 0 and all(
        name in COUNTS and is_counts(part, depth - 1) for name, part in value.items()
    )


def is_text(value: Any) -> bool:
    """Return True for a string, which a typed event carries to the guards."""
    return value.__class__ is str


def is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {})


def one_of(*words: str) -> Check:
    """Return a check for null and for fixed strings."""
    return lambda value: value is None or (value.__class__ is str and value in words)


def nullable(shape: Shape) -> Check:
    """Return a check for null and for values of a shape."""
    return lambda value: value is None or fits(value, shape)
