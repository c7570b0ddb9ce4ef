"""Whether an answer speaks of what was asked, as far as shared words tell.

Weak without embeddings: an answer in other words than the question's and the context's looks
irrelevant, and one that repeats the question looks relevant whatever it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.guardrails import lexical
from proxy.types.guard import Finding, Question

KINDS = ("irrelevant",)
TELLING = 4  # stems below which an answer says too little to judge: a name, a number, a yes
LONGEST = 64 * 1024  # characters of a question, or of a context, that are read
ENOUGH = 2  # of the question's stems, in an answer, are all that can be asked of it


@dataclass(frozen=True, slots=True)
class Relevant:
    """Finds answers that are irrelevant at least as surely as ``threshold``."""

    threshold: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ValueError("threshold is above 0 and at most 1")

    def about(self, question: Question) -> RelevantTo | None:
        if not question.asked.strip():
            return None
        return self.against(question.asked[:LONGEST], question.context[:LONGEST])

    def against(self, question: str, context: str = "") -> RelevantTo:
        """Give the detector for the answers to one call."""
        asked = frozenset(lexical.stems(question)) | frozenset(lexical.numbers(question))
        return RelevantTo(self.threshold, asked, frozenset(lexical.stems(context)))


@dataclass(frozen=True, slots=True)
class RelevantTo:
    """Judges an answer as a whole by one question, and the context that came with it."""

    threshold: float
    asked: frozenset[str]
    known: frozenset[str]

    @property
    def reach(self) -> None:
        return None

    def find(self, text: str) -> Sequence[Finding]:
        score = self.judge(text)
        if score < self.threshold:
            return []
        start = len(text) - len(text.lstrip())
        return [Finding(start, len(text.rstrip()), "irrelevant", score)]

    def judge(self, text: str) -> float:
        """Give how little an answer shares with what was asked, from 0 to 1."""
        said = frozenset(lexical.stems(text))
        if len(said) < TELLING or not self.asked:
            return 0.0
        said |= frozenset(lexical.numbers(text))
        shared = min(1.0, len(said & self.asked) / min(ENOUGH, len(self.asked)))
        known = len(said & self.known) / len(said) if self.known else 0.0
        return round(1 - max(shared, known), 2)
