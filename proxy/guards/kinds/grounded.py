"""The `grounded` guard: finds sentences of a response that the context does not support.

It compares words, numbers and names. It finds unmentioned facts, and contradictions by another
number or name, a negation or an opposite. It misses swapped subjects and objects, and flags true
paraphrases.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Annotated

from pydantic import StringConstraints

from proxy.config.scalars import Certain, Section
from proxy.dialects.findings import inverse_details, inverse_summary
from proxy.guards.guard_kind import ByContext, GuardContext, GuardKind
from proxy.guards.kinds.nli import EntailmentModel
from proxy.guards.matching import polarity, word_overlap
from proxy.guards.matching.word_overlap import Sentence
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Action, Finding, PromptContext

KINDS = ("number", "name", "negation", "unsupported")
MIN_STEMS = 4  # minimum for a sentence without numbers and names
MAX_PAIRS = 20_000  # pairs of sentences per response, about 20 ms
MAX_CONTEXT = 64 * 1024  # characters of a context, about 100 ms
MIN_SIMILARITY = 0.5  # minimum share of common stems of comparable sentences


class Grounded:
    """Detector for the responses to one context. Finds sentences with a doubt of at least
    ``threshold``.

    The context is parsed with the first response. The time is proportional to the product of both
    lengths. Raises ``ValueError`` above the bounds, because part of a context would not support all
    true sentences.
    """

    lookback = None

    def __init__(self, context: str, threshold: float = 0.5) -> None:
        self._context, self._threshold = context, threshold
        self._clauses = cache(polarity.parse_clauses)

    @property
    def weight(self) -> int:
        return len(self._context)

    @cached_property
    def _sentences(self) -> tuple[Sentence, ...]:
        return tuple(word_overlap.sentences(self._context))

    @cached_property
    def _stems(self) -> frozenset[str]:
        return frozenset[str]().union(*(sentence.stems for sentence in self._sentences))

    @cached_property
    def _numbers(self) -> frozenset[str]:
        return frozenset(word_overlap.numbers(self._context))

    def find(self, text: str) -> Sequence[Finding]:
        sentences = [
            sentence
            for sentence in word_overlap.sentences(text)
            if _has_facts(sentence) or len(sentence.stems) >= polarity.MIN_SHARED
        ]
        if len(self._context) > MAX_CONTEXT or len(sentences) * len(self._sentences) > MAX_PAIRS:
            raise ValueError("too long to compare")
        judged = [(sentence, *self.judge(sentence)) for sentence in sentences]
        return [
            Finding(sentence.start, sentence.end, kind=kind, score=score)
            for sentence, kind, score in judged
            if score >= self._threshold
        ]

    def judge(self, sentence: Sentence) -> tuple[str, float]:
        return max(self._doubts(sentence), key=lambda doubt: doubt[1], default=("unsupported", 0.0))

    def _doubts(self, sentence: Sentence) -> list[tuple[str, float]]:
        doubts = []
        nearest = self._nearest(sentence)
        if sentence.numbers - self._numbers:
            doubts.append(("number", 0.9))
        elif nearest and sentence.numbers - frozenset().union(
            *(related.numbers for related in nearest)
        ):
            doubts.append(("number", 0.55))
        if sentence.names - self._stems:
            doubts.append(("name", 0.8))
        clauses = [clause for related in nearest for clause in self._clauses(related.text)]
        if kind := polarity.find_contradiction(polarity.parse_clauses(sentence.text), clauses):
            doubts.append((kind, 0.7))
        if _has_facts(sentence):
            doubts.append(("unsupported", round(1 - self._support(sentence, nearest), 2)))
        return doubts

    def _nearest(self, sentence: Sentence) -> list[Sentence]:
        size = len(sentence.stems) or 1
        shares = [
            (len(sentence.stems & candidate.stems) / size, -index)
            for index, candidate in enumerate(self._sentences)
        ]
        best = sorted(shares, reverse=True)[:2]
        return [self._sentences[-index] for share, index in best if share >= MIN_SIMILARITY]

    def _support(self, sentence: Sentence, nearest: Sequence[Sentence]) -> float:
        """Return the share of supported facts: 0.7 by the whole context, 0.3 by the nearest
        sentences."""
        facts = sentence.stems | sentence.numbers
        if not facts:
            return 1.0
        known_share = len(facts & (self._stems | self._numbers)) / len(facts)
        nearby_facts = frozenset[str]().union(
            *(related.stems | related.numbers for related in nearest)
        )
        return 0.7 * known_share + 0.3 * len(facts & nearby_facts) / len(facts)


def _has_facts(sentence: Sentence) -> bool:
    return bool(sentence.numbers or sentence.names) or len(sentence.stems) >= MIN_STEMS


class GroundedConfig(Section):
    """Sentences of a response without support in the `context` of the call, judged by words,
    numbers and names, or by your own model."""

    action: Action = "flag"
    """Action on findings. Default `flag`, because of false positives."""
    threshold: Certain = 0.5
    """Minimum confidence that a sentence lacks support."""
    nli: Annotated[str, StringConstraints(min_length=1, max_length=1000)] | None = None
    """Folder with an ONNX model that judges entailment, contradiction or both."""


def grounded(threshold: float) -> ByContext[Grounded]:
    def about(question: PromptContext) -> Grounded | None:
        return Grounded(question.context, threshold) if question.context.strip() else None

    return ByContext(about)


def _make(keys: GroundedConfig, context: GuardContext) -> ByContext[Grounded] | EntailmentModel:
    return EntailmentModel(keys.nli, keys.threshold) if keys.nli else grounded(keys.threshold)


KIND = GuardKind(
    GroundedConfig,
    _make,
    fields=frozenset({"content"}),
    answers=True,
    detections=(
        DetectionFormat(
            "hallucination", "is_hallucination", lambda results: {"is_hallucination": results.any}
        ),
        DetectionFormat(
            "adherence",
            "adherence_score",
            inverse_details("adherence_score"),
            summary=inverse_summary,
        ),
    ),
)
