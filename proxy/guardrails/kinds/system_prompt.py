"""Long sequences of words of the call's own system prompt in its response."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

from pydantic import Field

from proxy.config.scalars import Section
from proxy.dialects.detections import similarity
from proxy.guardrails.guard_kind import GuardKind
from proxy.guardrails.matching.passages import GAP, WORD, Passages, compared_words
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Question

WORDS, LEAST_WORDS = 12, 5
LONGEST = 32 * 1024  # characters of a prompt that are compared; reading them takes 7 ms
PROMPTS = 16  # in the cache: most calls of a deployment have the same prompt


class SystemPrompt:
    """Finds sequences of ``words`` words of the prompt.

    A prompt of fewer words is found as a whole; one of fewer than 5 words is ignored.
    """

    __slots__ = ("_made", "_words")

    def __init__(self, words: int = WORDS) -> None:
        self._words = words
        self._made = lru_cache(maxsize=PROMPTS)(self._passages)

    @property
    def reach(self) -> int:
        return self._words * (WORD + GAP)

    def about(self, question: Question) -> Passages | None:
        return self._made(question.system[:LONGEST])

    def _passages(self, prompt: str) -> Passages | None:
        count = sum(1 for _ in compared_words(prompt))
        return Passages([prompt], min(self._words, count)) if count >= LEAST_WORDS else None


class SystemPromptConfig(Section):
    """The system prompt of the call, repeated word by word in the response."""

    words: Annotated[int, Field(ge=5, le=100)] = WORDS
    """Number of consecutive words that count as a leak. A shorter prompt counts if it is repeated
    completely."""


KIND = GuardKind(
    SystemPromptConfig,
    lambda keys, context: SystemPrompt(keys.words),
    answers=True,
    detections=(DetectionFormat("system_prompt", "system_prompt_similarity", similarity),),
)
