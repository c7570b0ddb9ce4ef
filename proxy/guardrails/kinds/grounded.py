"""Whether an answer's sentences follow from a context, as far as words, numbers and names tell.

It finds what the context does not mention, and what a sentence of it gives otherwise: other numbers
and names, a negation, an opposite. Who does what to whom, and a contradiction in other words than
the context's, pass; a true sentence in quite other words does not. Nothing here understands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import StringConstraints

from proxy.config.scalars import Certain, Section
from proxy.dialects.detections import inverse, none_found
from proxy.frozen import frozen
from proxy.guardrails.guard_kind import POSITIVE_SHARE, GuardContext, GuardKind
from proxy.guardrails.kinds.nli import Entailed
from proxy.guardrails.matching import polarity, word_overlap
from proxy.guardrails.matching.word_overlap import Sentence
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Action, Finding, Question

KINDS = ("number", "name", "negation", "unsupported")
TELLING = 4  # stems below which a sentence without number or name says too little to check
MOST_PAIRS = 20_000  # of sentences that are compared for one answer: some 20 ms
LONGEST = 64 * 1024  # characters of a context, which take some 100 ms
ALIKE = 0.5  # of a sentence's stems in one of the context's, for the two to say the same thing


@frozen
class Grounded:
    """Finds sentences that lack support at least as surely as ``threshold``."""

    threshold: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ValueError(POSITIVE_SHARE)

    @property
    def reach(self) -> None:
        return None

    def about(self, question: Question) -> GroundedIn | None:
        return self.against(question.context) if question.context.strip() else None

    def against(self, context: str) -> GroundedIn:
        """Return the detector for the answers to one call, which has this context."""
        return GroundedIn(self.threshold, context)


@frozen
class ContextFacts:
    """What a context says, as far as it can be compared."""

    sentences: tuple[Sentence, ...]
    stems: frozenset[str]
    numbers: frozenset[str]


class GroundedIn:
    """Judges each sentence of an answer by one context, which is read when the first one is.

    Takes time in the product of both lengths, and raises ``ValueError`` where that is too much: a
    part of a context would make true sentences look invented.
    """

    __slots__ = ("_clauses", "_context", "_read", "_threshold")

    def __init__(self, threshold: float, context: str) -> None:
        self._threshold = threshold
        self._context = context
        self._read: ContextFacts | None = None
        self._clauses: dict[int, Sequence[polarity.Clause]] = {}  # by where their sentence begins

    @property
    def reach(self) -> None:
        return None

    @property
    def weight(self) -> int:
        return len(self._context)

    @property
    def known(self) -> ContextFacts:
        if self._read is None:
            sentences = tuple(word_overlap.sentences(self._context))
            stems = frozenset[str]().union(*(sentence.stems for sentence in sentences))
            self._read = ContextFacts(
                sentences, stems, frozenset(word_overlap.numbers(self._context))
            )
        return self._read

    def find(self, text: str) -> Sequence[Finding]:
        sentences = [each for each in word_overlap.sentences(text) if _comparable(each)]
        if len(self._context) > LONGEST:
            raise ValueError("too long to compare")
        if len(sentences) * len(self.known.sentences) > MOST_PAIRS:
            raise ValueError("too long to compare")
        found = []
        for sentence in sentences:
            kind, score = self.judge(sentence)
            if score >= self._threshold:
                found.append(
                    Finding(start=sentence.start, end=sentence.end, kind=kind, score=score)
                )
        return found

    def judge(self, sentence: Sentence) -> tuple[str, float]:
        """Return the strongest doubt about a sentence: its kind and its score."""
        return max(self._doubts(sentence), key=lambda doubt: doubt[1], default=("unsupported", 0.0))

    def _doubts(self, sentence: Sentence) -> list[tuple[str, float]]:
        doubts = []
        near = self._nearest(sentence)
        if sentence.numbers - self.known.numbers:
            doubts.append(("number", 0.9))
        elif near and sentence.numbers - frozenset().union(*(each.numbers for each in near)):
            doubts.append(("number", 0.55))
        if sentence.names - self.known.stems:
            doubts.append(("name", 0.8))
        if kind := self._contradicted(sentence, near):
            doubts.append((kind, 0.7))
        if _telling(sentence):
            doubts.append(("unsupported", round(1 - self._support(sentence, near), 2)))
        return doubts

    def _contradicted(self, sentence: Sentence, near: Sequence[Sentence]) -> str | None:
        for each in near:
            if each.start not in self._clauses:
                self._clauses[each.start] = polarity.clauses(each.text)
        known = [clause for each in near for clause in self._clauses[each.start]]
        return polarity.contradiction(polarity.clauses(sentence.text), known)

    def _nearest(self, sentence: Sentence) -> list[Sentence]:
        """Return up to two sentences of the context that share most stems, the nearest first."""
        shares = [(_share(sentence, each), -at) for at, each in enumerate(self.known.sentences)]
        best = sorted(shares, reverse=True)[:2]
        return [self.known.sentences[-at] for share, at in best if share >= ALIKE]

    def _support(self, sentence: Sentence, near: Sequence[Sentence]) -> float:
        """Return the share of stems that the context has, weighted by the nearest sentences."""
        facts = sentence.stems | sentence.numbers
        if not facts:
            return 1.0
        known = len(facts & (self.known.stems | self.known.numbers)) / len(facts)
        together = frozenset[str]().union(*(each.stems | each.numbers for each in near))
        return 0.7 * known + 0.3 * len(facts & together) / len(facts)


def _comparable(sentence: Sentence) -> bool:
    return _telling(sentence) or len(sentence.stems) >= polarity.SHARED


def _telling(sentence: Sentence) -> bool:
    return bool(sentence.numbers or sentence.names) or len(sentence.stems) >= TELLING


def _share(sentence: Sentence, known: Sentence) -> float:
    return len(sentence.stems & known.stems) / len(sentence.stems) if sentence.stems else 0.0


class GroundedConfig(Section):
    """Sentences of a response without support in the `context` of the call, judged by words,
    numbers and names, or by your own model."""

    action: Action = "flag"
    """Action on findings. Default `flag`, because of false positives."""
    threshold: Certain = 0.5
    """Minimum confidence that a sentence lacks support."""
    nli: Annotated[str, StringConstraints(min_length=1, max_length=1000)] | None = None
    """Folder with an ONNX model that judges entailment, contradiction or both."""


def _make(keys: GroundedConfig, context: GuardContext) -> Grounded | Entailed:
    return Entailed(keys.nli, keys.threshold) if keys.nli else Grounded(keys.threshold)


KIND = GuardKind(
    GroundedConfig,
    _make,
    fields=frozenset({"content"}),
    answers=True,
    detections=(
        DetectionFormat(
            "hallucination", "is_hallucination", lambda found: {"is_hallucination": found.any}
        ),
        DetectionFormat(
            "adherence", "adherence_score", inverse("adherence_score"), summary=none_found
        ),
    ),
)
