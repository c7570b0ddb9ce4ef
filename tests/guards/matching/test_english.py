"""Comparison of English texts: stems, numbers, names and contradictions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.guards.matching import english
from proxy.guards.matching.english import OPPOSITES, find_contradiction, parse_clauses, stem_word
from tests.for_each import for_each
from tests.guards.growth import LINEAR, ratio


@pytest.mark.parametrize(
    "family",
    [["plan", "plans", "planned", "planning"], ["library", "libraries"], ["open", "opens"]],
)
def test_inflections_have_one_stem(family: list[str]) -> None:
    assert len({english.stem_word(word) for word in family}) == 1


def test_stop_words_are_omitted() -> None:
    assert english.find_content_stems("What would the libraries have to do?") == ["librar"]


@for_each(
    ("text", "numbers"),
    [
        ("1,250.00 and 1.250", {"1250"}), ("3.14 and 3,14", {"3.14"}),
        ("four of 007", {"4", "7"}), ("0.50", {"0.5"}), ("one day", set()),
    ],
)  # fmt: skip
def test_numbers_are_normalized(text: str, numbers: set[str]) -> None:
    assert english.find_normalized_numbers(text) == numbers


def test_capitalized_words_within_a_sentence_are_names() -> None:
    text = "Yesterday Marijke met the mayor of Ghent. Nobody else came. He left."

    assert english.find_name_stems(text) == {*map(stem_word, ("marijke", "ghent"))}


def test_sentence_has_its_position() -> None:
    text = " It opens at 9. It isn't free!\nNew line"
    sentences = [*english.split_sentences(text)]

    assert [text[sentence.start : sentence.end] for sentence in sentences] == [
        "It opens at 9.", "It isn't free!", "New line",
    ]  # fmt: skip
    assert sentences[0].text == "It opens at 9."


@given(st.text())
def test_sentences_are_ordered_bounded_and_within_the_text(text: str) -> None:
    previous_end = 0
    for sentence in english.split_sentences(text):
        assert previous_end <= sentence.start < sentence.end <= len(text)
        assert sentence.end - sentence.start <= english.MAX_SENTENCE_CHARS
        previous_end = sentence.end


@for_each("text", ["a", "a ", ". ", "A.", "1,", "\n", "it's "])
def test_time_is_linear_in_text_length(text: str) -> None:
    assert ratio(lambda t: list(english.split_sentences(t)), text * (4_000 // len(text))) < LINEAR


@for_each(
    ("answer", "known_text", "kind"),
    [
        ("Dogs are not admitted.", "Dogs are admitted.", "negation"),
        ("Overtime is paid.", "Overtime isn't paid.", "negation"),
        ("The fee can be refunded.", "The fee cannot be refunded.", "negation"),
        ("Motor boats are allowed here.", "Motor boats are forbidden here.", "negation"),
        ("The island has an airport.", "The island has no airport.", "negation"),
        ("The door is open at night.", "The door is closed at night.", "negation"),
        ("The staircase is unsafe.", "The staircase is safe.", "negation"),
        ("Photography is not allowed.", "Photography is allowed without flash.", "negation"),
        ("Simmer it for 10 minutes.", "Simmer it for 12 minutes, rest it for 10.", "number"),
        ("Requests end on 30 March.", "Requests end on 30 April.", "name"),
    ],
)
def test_contradiction_has_a_kind(answer: str, known_text: str, kind: str) -> None:
    assert find_contradiction(parse_clauses(answer), parse_clauses(known_text)) == kind
    assert find_contradiction(parse_clauses(known_text), parse_clauses(answer)) == kind


@for_each(
    ("answer", "known_text"),
    [
        ("Dogs are admitted.", "Dogs are admitted on a lead."),
        ("The shop does not open on Mondays.", "The shop is closed on Mondays."),
        ("You are not permitted to take photographs.", "Photographs are not permitted."),
        ("No motor boats are permitted here.", "Motor boats are banned here."),
        ("It takes no lorries, and 60 cars.", "It carries 60 cars, but no lorries."),
        ("Not only pupils may join the choir.", "Pupils may join the choir."),
        ("It needs no more than 4 eggs.", "It needs 4 eggs."),
        ("Cats like milk.", "The bridge is not open."),
        ("", "Dogs are not admitted."),
    ],
)
def test_agreeing_or_unrelated_texts_do_not_contradict(answer: str, known_text: str) -> None:
    assert find_contradiction(parse_clauses(answer), parse_clauses(known_text)) is None


@for_each(("subject", "kind"), [("sauna", None), ("pool", "negation")])
def test_clauses_are_compared_with_their_own_subject(subject: str, kind: str | None) -> None:
    context = parse_clauses("The pool is not heated, but the sauna is heated.")

    assert find_contradiction(parse_clauses(f"The {subject} is heated every day."), context) == kind


def test_antonyms_are_symmetric() -> None:
    assert stem_word("closed") in OPPOSITES["open"]
    for side, opposites in OPPOSITES.items():
        assert side not in opposites
        assert all(side in OPPOSITES[opposite] for opposite in opposites)
