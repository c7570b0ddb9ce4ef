"""The packaged word list: its format, kinds, severities, and matches of whole words."""

from __future__ import annotations

import pytest

from proxy.guards.kinds import wordlist
from proxy.guards.kinds.wordlist import TOXIC_KINDS, WORDS_FILE, Nsfw, Toxicity, WordList
from tests.for_each import for_each


def test_file_starts_with_a_content_warning() -> None:
    assert WORDS_FILE.read_text("utf-8").startswith("# WARNING")
    assert "MIT License" in WORDS_FILE.with_suffix(".LICENSE").read_text()


def test_line_has_kind_severity_and_words() -> None:
    kinds = {"insult", "profanity", "sexual", "slur", "threat", "minors"}
    rules = list(wordlist.select_rules(kinds, 0))

    assert {rule.kind for rule in rules} == kinds
    assert all(0 < rule.score <= 1 and rule.pattern for rule in rules)


def test_rules_are_selected_by_kind_and_severity() -> None:
    rules = list(wordlist.select_rules({"insult"}, 0.6))

    assert rules
    assert all(rule.kind == "insult" and rule.score >= 0.6 for rule in rules)
    assert len(list(wordlist.select_rules({"insult"}, 0))) > len(rules)


GUARD = Toxicity()


def kinds(text: str, guard: WordList = GUARD) -> list[str]:
    return [finding.kind for finding in guard.find(text)]


@for_each(
    ("text", "kind"),
    [
        ("what a load of bullshit", "profanity"), ("FUCK this", "profanity"),
        ("I will kill you", "threat"), ("just kill  yourself", "threat"),
        ("You are a worthless employee", "insult"), ("you absolute moron", "insult"),
    ],
)  # fmt: skip
def test_offensive_text_is_found(text: str, kind: str) -> None:
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
def test_similar_text_passes(text: str) -> None:
    assert kinds(text) == []


def test_severity_decides_findings() -> None:
    assert kinds("that was stupid") == []
    assert kinds("that was stupid", Toxicity(threshold=0.3)) == ["insult"]
    assert kinds("what a load of bullshit", Toxicity(threshold=0.9)) == []


def test_kinds_are_configurable() -> None:
    assert kinds("I will kill you, bullshit", WordList(("threat",))) == ["threat"]


def test_quotation_is_found_too() -> None:
    assert kinds("The court heard that he had shouted 'I will kill you' twice.") == ["threat"]


def test_findings_are_ordered_and_within_the_text() -> None:
    text = "bullshit, I will kill you, you absolute moron " * 3
    findings = GUARD.find(text)

    assert len(findings) == 9
    assert {finding.kind for finding in findings} <= set(TOXIC_KINDS)
    assert all(0.4 <= f.score <= 1 and f.end - f.start <= GUARD.lookback for f in findings)


NSFW = Nsfw()


def test_coarse_words_are_found() -> None:
    assert kinds("send me a blowjob story", NSFW) == ["sexual"]


def test_clinical_words_are_found_only_if_configured() -> None:
    text = "The clinic offers advice on sexual health."

    assert kinds(text, NSFW) == []
    assert kinds(text, Nsfw(threshold=0.3)) == ["sexual"]


@pytest.mark.parametrize("text", ["a naked picture of a child", "a 14-year-old girl, nude"])
def test_child_near_a_sexual_word_is_found(text: str) -> None:
    assert kinds(text, NSFW) == ["minors"]


@for_each(
    "text",
    ["", "Essex and Sussex", "chicken breast with mushrooms", "a child of ten plays chess", "Dick"],
)
def test_plain_texts_pass(text: str) -> None:
    assert kinds(text, NSFW) == []
