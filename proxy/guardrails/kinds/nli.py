"""Whether an answer's sentences follow from a context, as a model of inference of your own judges.

The folder is one as ``onnx`` reads it, of a classifier of pairs: what is known, and what is said.
Its labels tell entailment and contradiction by their names. Each sentence is judged by those of the
context that share most words with it, each pair alone: what only several sentences together bear
looks unsupported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from proxy.frozen import frozen
from proxy.guardrails.kinds.onnx import CALLS, LONGEST, Network, Unjudged, load
from proxy.guardrails.matching import word_overlap
from proxy.guardrails.matching.phrase_rules import encodable
from proxy.types.guard import Finding, GuardEgress, Piece, Question

NEAREST = 4  # sentences of the context by which one of the answer is judged
MOST_PAIRS = 400  # for all texts of a call
ENTAILMENT, CONTRADICTION = "entail", "contra"


class Entailed:
    """Judges by a folder's model. Raises ``ValueError`` as ``Onnx`` does, and for a model without
    labels of entailment and contradiction."""

    __slots__ = ("_network", "_threshold", "_under_way", "against", "bears")

    def __init__(self, folder: str, threshold: float) -> None:
        self._network = load(Path(folder))
        self.bears = _label(self._network, ENTAILMENT)
        self.against = _label(self._network, CONTRADICTION)
        self._threshold = threshold
        self._under_way = 0

    @property
    def reach(self) -> None:
        return None

    def about(self, question: Question) -> EntailedIn | None:
        context = question.context.strip()
        return EntailedIn(self, encodable(context)) if context else None

    async def judged(
        self, sentences: Sequence[str], known: Sequence[Sequence[str]]
    ) -> list[tuple[str, float]]:
        """Return the doubt about each sentence: its kind and its score. Raises ``Unjudged``."""
        if self._under_way >= CALLS or sum(map(len, known)) > MOST_PAIRS:
            raise Unjudged
        self._under_way += 1
        try:
            return [await self._one(*pair) for pair in zip(sentences, known, strict=True)]
        finally:
            self._under_way -= 1

    async def _one(self, sentence: str, known: Sequence[str]) -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        shares = [  # one job for each, so that a call that is late ends soon
            await loop.run_in_executor(None, self._network.related, each, sentence)
            for each in known
        ]
        support = max((each[self.bears] for each in shares), default=0.0)
        contradiction = max((each[self.against] for each in shares), default=0.0)
        if contradiction > support:
            return "contradicted", contradiction
        return "unsupported", 1 - support

    def findings(
        self, sentences: Sequence[word_overlap.Sentence], judged: Sequence[tuple[str, float]]
    ) -> list[Finding]:
        return [
            Finding(start=each.start, end=each.end, kind=kind, score=round(score, 3))
            for each, (kind, score) in zip(sentences, judged, strict=True)
            if score >= self._threshold
        ]


@frozen
class EntailedIn:
    """Judges the answers to one call, which has this context."""

    by: Entailed
    context: str

    async def ask(
        self, texts: Sequence[Piece], question: Question, outside: GuardEgress
    ) -> Sequence[Sequence[Finding]]:
        """Judge each text. Raises ``Unjudged``."""
        if len(self.context) > LONGEST or sum(len(each.text) for each in texts) > LONGEST:
            raise Unjudged
        known = list(word_overlap.sentences(self.context))
        return [await self._judged(encodable(each.text), known) for each in texts]

    async def _judged(self, text: str, known: Sequence[word_overlap.Sentence]) -> Sequence[Finding]:
        sentences = list(word_overlap.sentences(text))
        claims = [text[each.start : each.end] for each in sentences]
        near = [self._near(each, known) for each in sentences]
        return self.by.findings(sentences, await self.by.judged(claims, near))

    def _near(
        self, sentence: word_overlap.Sentence, known: Sequence[word_overlap.Sentence]
    ) -> list[str]:
        """Return the sentences of the context that share most words with one."""
        nearest = sorted(known, key=lambda each: -len(each.stems & sentence.stems))[:NEAREST]
        return [self.context[each.start : each.end] for each in nearest]


def _label(network: Network, begins: str) -> str:
    for label in network.labels:
        if label.lower().startswith(begins):
            return label
    raise ValueError(f"the model has no label that begins with {begins!r}")
