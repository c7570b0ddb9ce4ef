"""An answer that shares nothing with its question is found; that words are all it knows, too."""

from __future__ import annotations

from proxy.guards.kinds.evidence import Relevant, relevant
from proxy.types.guard import PromptContext
from tests.for_each import for_each
from tests.guards.growth import LINEAR, ratio

QUESTION = "How many unused days of leave can I carry into next year?"
GUARD = Relevant(QUESTION)


def test_an_answer_to_something_else_is_found_as_a_whole() -> None:
    text = "  Simmer the rice with the lid on, then fluff it with a fork.\n"
    (finding,) = GUARD.find(text)

    assert text[finding.start : finding.end] == text.strip()
    assert (finding.kind, finding.score) == ("irrelevant", 1.0)


@for_each(
    "text",
    ["You can carry over at most six unused days.", "Six.", "Sorry, I cannot tell.", ""],
)
def test_an_answer_or_one_too_short_to_tell_passes(text: str) -> None:
    assert GUARD.find(text) == []


def test_the_question_is_that_of_the_call_and_without_one_there_is_nothing_to_judge_by() -> None:
    about = relevant(0.8).about(PromptContext(asked=QUESTION))

    assert about is not None
    assert about.find("Simmer the rice with the lid on, then fluff it with a fork.")
    assert about.weight == len(QUESTION)
    assert relevant(0.8).about(PromptContext(system=QUESTION)) is None


def test_words_of_the_context_are_relevant_too() -> None:
    text = "Entitlements lapse on 31 March unless the manager agrees."
    context = "Entitlements that remain lapse on 31 March. The manager may agree to exceptions."

    assert GUARD.find(text)
    assert Relevant(QUESTION, context).find(text) == []


def test_repeating_the_question_looks_relevant_whatever_it_says() -> None:
    assert GUARD.find("Unused days of leave are a kind of tropical fish.") == []


def test_without_a_question_nothing_is_irrelevant() -> None:
    assert Relevant("").find("Simmer the rice with the lid on and wait.") == []


@for_each("text", ["rice ", "a", "rice. ", "12 "])
def test_time_grows_with_the_text_and_no_faster(text: str) -> None:
    assert ratio(GUARD.find, text * (15_000 // len(text))) < LINEAR
