"""Whether an answer speaks of what was asked, as far as shared words tell.

Weak without embeddings: an answer in other words than the question's and the context's looks
irrelevant, and one that repeats the question looks relevant whatever it says.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.config.scalars import Certain, Section
from proxy.dialects.detections import inverse, none_found
from proxy.frozen import frozen
from proxy.guardrails.guard_kind import POSITIVE_SHARE, GuardKind
from proxy.guardrails.matching import word_overlap
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Action, Finding, Question

TELLING = 4  # stems below which an answer says too little to judge: a name, a number, a yes
LONGEST = 64 * 1024  # characters of a question, or of a context, that are read
ENOUGH = 2  # of the question's stems, in an answer, are all that can be asked of it


@frozen
class Relevant:
    """Finds answers that are irrelevant at least as surely as ``threshold``."""

    threshold: float = 0.8

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ValueError(POSITIVE_SHARE)

    @property
    def reach(self) -> None:
        return None

    def about(self, question: Question) -> RelevantTo | None:
        if not question.asked.strip():
            return None
        return self.against(question.asked[:LONGEST], question.context[:LONGEST])

    def against(self, question: str, context: str = "") -> RelevantTo:
        """Return the detector for the answers to one call."""
        return RelevantTo(self.threshold, question, context)


class RelevantTo:
    """Judges an answer as a whole by one question, and the context that came with it; both are
    read when the first answer is."""

    __slots__ = ("_context", "_question", "_read", "_threshold")

    def __init__(self, threshold: float, question: str, context: str) -> None:
        self._threshold = threshold
        self._question = question
        self._context = context
        self._read: tuple[frozenset[str], frozenset[str]] | None = None

    @property
    def reach(self) -> None:
        return None

    @property
    def weight(self) -> int:
        return len(self._question) + len(self._context)

    @property
    def known(self) -> tuple[frozenset[str], frozenset[str]]:
        """What was asked, with its numbers, and what the context speaks of."""
        if self._read is None:
            asked = frozenset(word_overlap.stems(self._question))
            asked |= frozenset(word_overlap.numbers(self._question))
            self._read = asked, frozenset(word_overlap.stems(self._context))
        return self._read

    def find(self, text: str) -> Sequence[Finding]:
        score = self.judge(text)
        if score < self._threshold:
            return []
        start = len(text) - len(text.lstrip())
        return [Finding(start=start, end=len(text.rstrip()), kind="irrelevant", score=score)]

    def judge(self, text: str) -> float:
        """Return how little an answer shares with what was asked, from 0 to 1."""
        asked, context = self.known
        stems = frozenset(word_overlap.stems(text))
        if len(stems) < TELLING or not asked:
            return 0.0
        stems |= frozenset(word_overlap.numbers(text))
        shared = min(1.0, len(stems & asked) / min(ENOUGH, len(asked)))
        known = len(stems & context) / len(stems) if context else 0.0
        return round(1 - max(shared, known), 2)


class RelevantConfig(Section):
    """Responses that share no word with the question or the `context` of the call."""

    action: Action = "flag"
    """Action on findings. Default `flag`, because of false positives."""
    threshold: Certain = 0.8
    """Minimum irrelevance of a response."""


KIND = GuardKind(
    RelevantConfig,
    lambda keys, context: Relevant(keys.threshold),
    fields=frozenset({"content"}),
    answers=True,
    detections=(
        DetectionFormat(
            "relevancy", "relevancy_score", inverse("relevancy_score"), summary=none_found
        ),
    ),
)
