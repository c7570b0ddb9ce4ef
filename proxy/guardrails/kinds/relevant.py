"""Responses that do not answer the question, as far as shared words show it.

A response in other words than the question's and the context's looks irrelevant, and one that
repeats the question looks relevant.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from proxy.config.scalars import Certain, Section
from proxy.dialects.detections import inverse, none_found
from proxy.frozen import frozen
from proxy.guardrails.guard_kind import GuardKind
from proxy.guardrails.matching import word_overlap
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Action, Finding, Question

MIN_STEMS = 4  # of a response that is judged; a name, a number or a yes has fewer
LONGEST = 64 * 1024  # characters of a question, or of a context, that are read
ENOUGH = 2  # stems of the question that make a response relevant


@frozen
class Relevant:
    """Finds responses whose irrelevance is at least ``threshold``."""

    threshold: float = 0.8

    reach = None

    def about(self, question: Question) -> RelevantTo | None:
        if not question.asked.strip():
            return None
        return self.against(question.asked[:LONGEST], question.context[:LONGEST])

    def against(self, question: str, context: str = "") -> RelevantTo:
        """Return the detector for the responses to one call."""
        return RelevantTo(self.threshold, question, context)


class RelevantTo:
    """Judges a whole response by one question and its context, which are read with the first
    response."""

    def __init__(self, threshold: float, question: str, context: str) -> None:
        self._threshold, self._question, self._context = threshold, question, context

    reach = None

    @property
    def weight(self) -> int:
        return len(self._question) + len(self._context)

    @cached_property
    def _stems(self) -> tuple[frozenset[str], frozenset[str]]:
        """The stems and numbers of the question, and the stems of the context."""
        question = (*word_overlap.stems(self._question), *word_overlap.numbers(self._question))
        return frozenset(question), frozenset(word_overlap.stems(self._context))

    def find(self, text: str) -> Sequence[Finding]:
        score = self.judge(text)
        if score < self._threshold:
            return []
        start = len(text) - len(text.lstrip())
        return [Finding(start, len(text.rstrip()), kind="irrelevant", score=score)]

    def judge(self, text: str) -> float:
        """Return the irrelevance of a response, from 0 to 1."""
        question, context = self._stems
        stems = frozenset(word_overlap.stems(text))
        if len(stems) < MIN_STEMS or not question:
            return 0.0
        stems |= frozenset(word_overlap.numbers(text))
        shared = min(1.0, len(stems & question) / min(ENOUGH, len(question)))
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
