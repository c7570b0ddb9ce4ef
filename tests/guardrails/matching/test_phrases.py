"""A phrase is RE2 with short words for what rules say often."""

from __future__ import annotations

import re2

from proxy.guardrails.matching.phrases import phrase, unfolded
from tests.for_each import for_each


def test_a_space_is_whatever_stands_between_words() -> None:
    pattern = re2.compile(phrase("größe haben"))

    assert pattern.search("größe -- haben")
    assert not pattern.search("größehaben")


def test_words_may_stand_between_up_to_a_number() -> None:
    pattern = re2.compile(phrase("send <2>money"))

    assert pattern.search("send all the money")
    assert not pattern.search("send all of the money")
    assert re2.search(phrase("a <10>b"), "a" + " c" * 10 + " b")


def test_a_list_stands_for_its_words() -> None:
    assert re2.search(phrase("my <law>", {"law": "(?:rule|policy)"}), "my policy")


@for_each("written", [r"\pL", r"\PL", r"[\pL\pN]", " "])
def test_a_pattern_that_compiles_faster_matches_the_same_in_letters_of_either_case(
    written: str,
) -> None:
    pattern = f"(?i){phrase(written)}"
    known, fast = re2.compile(pattern), re2.compile(unfolded(pattern))

    every = "".join(chr(code) for code in range(0x11000) if not 0xD800 <= code < 0xE000)

    assert "(?-i:" in unfolded(pattern)
    assert known.findall(every) == fast.findall(every) != []
