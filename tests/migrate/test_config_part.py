"""Typed access to configuration of other gateways, and its unread members."""

from __future__ import annotations

from typing import Any

from proxy.migrate.draft import ConfigPart
from tests.for_each import for_each


@for_each("value", [0, -1, True, "x", None, [], 1e13, 10**400, float("nan")])
def test_numbers_must_be_positive(value: Any) -> None:
    part = ConfigPart("at", {"n": value})

    assert part.number("n") is None
    assert list(part.unread()) == ([] if value in (None, []) else ["at.n"])


@for_each(("value", "text"), [("a", "a"), (7, "7"), (True, None), ("", None)])
def test_text_may_be_a_number(value: Any, text: str | None) -> None:
    assert ConfigPart("", {"t": value}).text("t") == text


def test_items_have_their_location() -> None:
    parts = ConfigPart("", {"items": [{"a": 1}, 2]}).parts("items")

    assert [part.place for part in parts] == ["items[0]", "items[1]"]
    assert [list(part.unread()) for part in parts] == [["items[0].a"], []]


@for_each("values", [None, 1, "x", [1]])
def test_other_values_have_no_members(values: Any) -> None:
    part = ConfigPart("", values)

    assert (part.names(), part.parts("a"), list(part.unread())) == ([], [], [])
    assert part.take("a") is None
