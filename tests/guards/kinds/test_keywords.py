"""Lists of words are found whole, in any case and spacing."""

from __future__ import annotations

import random
import string

import pytest

from proxy.guards.kinds.keywords import Keywords, parse_words
from proxy.types.guard import Detector, Finding
from tests.for_each import for_each
from tests.guards.growth import grown


def find_words(words: list[str], text: str) -> list[str]:
    return [text[finding.start : finding.end] for finding in Keywords("rivals", words).find(text)]


def test_list_name_is_the_kind() -> None:
    keywords: Detector = Keywords("rivals", ["Millstone"], ["weir-[0-9]{2}"])

    findings = [Finding(2, 11, "rivals"), Finding(17, 24, "rivals")]
    assert keywords.find("A millstone, and weir-42.") == findings


@for_each(
    ("word", "text", "places"),
    [
        ("mill", "Mill mill MILL", 3), ("mill", "mills windmill", 0),
        ("Straße", "STRASSE strasse straße STRAẞE", 4), ("strasse", "Die Straße", 1),
        ("ΟΔΟΣ", "οδος οδός οδοσ", 2), ("İstanbul", "İstanbul istanbul", 1),
        ("kelvin", "\u212aelvin", 1),
        ("water mill", "water  mill, water\n    mill, water\u00a0mill, watermill", 3),
        ("c++", "C++ or C++?", 2), (".*", "a.*b .*", 2), ("水車", "水車小屋", 1),
        ("naïve", "NAÏVE naive", 1),
    ],
)  # fmt: skip
def test_words_are_found_in_any_case_and_spacing(word: str, text: str, places: int) -> None:
    assert len(find_words([word], text)) == places


def test_overlapping_words_are_one_finding() -> None:
    assert find_words(["water mill", "mill race"], "a water mill race") == ["water mill", " race"]


def test_regex_decides_its_case_sensitivity() -> None:
    keywords = Keywords("rivals", regexes=["Weir", "(?i)sluice"])

    assert len(keywords.find("Weir weir SLUICE sluices")) == 2
    assert len(Keywords("rivals", ["mill"], whole_words=False).find("mills windmill")) == 2


@for_each(
    ("words", "regexes", "lookback"),
    [(["mill"], [], 5), (["mill"], ["a{9}"], 10), ([], ["a+"], None), (["a b"], [], 11)],
)
def test_lookback_is_that_of_the_longest_word(
    words: list[str], regexes: list[str], lookback: int | None
) -> None:
    assert Keywords("rivals", words, regexes).lookback == lookback


@for_each(
    ("words", "regexes", "message"),
    [
        ([], [], "must have words, patterns or words_from"),
        (["mill", " "], [], "rivals: words must not be empty"),
        (["m" * 201], [], "rivals: words must have at most 200"),
        ([], ["(a"], "rivals: "),
    ],
)
def test_invalid_lists_are_refused(words: list[str], regexes: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Keywords("rivals", words, regexes)


def test_file_has_one_word_per_line() -> None:
    lines = ["\ufeff# rivals\n", "\n", "  mill race \r\n", "weir\n", "#sluice"]

    assert parse_words(lines) == ["mill race", "weir"]


def test_thousands_of_words_cost_little_on_clean_text() -> None:
    chance = random.Random(1)
    words = ["".join(chance.choices(string.ascii_lowercase, k=9)) for _ in range(3000)]
    text = "The miller opens the sluice, and water turns the wheel. " * 180

    few_words, many_words = Keywords("rivals", words[:3]), Keywords("rivals", words)

    assert grown(lambda detector: detector.find(text), few_words, many_words, maximum=10) < 10


@for_each(
    ("words", "regexes"),
    [(["stra\u00dfe"], []), (["\u212aelvin"], []), (["mill"], ["weir"]), (list("abcde"), [])],
)
def test_prefilter_agrees_with_findings(words: list[str], regexes: list[str]) -> None:
    keywords = Keywords("rivals", words, regexes)

    assert keywords.prefilter is not None
    lines = b"a strasse to the mill of kelvin"
    assert keywords.prefilter(lines) == bool(keywords.find(lines.decode()))
