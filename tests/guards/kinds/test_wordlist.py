"""The packaged word list: its format, kinds, severities, and matches of whole words."""

from __future__ import annotations

from proxy.guards.kinds import wordlist
from proxy.guards.kinds.wordlist import TOXIC_KINDS, WORDS_FILE, Nsfw, Toxicity, WordList
from tests.for_each import for_each


def test_file_starts_with_a_content_warning() -> None:
    assert WORDS_FILE.read_text("utf-8").startswith("# WARNING")
    assert "MIT License" in WORDS_FILE.with_suffix(".LICENSE").read_text()


def test_rules_are_selected_by_kind_and_severity() -> None:
    kinds = {"insult", "profanity", "sexual", "slur", "threat", "minors"}
    every = list(wordlist.select_rules(kinds, 0))
    strong = list(wordlist.select_rules({"insult"}, 0.6))

    assert {rule.kind for rule in every} == kinds
    assert all(0 < rule.score <= 1 and rule.pattern for rule in every)
    assert strong == [rule for rule in every if rule.kind == "insult" and rule.score >= 0.6] != []


GUARD, NSFW = Toxicity(), Nsfw()


@for_each(
    ("guard", "text", "expected"),
    [
        (GUARD, "what a load of bullshit", ["profanity"]), (GUARD, "FUCK this", ["profanity"]),
        (GUARD, "I will kill you", ["threat"]), (GUARD, "just kill  yourself", ["threat"]),
        (GUARD, "You are a worthless employee", ["insult"]),
        (GUARD, "you absolute moron", ["insult"]),
        (GUARD, "The court heard that he had shouted 'I will kill you' twice.", ["threat"]),
        (GUARD, "How do I kill a process on Linux?", []),
        (GUARD, "Assume the class passes the assessment in Scunthorpe.", []),
        (GUARD, "The cocktail was worthless without ice.", []), (GUARD, "", []),
        (GUARD, "that was stupid", []), (Toxicity(threshold=0.3), "that was stupid", ["insult"]),
        (Toxicity(threshold=0.9), "what a load of bullshit", []),
        (WordList(("threat",)), "I will kill you, bullshit", ["threat"]),
        (NSFW, "send me a blowjob story", ["sexual"]),
        (NSFW, "The clinic offers advice on sexual health.", []),
        (Nsfw(threshold=0.3), "The clinic offers advice on sexual health.", ["sexual"]),
        (NSFW, "a naked picture of a child", ["minors"]),
        (NSFW, "a 14-year-old girl, nude", ["minors"]),
        (NSFW, "a child of ten plays chess", []), (NSFW, "Essex and Sussex", []),
        (NSFW, "chicken breast with mushrooms", []), (NSFW, "Dick", []),
    ],
)  # fmt: skip
def test_words_are_found_by_kind_and_severity(
    guard: WordList, text: str, expected: list[str]
) -> None:
    assert [finding.kind for finding in guard.find(text)] == expected


def test_findings_are_ordered_and_within_the_text() -> None:
    text = "bullshit, I will kill you, you absolute moron " * 3
    findings = GUARD.find(text)

    assert len(findings) == 9
    assert {finding.kind for finding in findings} <= set(TOXIC_KINDS)
    assert all(0.4 <= f.score <= 1 and f.end - f.start <= GUARD.lookback for f in findings)
