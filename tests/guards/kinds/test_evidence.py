"""Sentences that a context does not support, and irrelevant responses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.guards.kinds import evidence
from proxy.types.guard import PromptContext
from tests.for_each import for_each

CONTEXT = (
    "The library opens at 9 am on weekdays. Members may borrow up to 12 books for 4 weeks. "
    "Fines are 20 cents per day. Director Helen Marsh joined in 2015."
)
GUARD = evidence.Groundedness(CONTEXT)
FILE = Path(__file__).parents[3] / "tools" / "quality" / "grounded.yaml"
TRIPLES: list[dict[str, Any]] = yaml.safe_load(FILE.read_text("utf-8"))


@for_each(
    ("text", "kind"),
    [
        ("Members may borrow up to 15 books.", "number"),
        ("Fines are 9 cents per day.", "number"),
        ("Director Paul Kent joined in 2015.", "name"),
        ("Members may not borrow books for 4 weeks.", "negation"),
        ("The library is closed at 9 am on weekdays.", "negation"),
        ("Parking spaces behind the building cost nothing for visitors.", "unsupported"),
    ],
)
def test_unsupported_sentence_is_found(text: str, kind: str) -> None:
    assert [finding.kind for finding in GUARD.find(text)] == [kind]


@for_each(
    "text",
    [
        "Members can borrow twelve books for four weeks.",
        "Helen Marsh has been director since she joined in 2015.",
        "Sure, happy to help!",
        "Yes.",
        "",
    ],
)
def test_supported_or_empty_sentence_passes(text: str) -> None:
    assert GUARD.find(text) == []


def test_context_comes_from_the_call() -> None:
    grounded = evidence.build_groundedness_factory(evidence.GroundedConfig())
    detector = grounded.for_prompt(PromptContext(user_message="When?", context=CONTEXT))

    assert isinstance(detector, evidence.Groundedness)
    assert [finding.kind for finding in detector.find("Fines are 9 cents per day.")] == ["number"]
    assert detector.context_chars == len(CONTEXT)
    assert grounded.for_prompt(PromptContext(user_message="When?", context=" ")) is None


@pytest.mark.parametrize(
    ("context", "text"),
    [
        ("x" * (evidence.MAX_CONTEXT_CHARS + 1), "Fines are 20 cents."),
        ("Fines are 20 cents. " * 1000, "Fines are 20 cents. " * 100),
    ],
)
def test_too_long_text_is_not_compared(context: str, text: str) -> None:
    with pytest.raises(ValueError, match="too long"):
        evidence.Groundedness(context).find(text)


def test_context_above_the_bound_is_not_split() -> None:
    detector = evidence.Groundedness("x" * (evidence.MAX_CONTEXT_CHARS + 1))
    with pytest.raises(ValueError, match="too long"):
        detector.find("Fines are 20 cents.")
    assert "_context_sentences" not in vars(detector)


def test_only_the_wrong_sentence_is_found() -> None:
    text = "The library opens at 9 am on weekdays. Fines are 35 cents per day. Happy to help!"
    (finding,) = GUARD.find(text)

    assert text[finding.start : finding.end] == "Fines are 35 cents per day."
    assert finding.kind in evidence.FINDING_KINDS
    assert 0.5 <= finding.score <= 1


def test_score_must_reach_the_threshold() -> None:
    (finding,) = evidence.Groundedness("").find("Members may borrow books for several weeks.")

    assert (finding.kind, finding.score) == ("unsupported", 1.0)
    assert not evidence.Groundedness(CONTEXT, 0.95).find("Members may borrow 15 books.")


def test_quality_is_at_least_as_documented() -> None:
    missed = alarms = 0
    for triple in TRIPLES:
        guard = evidence.Groundedness(triple["context"])
        missed += sum(not guard.find(text) for text in triple["unsupported"])
        alarms += sum(bool(guard.find(text)) for text in triple["supported"])

    assert missed <= 5  # of 32, see docs/guard-quality.md
    assert alarms <= 4


QUESTION = "How many unused days of leave can I carry into next year?"
RELEVANT = evidence.Relevance(QUESTION)


def test_irrelevant_response_is_found_as_a_whole() -> None:
    text = "  Simmer the rice with the lid on, then fluff it with a fork.\n"
    (finding,) = RELEVANT.find(text)

    assert text[finding.start : finding.end] == text.strip()
    assert (finding.kind, finding.score) == ("irrelevant", 1.0)


@for_each(
    "text",
    [
        "You can carry over at most six unused days.",
        "Unused days of leave are a kind of tropical fish.",  # repeats the question
        "Sorry, I cannot tell.",
        "",
    ],
)
def test_relevant_or_very_short_response_passes(text: str) -> None:
    assert RELEVANT.find(text) == []


def test_question_comes_from_the_call() -> None:
    about = evidence.build_relevance_factory(0.8).for_prompt(PromptContext(user_message=QUESTION))

    assert about is not None
    assert about.find("Simmer the rice with the lid on, then fluff it with a fork.")
    assert about.context_chars == len(QUESTION)
    assert evidence.build_relevance_factory(0.8).for_prompt(PromptContext(system=QUESTION)) is None


def test_words_of_the_context_are_relevant() -> None:
    text = "Entitlements lapse on 31 March unless the manager agrees."
    context = "Entitlements that remain lapse on 31 March. The manager may agree to exceptions."

    assert RELEVANT.find(text)
    assert evidence.Relevance(QUESTION, context).find(text) == []


def test_without_question_nothing_is_irrelevant() -> None:
    assert evidence.Relevance("").find("Simmer the rice with the lid on and wait.") == []
