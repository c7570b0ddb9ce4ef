"""Patterns for the values of tags: whole values, in time that nobody can stretch."""

from __future__ import annotations

import pytest

from proxy.policy.schema import keys
from tests.for_each import for_each


@pytest.mark.parametrize("value", ["CC-1001", "CC-0000"])
def test_a_whole_value_fits(value: str) -> None:
    assert keys.compile_pattern("CC-[0-9]{4}").matches(value)


@for_each("value", ["xCC-1001", "CC-10011", "CC-1001\n", "\nCC-1001", "cc-1001", ""])
def test_a_part_of_a_value_is_not_enough(value: str) -> None:
    assert not keys.compile_pattern("CC-[0-9]{4}").matches(value)


def test_an_alternative_is_bound_at_both_ends() -> None:
    either = keys.compile_pattern("a|b")

    assert either.matches("a")
    assert not either.matches("ab")
    assert not either.matches("xb")


@for_each(
    "value",
    ["x" * 65, "sup\u200bport", "e\u0301te", "a\tb", "\x1b[31m", "\u202eabc", "\udc80"],
    ids=["long", "zero width", "not NFC", "tab", "escape", "bidi", "surrogate"],
)
def test_a_value_that_is_no_plain_label_fits_nothing(value: str) -> None:
    assert not keys.compile_pattern("(?s).*").matches(value)


@for_each("text", ["(a+)+", "(a|a)*", "(.*)*x", "(a|aa)+$"])
def test_no_pattern_can_be_made_to_hang(text: str) -> None:
    pattern = keys.compile_pattern(text)

    assert not pattern.matches("a" * 63 + "!")  # an engine that backtracks takes years


@for_each("text", ["[a-", "a)|(b", "(?=a)b", r"(a)\1", "x{1000}{1000}{1000}"])
def test_what_cannot_be_matched_in_linear_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid RE2 pattern: "):
        keys.compile_pattern(text)


@for_each(
    ("text", "value", "fits"),
    [
        ("gpt-4o*", "gpt-4o-mini", True),
        ("gpt-4o*", "gpt-4o", True),
        ("gpt-4o*", "xgpt-4o", False),
        ("*4?", "gpt-4o", True),
        ("*4?", "gpt-4o-mini", False),
        ("?", "é", True),
        ("a.c", "abc", False),
        ("*", "two\nlines", True),
        ("*", "x" * 10_000, True),
        ("*", "\udc80", False),
    ],
)
def test_glob_matches_whole_value(text: str, value: str, fits: bool) -> None:
    assert [keys.glob(text).matcher()(value) for _ in range(2)] == [fits, fits]


def test_classes_of_letters_are_those_of_re2() -> None:
    assert not keys.compile_pattern(r"\w+").matches("müller")
    assert keys.compile_pattern(r"\pL+").matches("müller")
