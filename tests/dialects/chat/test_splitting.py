"""Strings in a JSON value are blanked and taken out alone."""

from __future__ import annotations

from typing import Any

from proxy.dialects.chat.splitting import alone, blanked

VALUE: Any = {
    "a": ["x", {"type": "t", "index": 7, "b": "y"}],
    "name": "whole",
    "c": {"d": "z", "e": ""},
    "f": 1,
}


def test_one_string_is_taken_out_with_what_tells_its_items_apart() -> None:
    assert alone(VALUE, ("a", 1, "b"), "new") == {"a": [{"index": 7, "type": "t", "b": "new"}]}
    assert alone("x", (), "new") == "new"


def test_blanked_values_leave_the_original_alone() -> None:
    result = blanked(VALUE, [("a", 0), ("a", 1, "b")])

    assert result == {**VALUE, "a": ["", {"type": "t", "index": 7, "b": ""}]}
    assert VALUE["a"] == ["x", {"type": "t", "index": 7, "b": "y"}]
    assert blanked("x", [()]) == ""
