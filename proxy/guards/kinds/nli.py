"""The `grounded` guard with a user's model of natural language inference.

The folder contains a classifier of text pairs in the format of the `onnx` guard, with labels for
entailment, contradiction or both. Each sentence of a response is paired with the sentences of the
context that share the most words. Claims that need several sentences look unsupported.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from proxy.guards.guard_threads import GuardThreads
from proxy.guards.kinds.onnx import LONGEST, Network, Unjudged, load
from proxy.guards.matching.re2set import encodable
from proxy.guards.matching.word_overlap import Sentence, sentences
from proxy.runtime.frozen import frozen
from proxy.types.guard import Finding, GuardClient, Piece, PromptContext

NEAREST = 4  # sentences of the context per sentence of the response
MOST_PAIRS = 400  # per text
ENTAILMENT, CONTRADICTION = "entail", "contra"  # prefixes of the labels


class Entailed:
    """Compares responses with the context of their call, using the model in ``folder``.

    A model may have only one of the two labels. Raises ``ValueError`` as ``Onnx`` does, and if the
    model has neither label.
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

    lookback = None

    def about(self, question: PromptContext) -> EntailedIn | None:
        context = question.context.strip()
        return EntailedIn(self, encodable(context)) if context else None

    def call(self, caller: object) -> AbstractContextManager[GuardThreads]:
        """Enter the queue of the model's pool. Raises ``Busy`` if too many calls wait."""
        return self._model.pool.call(caller)

    async def judged(
        self, claims: Sequence[str], known: Sequence[Sequence[str]], aside: GuardThreads
    ) -> list[tuple[str, float]]:
        """Return the kind and the score of the doubt about each claim. Raises ``Unjudged``."""
        return [await self._one(*pair, aside) for pair in zip(claims, known, strict=True)]

    async def _one(
        self, claim: str, known: Sequence[str], aside: GuardThreads
    ) -> tuple[str, float]:
        related = self._model.network.related
        # One job per pair, so that a call past its deadline stops soon.
        shares = [await aside(partial(related, each, claim)) for each in known]
        support = max((share[self.bears] for share in shares), default=0.0) if self.bears else 1.0
        against = self.against
        contradiction = max((each[against] for each in shares), default=0.0) if against else 0.0
        if contradiction > support or self.bears is None:
            return "contradicted", contradiction
        return "unsupported", 1 - support

    def findings(
        self, judged: Sequence[Sentence], doubts: Sequence[tuple[str, float]]
    ) -> list[Finding]:
        return [
            Finding(sentence.start, sentence.end, kind=kind, score=round(score, 3))
            for sentence, (kind, score) in zip(judged, doubts, strict=True)
            if score >= self._threshold
        ]


@frozen
class EntailedIn:
    """Compares the responses to one call with its context."""

    by: Entailed
    context: str

    async def ask(
        self, texts: Sequence[Piece], question: PromptContext, outside: GuardClient
    ) -> Sequence[Sequence[Finding]]:
        """Return the findings for each text. Raises ``Unjudged``, and ``Busy`` if too many calls
        wait."""
        if len(self.context) > LONGEST or sum(len(each.text) for each in texts) > LONGEST:
            raise Unjudged
        with self.by.call(outside.caller) as aside:
            known = await aside(lambda: list(sentences(self.context)))
            return [await self._judge(encodable(text.text), known, aside) for text in texts]

    async def _judge(
        self, text: str, known: Sequence[Sentence], aside: GuardThreads
    ) -> list[Finding]:
        judged, claims, near = await aside(partial(self._pairs, text, known))
        return self.by.findings(judged, await self.by.judged(claims, near, aside))

    def _pairs(
        self, text: str, known: Sequence[Sentence]
    ) -> tuple[list[Sentence], list[str], list[list[str]]]:
        """Return the sentences of a text, their words, and the nearest sentences of the context.

        Raises ``Unjudged`` if there are too many pairs.
        """
        judged = list(sentences(text))
        if len(judged) * min(NEAREST, len(known)) > MOST_PAIRS:
            raise Unjudged
        claims = [text[each.start : each.end] for each in judged]
        return judged, claims, [self._nearest(each, known) for each in judged]

    def _nearest(self, claim: Sentence, known: Sequence[Sentence]) -> list[str]:
        nearest = sorted(known, key=lambda each: -len(each.stems & claim.stems))[:NEAREST]
        return [self.context[each.start : each.end] for each in nearest]


def _label(network: Network, begins: str) -> str | None:
    return next((label for label in network.labels if label.lower().startswith(begins)), None)
