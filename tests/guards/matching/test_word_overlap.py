"""Stems, numbers, names and sides of two texts can be compared, however they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.guards.matching import word_overlap
from tests.for_each import for_each
from tests.guards.growth import LINEAR, ratio


@pytest.mark.parametrize(
    "family",
    [["plan", "plans", "planned", "planning"], ["library", "libraries"], ["open", "opens"]],
)
def test_words_of_a_family_have_one_stem(family: list[str]) -> None:
    assert len({word_overlap.stem(word) for word in family}) == 1


def test_words_that_tell_nothing_are_left_out() -> None:
    assert word_overlap.stems("What would the libraries have to do?") == ["librar"]


@for_each(
    ("text", "numbers"),
    [
        ("1,250.00 and 1.250", {"1250"}),
        ("3.14 and 3,14", {"3.14"}),
        ("four of 007", {"4", "7"}),
        ("0.50", {"0.5"}),
        ("one day", set()),
    ],
)
def test_a_number_is_one_however_it_is_written(text: str, numbers: set[str]) -> None:
    assert word_overlap.numbers(text) == numbers


def test_names_are_capitals_within_a_sentence() -> None:
    text = "Yesterday Marijke met the mayor of Ghent. Nobody else came. He left."

    assert word_overlap.names(text) == {word_overlap.stem("marijke"), word_overlap.stem("ghent")}


def test_a_sentence_knows_where_it_is() -> None:
    text = " It opens at 9. It isn't free!\nNew line"
    start_sentence, second, third = word_overlap.sentences(text)

    assert [text[s.start : s.end] for s in (start_sentence, second, third)] == [
        "It opens at 9.",
        "It isn't free!",
        "New line",
    ]
    assert start_sentence.text == "It opens at 9."


@given(st.text())
def test_sentences_are_in_order_short_and_within_the_text(text: str) -> None:
    previous_end = 0
    for sentence in word_overlap.sentences(text):
        assert previous_end <= sentence.start < sentence.end <= len(text)
        assert sentence.end - sentence.start <= word_overlap.MAX_SENTENCE
        previous_end = sentence.end


@for_each("text", ["a", "a ", ". ", "A.", "1,", "\n", "it's "])
def test_time_grows_with_the_text_and_no_faster(text: str) -> None:
    assert ratio(lambda t: list(word_overlap.sentences(t)), text * (4_000 // len(text))) < LINEAR
