"""The words of others: short, on one line, and few."""

from __future__ import annotations

import re
from pathlib import Path

from proxy.errors.words import (
    MAX_LISTED,
    MAX_WORD,
    ascii_word,
    counted,
    first_items,
    listed,
    word,
    word_of,
)
from tests.for_each import for_each


@for_each(
    ("text", "becomes"),
    [
        ("smol", "smol"),
        ("x" * 5_000_000, "x" * MAX_WORD),
        ("a\nb\x00c", "a?b?c"),
        ("Z\u00fcr", "Z\u00fcr"),
        ("\udcff", "?"),
        ("", ""),
    ],
)
def test_a_word_is_short_and_on_one_line(text: str, becomes: str) -> None:
    assert word(text) == becomes


def test_a_word_for_headers_is_ascii() -> None:
    assert ascii_word("Z\u00fcr\r\n") == "Z?r??"


@for_each("value", [None, 7, "", [], {"a": 1}, True])
def test_what_is_no_text_is_no_word(value: object) -> None:
    assert word_of(value) is None


def test_a_text_is_a_word_of_as_many_characters_as_are_wanted() -> None:
    assert word_of("x" * 500, 200) == "x" * 200


def test_of_many_a_few_are_taken_and_the_rest_counted_in_a_message() -> None:
    names = [f"m{number}" for number in range(100)]

    assert first_items(names, 3) == ["m0", "m1", "m2"]
    assert listed(names[:2]) == "m0, m1"
    assert listed(names).endswith(f"m{MAX_LISTED - 1} and {100 - MAX_LISTED} more")
    assert len(listed(["x" * 1000] * 1000)) < 1000


def test_an_empty_name_is_seen_in_a_list() -> None:
    assert listed(["", "a"]) == "'', a"


PRODUCT = Path(__file__).parents[2] / "proxy"
BY_HAND = (
    r"[^/]\{[a-z][^{}\"]*\} (?:attempts|calls|days|decisions|lines|requests|runs|times|tokens)\b"
)


@for_each(("count", "words"), [(0, "0 calls"), (1, "1 call"), (2, "2 calls"), (1000, "1000 calls")])
def test_one_is_told_from_several(count: int, words: str) -> None:
    assert counted(count, "call") == words


def test_several_may_be_another_phrase() -> None:
    values = [counted(count, "line is none", "lines are none") for count in (1, 2)]

    assert values == ["1 line is none", "2 lines are none"]


def test_no_message_counts_by_hand() -> None:
    """A number that may be 1 before a plural is ``counted``."""
    texts = {file: file.read_text() for file in PRODUCT.rglob("*.py")}

    assert {
        file: matches for file, text in texts.items() if (matches := re.findall(BY_HAND, text))
    } == {}
