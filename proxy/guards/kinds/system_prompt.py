"""The `system_prompt` guard: finds passages of a call's system prompt in its response."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

from pydantic import Field

from proxy.config.scalars import Section
from proxy.dialects.findings import similarity_details
from proxy.guards.guard_kind import ByContext, GuardKind
from proxy.guards.matching.passages import GAP, WORD, Passages, compared_words
from proxy.types.detections import DetectionFormat

WORDS, MIN_WORDS = 12, 5
MAX_CHARACTERS = 32 * 1024  # characters of a prompt that are compared, about 7 ms
MAX_CACHED = 16  # cached prompts: most calls of a deployment have the same prompt


def system_prompt(words: int = WORDS) -> ByContext[Passages]:
    """Return a detector of passages with ``words`` consecutive words of the prompt.

    A shorter prompt is found if it is repeated completely. Prompts of fewer than 5 words are
    ignored.
    """

    @lru_cache(maxsize=MAX_CACHED)
    def passages(prompt: str) -> Passages | None:
        count = sum(1 for _ in compared_words(prompt))
        return Passages([prompt], min(words, count)) if count >= MIN_WORDS else None

    lookback = words * (WORD + GAP)
    return ByContext(lambda question: passages(question.system[:MAX_CHARACTERS]), lookback)


class SystemPromptConfig(Section):
    """The system prompt of the call, repeated word by word in the response."""

    words: Annotated[int, Field(ge=5, le=100)] = WORDS
    """Number of consecutive words that count as a leak. A shorter prompt counts if it is repeated
    completely."""


KIND = GuardKind(
    SystemPromptConfig,
    lambda keys, context: system_prompt(keys.words),
    answers=True,
    detections=(DetectionFormat("system_prompt", "system_prompt_similarity", similarity_details),),
)
