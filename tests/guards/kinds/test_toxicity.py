"""Words and threats are found with how bad they are; nobody weighs the context."""

from __future__ import annotations

import pytest

from proxy.guards.kinds.toxicity import KINDS, Toxicity, ToxicityConfig
from proxy.guards.matching.wordlist import WordList
from tests.for_each import for_each
from tests.guards.growth import LINEAR, ratio

GUARD = Toxicity()


def kinds(text: str, guard: WordList = GUARD) -> list[str]:
    return [finding.kind for finding in guard.find(text)]


@for_each(
    ("text", "kind"),
    [
        ("what a load of bullshit", "profanity"),
        ("FUCK this", "profanity"),
        ("I will kill you", "threat"),
        ("just kill  yourself", "threat"),
        ("You are a worthless employee", "insult"),
        ("you absolute moron", "insult"),
    ],
)
def test_what_is_meant_badly_is_found(text: str, kind: str) -> None:
    assert kinds(text) == [kind]


@for_each(
    "text",
    [
        "How do I kill a process on Linux?",
        "Assume the class passes the assessment in Scunthorpe.",
        "The hospital treated him for a broken leg.",
        "We will shoot the film in Lisbon.",
        "The cocktail was worthless without ice.",
        "",
    ],
)
def test_what_only_looks_like_it_passes(text: str) -> None:
    assert kinds(text) == []


def test_how_bad_a_word_is_decides() -> None:
    assert kinds("that was stupid") == []
    assert kinds("that was stupid", Toxicity(threshold=0.3)) == ["insult"]
    assert kinds("what a load of bullshit", Toxicity(threshold=0.9)) == []


def test_kinds_can_be_chosen() -> None:
    assert kinds("I will kill you, bullshit", WordList(("threat",))) == ["threat"]


def test_a_quotation_is_found_too_as_nobody_weighs_the_context() -> None:
    assert kinds("The court heard that he had shouted 'I will kill you' twice.") == ["threat"]


def test_wrong_keys_are_told() -> None:
    with pytest.raises(ValueError, match="threshold"):
        ToxicityConfig(threshold=2)


def test_findings_keep_the_promises_of_a_detector() -> None:
    text = "bullshit, I will kill you, you absolute moron " * 3
    findings = GUARD.find(text)

    assert len(findings) == 9
    assert {finding.kind for finding in findings} <= set(KINDS)
    assert all(0.4 <= f.score <= 1 and f.end - f.start <= GUARD.lookback for f in findings)


@for_each("text", ["fuck", "fuck ", "you are a ", "i will ", "f u c k ", "@$"])
def test_time_grows_with_the_text_and_no_faster(text: str) -> None:
    assert ratio(GUARD.find, text * (15_000 // len(text))) < LINEAR
