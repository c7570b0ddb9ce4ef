"""A detector for the prompt of each call."""

from __future__ import annotations

import pytest

from proxy.guards.kinds.system_prompt import LONGEST, system_prompt
from proxy.types.guard import PromptContext
from tests.guards.matching.test_passages import PROMPT


def found(text: str, prompt: str, words: int = 12) -> list[str]:
    detector = system_prompt(words).about(PromptContext(system=prompt))
    assert detector is not None
    return [text[each.start : each.end] for each in detector.find(text)]


def test_the_prompt_of_the_call_is_found() -> None:
    sentence = "I must never promise a refund above fifty euros, and hand every complaint on."

    assert found(sentence, PROMPT, words=8) == [
        "never promise a refund above fifty euros, and",
        "hand every complaint",
    ]
    assert found(sentence, "Answer in French verse only.") == []


def test_a_short_prompt_is_found_as_a_whole() -> None:
    prompt = "Answer in French verse only."

    assert found("So: answer in French verse only!", prompt) == ["answer in French verse only"]


@pytest.mark.parametrize("prompt", ["", "Be kind."])
def test_a_call_without_a_prompt_to_speak_of_has_nothing_to_judge_by(prompt: str) -> None:
    assert system_prompt().about(PromptContext(system=prompt)) is None


def test_of_a_very_long_prompt_the_beginning_is_known() -> None:
    prompt = f"{PROMPT} {'word ' * LONGEST}and here the end of all that was to be said to you today"

    assert found(PROMPT, prompt)
    assert found("here the end of all that was to be said to you today", prompt) == []


def test_a_prompt_that_came_before_is_not_read_again() -> None:
    guard = system_prompt()

    first, again = (guard.about(PromptContext(system=PROMPT, asked=each)) for each in ("a", "b"))

    assert first is again
    assert guard.about(PromptContext(system="Answer in French verse only.")) is not first
