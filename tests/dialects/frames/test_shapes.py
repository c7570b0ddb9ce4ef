"""Shapes of values without text."""

from __future__ import annotations

from typing import Any

from proxy.dialects.frames.shapes import Shape, fits, is_empty, is_name, is_number, is_text, one_of
from tests.for_each import for_each

SHAPE = {"id": is_name, "usage": {"tokens": is_number}}


@for_each(
    ("shape", "value", "fit"),
    [
        (is_name, "msg_1", True),
        (is_name, "", True),
        (is_name, None, True),
        (is_name, "a" * 129, False),
        (is_name, "a b", False),
        (is_name, " a", False),
        (is_name, 5, False),
        (is_number, 5, True),
        (is_number, "5", False),
        (is_number, [5], False),
        (is_text, "a b", True),
        (is_text, None, False),
        (is_empty, "", True),
        (is_empty, None, True),
        (is_empty, [], True),
        (is_empty, {}, True),
        (is_empty, 0, False),
        (is_empty, ["a"], False),
        (one_of("a"), "a", True),
        (one_of("a"), None, True),
        (one_of("a"), "b", False),
        (one_of("a"), ["a"], False),
        (SHAPE, {}, True),
        (SHAPE, {"id": "x", "usage": {"tokens": 5}}, True),
        (SHAPE, {"usage": {"tokens": 5, "more": 5}}, False),
        (SHAPE, {"id": "x", "more": None}, False),
        (SHAPE, {"usage": 5}, False),
        (SHAPE, [], False),
    ],
)
def test_value_fits_a_shape(shape: Shape, value: Any, fit: bool) -> None:
    assert fits(value, shape) is fit
