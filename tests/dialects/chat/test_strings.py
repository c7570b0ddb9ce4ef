"""Strings in a JSON value are found, blanked and taken out alone."""

from __future__ import annotations

from typing import Any

from proxy.dialects.chat.strings import alone, blanked, numbered, strings

VALUE: Any = {
    "a": ["x", {"type": "t", "index": 7, "b": "y"}],
    "name": "whole",
    "c": {"d": "z", "e": ""},
    "f": 1,
}


def test_strings_are_found_in_document_order() -> None:
    assert [*strings(VALUE)] == [(("a", 0), "x"), (("a", 1, "b"), "y"), (("c", "d"), "z")]
    assert [*strings("x")] == [((), "x")]


def test_deep_values_need_no_recursion() -> None:
    value: Any = "x"
    for _ in range(5_000):
        value = [value]

    assert [text for _, text in strings(value)] == ["x"]


def test_paths_have_the_numbers_of_items() -> None:
    assert numbered(VALUE, ("a", 1, "b")) == ("a", 7, "b")
    assert numbered(VALUE, ("a", 0)) == ("a", 0)


def test_one_string_is_taken_out_with_what_tells_its_items_apart() -> None:
    assert alone(VALUE, ("a", 1, "b"), "new") == {"a": [{"index": 7, "type": "t", "b": "new"}]}
    assert alone("x", (), "new") == "new"


def test_blanked_values_leave_the_original_alone() -> None:
    made = blanked(VALUE, [("a", 0), ("a", 1, "b")])

    assert made == {**VALUE, "a": ["", {"type": "t", "index": 7, "b": ""}]}
    assert [text for _, text in strings(VALUE)] == ["x", "y", "z"]
    assert blanked("x", [()]) == ""
