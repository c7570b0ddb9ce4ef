"""The word list is read as it says, and matches whole words only."""

from __future__ import annotations

import pytest
import re2

from proxy.guards.matching import wordlist
from proxy.guards.matching.phrase_rules import PhraseRules
from proxy.guards.matching.wordlist import WORDS_FILE


def test_the_file_warns_its_reader_first() -> None:
    assert WORDS_FILE.read_text("utf-8").startswith("# WARNING")
    assert "MIT License" in WORDS_FILE.with_suffix(".LICENSE").read_text()


def test_a_line_is_a_kind_a_severity_and_words() -> None:
    kinds = {"insult", "profanity", "sexual", "slur", "threat", "minors"}
    rules = list(wordlist.rules(kinds, 0))

    assert {rule.kind for rule in rules} == kinds
    assert all(0 < rule.score <= 1 and rule.pattern for rule in rules)


def test_rules_are_of_the_kinds_asked_and_as_bad_as_asked() -> None:
    rules = list(wordlist.rules({"insult"}, 0.6))

    assert rules
    assert all(rule.kind == "insult" and rule.score >= 0.6 for rule in rules)
    assert len(list(wordlist.rules({"insult"}, 0))) > len(rules)


@pytest.mark.parametrize(("word", "text"), [("ass", "class"), ("ass", "assume"), ("a$$", "cat")])
def test_a_word_within_another_is_none(word: str, text: str) -> None:
    assert not re2.search(wordlist.whole_word_pattern(word), text)


@pytest.mark.parametrize(("word", "text"), [("ass", "an ass."), ("@ss", "you@ss!")])
def test_a_word_among_others_is_one(word: str, text: str) -> None:
    assert re2.search(wordlist.whole_word_pattern(word), text)


def test_the_longer_of_two_words_is_found_whole() -> None:
    (finding,) = PhraseRules(list(wordlist.rules({"profanity"}, 0.4)), 80).find("bullshit")

    assert (finding.start, finding.end) == (0, 8)
