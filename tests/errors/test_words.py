"""Bounded texts and lists in messages."""

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
    ("text", "expected"),
    [
        ("smol", "smol"),
        ("x" * 5_000_000, "x" * MAX_WORD),
        ("a\nb\x00c", "a?b?c"),
        ("Z\u00fcr", "Z\u00fcr"),
        ("\udcff", "?"),
        ("", ""),
    ],
)
def test_word_is_bounded_to_one_line(text: str, expected: str) -> None:
    assert word(text) == expected


def test_header_word_is_ascii() -> None:
    assert ascii_word("Z\u00fcr\r\n") == "Z?r??"


def test_word_of_other_values_is_none() -> None:
    values: list[object] = [None, 7, "", [], {"a": 1}, True]

    assert {word_of(value) for value in values} == {None}
    assert word_of("x" * 500, 200) == "x" * 200


def test_lists_are_truncated_with_a_count() -> None:
    names = [f"m{number}" for number in range(100)]

    assert first_items(names, 3) == ["m0", "m1", "m2"]
    assert listed(names[:2]) == "m0, m1"
    assert listed(names).endswith(f"m{MAX_LISTED - 1} and {100 - MAX_LISTED} more")
    assert len(listed(["x" * 1000] * 1000)) < 1000
    assert listed(["", "a"]) == "'', a"


PRODUCT = Path(__file__).parents[2] / "proxy"
UNCOUNTED = (
    r"[^/]\{[a-z][^{}\"]*\} (?:attempts|calls|days|decisions|lines|requests|runs|times|tokens)\b"
)


@for_each(("count", "words"), [(0, "0 calls"), (1, "1 call"), (2, "2 calls"), (1000, "1000 calls")])
def test_counts_have_singular_and_plural(count: int, words: str) -> None:
    assert counted(count, "call") == words
    assert counted(2, "line is none", "lines are none") == "2 lines are none"


def test_messages_use_counted() -> None:
    """A number that may be 1 is followed by ``counted`` instead of a plural."""
    texts = {file: file.read_text() for file in PRODUCT.rglob("*.py")}

    assert {
        file: matches for file, text in texts.items() if (matches := re.findall(UNCOUNTED, text))
    } == {}
