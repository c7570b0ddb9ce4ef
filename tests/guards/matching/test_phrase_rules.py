"""Rules are matched together, by name, in time linear in the text, whatever the text is."""

from __future__ import annotations

import re2

from proxy.guards.matching.phrase_rules import (
    SET_SIZE,
    PhraseRule,
    PhraseRules,
    build_phrase_pattern,
    expand_letter_case,
)
from proxy.types.guard import Finding
from tests.for_each import for_each

BOOK = PhraseRules(
    [PhraseRule("fruit", 0.5, r"app?le"), PhraseRule("word", 0.7, r"[a-z]+ pie")], longest=10
)


def test_each_rule_says_where_it_matched() -> None:
    assert BOOK.find("an Apple, an ape") == [Finding(3, 8, "fruit", 0.5)]


def test_no_match_is_no_finding() -> None:
    assert BOOK.find("pears") == BOOK.find("") == []


def test_a_match_that_is_too_long_is_none() -> None:
    assert BOOK.find("rhubarbs pie") == []
    assert [finding.kind for finding in BOOK.find("plum pie")] == ["word"]


def test_more_rules_than_fit_one_pass_are_all_looked_for() -> None:
    book = PhraseRules(
        [PhraseRule(f"r{n}", 1, f"w{n}x") for n in range(2 * SET_SIZE + 1)], longest=10
    )

    assert [finding.kind for finding in book.find("w0x w20x w40x")] == ["r0", "r20", "r40"]
    assert PhraseRules([], longest=10).find("w0x") == []


def test_half_a_character_is_no_obstacle() -> None:
    assert [finding.start for finding in BOOK.find("\ud83d apple")] == [2]


def test_a_space_is_whatever_stands_between_words() -> None:
    pattern = re2.compile(build_phrase_pattern("größe haben"))

    assert pattern.search("größe -- haben")
    assert not pattern.search("größehaben")


def test_words_may_stand_between_up_to_a_number() -> None:
    pattern = re2.compile(build_phrase_pattern("send <2>money"))

    assert pattern.search("send all the money")
    assert not pattern.search("send all of the money")
    assert re2.search(build_phrase_pattern("a <10>b"), "a" + " c" * 10 + " b")


def test_a_list_stands_for_its_words() -> None:
    assert re2.search(build_phrase_pattern("my <law>", {"law": "(?:rule|policy)"}), "my policy")


@for_each("written", [r"\pL", r"\PL", r"[\pL\pN]", " "])
def test_a_pattern_that_compiles_faster_matches_the_same_in_letters_of_either_case(
    written: str,
) -> None:
    pattern = f"(?i){build_phrase_pattern(written)}"
    regexp, fast = re2.compile(pattern), re2.compile(expand_letter_case(pattern))

    every = "".join(chr(code) for code in range(0x11000) if not 0xD800 <= code < 0xE000)

    assert "(?-i:" in expand_letter_case(pattern)
    assert regexp.findall(every) == fast.findall(every) != []
