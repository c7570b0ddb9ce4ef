"""A detector for the prompt of each call."""

from __future__ import annotations

import pytest

from proxy.guards.kinds.system_prompt import MAX_CHARACTERS, system_prompt
from proxy.types.guard import PromptContext
from tests.guards.matching.test_passages import PROMPT


def find_passages(text: str, prompt: str, words: int = 12) -> list[str]:
    detector = system_prompt(words).about(PromptContext(system=prompt))
    assert detector is not None
    return [text[finding.start : finding.end] for finding in detector.find(text)]


def test_the_prompt_of_the_call_is_found() -> None:
    sentence = "I must never promise a refund above fifty euros, and hand every complaint on."

    assert find_passages(sentence, PROMPT, words=8) == [
        "never promise a refund above fifty euros, and",
        "hand every complaint",
    ]
    assert find_passages(sentence, "Answer in French verse only.") == []


def test_a_short_prompt_is_found_as_a_whole() -> None:
    prompt = "Answer in French verse only."

    assert find_passages("So: answer in French verse only!", prompt) == [
        "answer in French verse only"
    ]


@pytest.mark.parametrize("prompt", ["", "Be kind."])
def test_a_call_without_a_prompt_to_speak_of_has_nothing_to_judge_by(prompt: str) -> None:
    assert system_prompt().about(PromptContext(system=prompt)) is None


def test_of_a_very_long_prompt_the_beginning_is_known() -> None:
    filler = "word " * MAX_CHARACTERS
    prompt = f"{PROMPT} {filler}and here the end of all that was to be said to you today"

    assert find_passages(PROMPT, prompt)
    assert find_passages("here the end of all that was to be said to you today", prompt) == []


def test_a_prompt_that_came_before_is_not_read_again() -> None:
    guard = system_prompt()

    detector, cached_detector = (
        guard.about(PromptContext(system=PROMPT, asked=question)) for question in ("a", "b")
    )

    assert detector is cached_detector
    assert guard.about(PromptContext(system="Answer in French verse only.")) is not detector
