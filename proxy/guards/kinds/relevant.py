"""The `relevant` guard: finds responses that share no words with the question or the context.

Paraphrased answers look irrelevant, and responses that repeat the question look relevant.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from proxy.config.scalars import Certain, Section
from proxy.dialects.findings import inverse_details, inverse_summary
from proxy.guards.guard_kind import ByContext, GuardKind
from proxy.guards.matching import english
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Action, Finding, PromptContext

MIN_STEMS = 4  # minimum of a response; a name, a number or "yes" has fewer
MAX_CHARACTERS = 64 * 1024  # characters of the question, and of the context, that are compared
MIN_SHARED = 2  # stems of the question that make a response relevant


class Relevant:
    """Detector for the responses to one question. Finds responses with an irrelevance of at
    least ``threshold``.

    The question and the context are parsed with the first response.
    """

    def __init__(self, question: str, context: str = "", threshold: float = 0.8) -> None:
        self._question, self._context, self._threshold = question, context, threshold

    lookback = None

    @property
    def weight(self) -> int:
        return len(self._question) + len(self._context)

    @cached_property
    def _stems(self) -> tuple[frozenset[str], frozenset[str]]:
        question = (*english.stems(self._question), *english.numbers(self._question))
        return frozenset(question), frozenset(english.stems(self._context))

    def find(self, text: str) -> Sequence[Finding]:
        score = self.judge(text)
        if score < self._threshold:
            return []
        start = len(text) - len(text.lstrip())
        return [Finding(start, len(text.rstrip()), kind="irrelevant", score=score)]

    def judge(self, text: str) -> float:
        """Return the irrelevance of a response, from 0 to 1."""
        question, context = self._stems
        stems = frozenset(english.stems(text))
        if len(stems) < MIN_STEMS or not question:
            return 0.0
        stems |= frozenset(english.numbers(text))
        shared = min(1.0, len(stems & question) / min(MIN_SHARED, len(question)))
        context_share = len(stems & context) / len(stems) if context else 0.0
        return round(1 - max(shared, context_share), 2)


def relevant(threshold: float) -> ByContext[Relevant]:
    def about(question: PromptContext) -> Relevant | None:
        if not question.asked.strip():
            return None
        return Relevant(
            question.asked[:MAX_CHARACTERS], question.context[:MAX_CHARACTERS], threshold
        )

    return ByContext(about)


class RelevantConfig(Section):
    """Responses that share no word with the question or the `context` of the call."""

    action: Action = "flag"
    """Action on findings. Default `flag`, because of false positives."""
    threshold: Certain = 0.8
    """Minimum irrelevance of a response."""


KIND = GuardKind(
    RelevantConfig,
    lambda keys, context: relevant(keys.threshold),
    fields=frozenset({"content"}),
    answers=True,
    detections=(
        DetectionFormat(
            "relevancy",
            "relevancy_score",
            inverse_details("relevancy_score"),
            summary=inverse_summary,
        ),
    ),
)
