"""Runs of digits: boundaries between numbers, and context words."""

from __future__ import annotations

import re

from proxy.guards.matching.numbers import (
    DigitRun,
    find_numbers,
    has_keyword_nearby,
    is_one_value_across_messages,
    split_digit_run,
    split_word_set,
)
from tests.for_each import for_each


@for_each(
    ("text", "parts"),
    [
        ("030 1234567", ["030 1234567"]),
        ("030 1234567 030 7654321", ["030 1234567", "030 7654321"]),
        ("030 1234567 - 0171 2345678", ["030 1234567", "0171 2345678"]),
        ("212-555-0123 (415) 555-0132", ["212-555-0123", "(415) 555-0132"]),
        ("+1 415 555 0132 +49 30 23125", ["+1 415 555 0132", "+49 30 23125"]),
        ("2026-11-21 212-555-0123", ["212-555-0123"]),
        ("21.11.2026 212-555-0123 11/21/2026", ["212-555-0123"]),
        ("2026-11-21", []),
        ("2026-13-21", ["2026-13-21"]),
        ("1-" * 90 + "1", ["1-" * 90 + "1"]),
    ],
)
def test_run_is_split_between_numbers(text: str, parts: list[str]) -> None:
    assert [part.raw for part in split_digit_run(text, 0, len(text))] == parts


def test_longest_groups_are_tried_first() -> None:
    candidates: list[str] = []

    def score(part: DigitRun) -> float:
        candidates.append(part.raw)
        return 0.0

    text = "12 345 (67 890"
    assert list(find_numbers(DigitRun(text, 0, len(text)), 5, 8, score, re.compile("x"))) == []
    assert candidates == ["12 345 (67", "12 345", "345 (67 890", "(67 890"]


@for_each(
    ("text", "min_digits", "accepted", "expected"),
    [
        ("123 456 789 12", 3, {"123 456", "789"}, ["123 456", "789"]),
        # A long run matches only by its shape.
        ("12 " * 20 + "345678" + " 12" * 20, 2, {"345678", "12 12"}, ["345678"]),
    ],
)
def test_numbers_are_found_after_a_match_and_in_a_long_run(
    text: str, min_digits: int, accepted: set[str], expected: list[str]
) -> None:
    def score(run: DigitRun) -> float:
        return float(run.raw in accepted)

    part = DigitRun(text, 0, len(text))
    matches = find_numbers(part, min_digits, 6, score, re.compile("[0-9]+"))
    assert [number.raw for number, _ in matches] == expected


@for_each(
    ("text", "was_called"),
    [
        ("Phone: 5550123", True), ("5550123 is the PHONE", True), ("phones 5550123", False),
        ("phone" + " " * 60 + "5550123", False), ("我的电话是 5550123", True),
        ("Élan 5550123", False),
    ],
)  # fmt: skip
def test_context_word_must_be_near(text: str, was_called: bool) -> None:
    start = text.index("5550123")

    assert has_keyword_nearby(text, start, start + 7, split_word_set("phone 电话")) == was_called


@for_each(
    ("text", "alone", "flag_before", "flag_after"),
    [
        ("5550123", True, False, False), ("a5550123", False, True, False),
        ("_5550123_", True, True, True), ("SKU-5550123", True, True, False),
        ("(5550123)", True, False, False), ("$5550123", True, True, False),
        ("5550123 €", True, False, True), ("5550123:30", True, False, True),
        ("5550123.", True, False, False), ("Is it 5550123, or not", True, False, False),
        ("电话5550123号", True, False, False), ("é5550123", False, True, False),
    ],
)  # fmt: skip
def test_adjacent_characters_extend_a_number(
    text: str, alone: bool, flag_before: bool, flag_after: bool
) -> None:
    start = text.index("5550123")
    part = DigitRun(text, start, start + 7)

    assert part.is_whole_word is alone
    assert (part.ends_longer_token, part.begins_longer_token) == (flag_before, flag_after)


def is_cut_in(kind: str, marked: str) -> bool:
    """Return True if the value in < > counts as one value cut at each |."""
    signs = [match.start() for match in re.finditer(r"[<|>]", marked)]
    start, *cuts, end = [place - number for number, place in enumerate(signs)]
    text = re.sub(r"[<|>]", "", marked)
    return is_one_value_across_messages(kind, text, start, end, [(cut, cut) for cut in cuts])


@for_each(
    ("kind", "marked"),
    [
        ("phone", "mine is <+49 30 9018|20>, thanks"), ("phone", "mine is <+|49 30 901820>"),
        ("phone", "<0049 30 9018|20>"), ("phone", "<(+49) 30 9018|20>"),
        ("phone", "my phone is <030 901|820>"), ("phone", "<030 901|820> is my cell"),
        ("phone", "<+49|30 90|1820>"), ("card", "<4111 1111| 1111 1111>"),
        ("card", "<4111 1111 11|11 1111>"), ("iban", "<DE89 3704 0044 05|32 0130 00>"),
        ("ssn", "<536-2|2-1234>"), ("ssn", "<536|-22-1234>"), ("email", "<ada@|mill.example>"),
        ("email", "<ada.l|@mill.example>"), ("email", "<ada7|@mill.example>"),
        ("email", "<ada@mi|ll.example>"), ("email", "<ada@mill.|example>"),
        ("email", "<a1@4you.|example>"),
    ],
)  # fmt: skip
def test_value_cut_between_messages_is_one_value(kind: str, marked: str) -> None:
    assert is_cut_in(kind, marked)


@for_each(
    ("kind", "marked"),
    [
        ("phone", "<202| 5550187> items"), ("phone", "room <555|0187999>"),
        ("phone", "<0049| 2026-11>-23"), ("phone", "<0049| 1732345678>"),
        ("phone", "call at 10:<30|30 901820>"), ("phone", "<+49 30| 19.99>"),
        ("phone", "on 23.11.<2026|5550187>"), ("phone", "-6.<376|19198>"),
        ("card", "<4111 1111 1111| 1111>.25"), ("card", "on 2026-<11-23|11 1111 1111 1111>"),
        ("id_CL", "-3.<466462|-5>.41"), ("email", "<19.99|@mill.example>"),
        ("email", "<42|@mill.example>"), ("email", "Ask the <team|@ada.dev> for help"),
        ("email", "I took <vue@3.2.|Then> it broke"), ("email", "<vue@v3.|Then>"),
    ],
)  # fmt: skip
def test_adjacent_numbers_are_not_a_cut_value(kind: str, marked: str) -> None:
    assert not is_cut_in(kind, marked)
