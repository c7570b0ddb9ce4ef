"""The system prompt of a call, found in its answer: long sequences of its words.

It finds the prompt that this very call came with, told word for word; see ``passages``.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.guardrails.passages import Passages, said
from proxy.types.guard import Question

WORDS, LEAST_WORDS = 12, 5
LONGEST = 32 * 1024  # characters of a prompt that are known; some 5 ms for each call


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    """Finds sequences of ``words`` words of the prompt.

    A prompt of fewer words is found as a whole; one of fewer than ``LEAST_WORDS`` is none.
    """

    words: int = WORDS

    def about(self, question: Question) -> Passages | None:
        prompt = question.system[:LONGEST]
        count = sum(1 for _ in said(prompt))
        return Passages([prompt], min(self.words, count)) if count >= LEAST_WORDS else None
