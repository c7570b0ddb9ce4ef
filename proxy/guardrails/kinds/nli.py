"""Whether an answer's sentences follow from a context, as a model of inference of your own judges.

The folder is one as ``onnx`` reads it, of a classifier of pairs: what is known, and what is said.
Its labels tell entailment and contradiction, or one of them, by their names. Each sentence is
judged by those of the context that share most words with it, each pair alone: what only several
sentences together bear looks unsupported.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from proxy.frozen import frozen
from proxy.guardrails.aside import Aside
from proxy.guardrails.kinds.onnx import LONGEST, Network, Unjudged, load
from proxy.guardrails.matching import word_overlap
from proxy.guardrails.matching.re2set import encodable
from proxy.types.guard import Finding, GuardEgress, Piece, Question

NEAREST = 4  # sentences of the context by which one of the answer is judged
MOST_PAIRS = 400  # for one text of a call
ENTAILMENT, CONTRADICTION = "entail", "contra"


class Entailed:
    """Judges by a folder's model. Raises ``ValueError`` as ``Onnx`` does, and for a model without a
    label of entailment or contradiction. One that has not both finds by the one that it has.
    """

    __slots__ = ("_model", "_threshold", "against", "bears")

    def __init__(self, folder: str, threshold: float) -> None:
        self._model = load(Path(folder))
        self.bears = _label(self._model.network, ENTAILMENT)
        self.against = _label(self._model.network, CONTRADICTION)
        if self.bears is None and self.against is None:
            raise ValueError(
                f"the model has no label that begins with {ENTAILMENT!r} or {CONTRADICTION!r}"
            )
        self._threshold = threshold

    @property
    def reach(self) -> None:
        return None

    def about(self, question: Question) -> EntailedIn | None:
        context = question.context.strip()
        return EntailedIn(self, encodable(context)) if context else None

    def call(self, caller: object) -> AbstractContextManager[Aside]:
        """Return what one call's work is done by. Raise ``Busy`` where too many wait."""
        return self._model.pool.call(caller)

    async def judged(
        self, sentences: Sequence[str], known: Sequence[Sequence[str]], aside: Aside
    ) -> list[tuple[str, float]]:
        """Return the doubt about each sentence: its kind and its score. Raises ``Unjudged``."""
        return [await self._one(*pair, aside) for pair in zip(sentences, known, strict=True)]

    async def _one(self, sentence: str, known: Sequence[str], aside: Aside) -> tuple[str, float]:
        related = self._model.network.related
        # One turn for each, so that a call that is late ends soon.
        shares = [await aside(partial(related, each, sentence)) for each in known]
        support = max((each[self.bears] for each in shares), default=0.0) if self.bears else 1.0
        against = self.against
        contradiction = max((each[against] for each in shares), default=0.0) if against else 0.0
        if contradiction > support or self.bears is None:
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
        """Judge each text. Raises ``Unjudged``, and ``Busy`` where too many calls wait."""
        if len(self.context) > LONGEST or sum(len(each.text) for each in texts) > LONGEST:
            raise Unjudged
        with self.by.call(outside.caller) as aside:
            known = await aside(partial(_sentences, self.context))
            return [await self._judged(encodable(each.text), known, aside) for each in texts]

    async def _judged(
        self, text: str, known: Sequence[word_overlap.Sentence], aside: Aside
    ) -> Sequence[Finding]:
        sentences, claims, near = await aside(partial(self._pairs, text, known))
        return self.by.findings(sentences, await self.by.judged(claims, near, aside))

    def _pairs(
        self, text: str, known: Sequence[word_overlap.Sentence]
    ) -> tuple[list[word_overlap.Sentence], list[str], list[list[str]]]:
        """Return the sentences of a text, their words, and by which of the context's each is
        judged. Raises ``Unjudged`` before so many are compared that it takes long."""
        sentences = _sentences(text)
        if len(sentences) * min(NEAREST, len(known)) > MOST_PAIRS:
            raise Unjudged
        claims = [text[each.start : each.end] for each in sentences]
        return sentences, claims, [self._near(each, known) for each in sentences]

    def _near(
        self, sentence: word_overlap.Sentence, known: Sequence[word_overlap.Sentence]
    ) -> list[str]:
        """Return the sentences of the context that share most words with one."""
        nearest = sorted(known, key=lambda each: -len(each.stems & sentence.stems))[:NEAREST]
        return [self.context[each.start : each.end] for each in nearest]


def _sentences(text: str) -> list[word_overlap.Sentence]:
    return list(word_overlap.sentences(text))


def _label(network: Network, begins: str) -> str | None:
    return next((label for label in network.labels if label.lower().startswith(begins)), None)
