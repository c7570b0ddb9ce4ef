"""Topics are recognized by words of their examples."""

from __future__ import annotations

import pytest

from proxy.guards.kinds.topic import Topic
from tests.for_each import for_each

BICYCLES = [
    "How do I adjust the brakes of my bicycle?",
    "Which tyres fit a 28 inch wheel?",
    "The chain of my bike keeps slipping off the gears.",
    "When will my order of a bicycle be delivered?",
]
MEDICINE = [
    "Which medicine helps against a headache?",
    "What dose of ibuprofen may a child take?",
    "Do I need a doctor for a fever?",
]
GUARD = Topic(allowed={"bicycles": BICYCLES}, banned={"medicine": MEDICINE})


def kinds(text: str, guard: Topic = GUARD) -> list[str]:
    return [finding.kind for finding in guard.find(text)]


@for_each(
    ("text", "expected"),
    [
        ("The brakes of the bicycle make a noise.", []),
        ("What dose of this medicine is right for a fever?", ["banned:medicine"]),
        ("Write a sonnet on the moon over Vienna.", ["off_topic"]),
        ("My ride will not slow down on hills.", ["off_topic"]),  # synonyms are not recognized
        ("", []),  # too short
        ("Yes, please do.", []),
    ],
)
def test_topic_of_a_text_is_found(text: str, expected: list[str]) -> None:
    assert kinds(text) == expected


def test_without_allowed_topics_only_banned_ones_are_found() -> None:
    guard = Topic(banned={"medicine": MEDICINE})

    assert kinds("Write a sonnet on the moon over Vienna.", guard) == []
    assert kinds("Which medicine against fever?", guard) == ["banned:medicine"]


def test_finding_is_the_whole_text_with_a_score() -> None:
    text = " Which medicine against fever? "
    (finding,) = GUARD.find(text)

    assert text[finding.start : finding.end] == text.strip()
    assert finding.score == GUARD.measure_topic_similarities(text)["medicine"] >= GUARD.threshold


@for_each(
    ("keys", "message"),
    [
        ({}, "examples"),
        ({"allowed": {"bicycles": []}}, "examples"),
        ({"allowed": {"a": ["b"]}, "banned": {"a": ["b"]}}, "both allowed and banned"),
    ],
)
def test_invalid_keys_are_refused(keys: dict[str, dict[str, list[str]]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Topic(**keys)  # type: ignore[arg-type]  # wrong on purpose
