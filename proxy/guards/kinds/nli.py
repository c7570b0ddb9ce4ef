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
from proxy.guards.kinds.onnx import MAX_CHARACTERS, Network, Unjudged, load_model
from proxy.guards.matching.re2set import replace_surrogates
from proxy.guards.matching.word_overlap import Sentence, sentences
from proxy.runtime.frozen import frozen
from proxy.types.guard import Finding, GuardClient, Piece, PromptContext

NEAREST = 4  # sentences of the context per sentence of the response
MAX_PAIRS = 400  # per text
ENTAILMENT, CONTRADICTION = "entail", "contra"  # prefixes of the labels


class EntailmentModel:
    """Compares responses with the context of their call, using the model in ``folder``.

    A model may have only one of the two labels. Raises ``ValueError`` as ``Onnx`` does, and if the
    model has neither label.
    """

    __slots__ = ("_model", "_threshold", "contradiction_label", "entailment_label")

    def __init__(self, folder: str, threshold: float) -> None:
        self._model = load_model(Path(folder))
        self.entailment_label = _label(self._model.network, ENTAILMENT)
        self.contradiction_label = _label(self._model.network, CONTRADICTION)
        if self.entailment_label is None and self.contradiction_label is None:
            raise ValueError(
                f"the model has no label that begins with {ENTAILMENT!r} or {CONTRADICTION!r}"
            )
        self._threshold = threshold

    lookback = None

    def about(self, question: PromptContext) -> EntailmentCheck | None:
        context = question.context.strip()
        return EntailmentCheck(self, replace_surrogates(context)) if context else None

    def call(self, caller: object) -> AbstractContextManager[GuardThreads]:
        """Enter the queue of the model's pool. Raises ``Busy`` if too many calls wait."""
        return self._model.pool.call(caller)

    async def judge_claim(
        self, claim: str, premises: Sequence[str], in_thread: GuardThreads
    ) -> tuple[str, float]:
        """Return the kind and the score of the doubt about a claim. Raises ``Unjudged``."""
        judge_pair = self._model.network.related
        # One job per pair, so that a call past its deadline stops soon.
        results = [await in_thread(partial(judge_pair, premise, claim)) for premise in premises]
        support, contradiction = 1.0, 0.0
        if self.entailment_label:
            support = max((result[self.entailment_label] for result in results), default=0.0)
        if label := self.contradiction_label:
            contradiction = max((result[label] for result in results), default=0.0)
        if contradiction > support or self.entailment_label is None:
            return "contradicted", contradiction
        return "unsupported", 1 - support

    def findings(
        self, parts: Sequence[Sentence], doubts: Sequence[tuple[str, float]]
    ) -> list[Finding]:
        return [
            Finding(sentence.start, sentence.end, kind=kind, score=round(score, 3))
            for sentence, (kind, score) in zip(parts, doubts, strict=True)
            if score >= self._threshold
        ]


@frozen
class EntailmentCheck:
    """Compares the responses to one call with its context."""

    by: EntailmentModel
    context: str

    async def ask(
        self, texts: Sequence[Piece], question: PromptContext, outside: GuardClient
    ) -> Sequence[Sequence[Finding]]:
        """Return the findings for each text. Raises ``Unjudged``, and ``Busy`` if too many calls
        wait."""
        if max(len(self.context), sum(len(piece.text) for piece in texts)) > MAX_CHARACTERS:
            raise Unjudged
        with self.by.call(outside.caller) as in_thread:
            sources = await in_thread(lambda: list(sentences(self.context)))
            return [
                await self._judge(replace_surrogates(piece.text), sources, in_thread)
                for piece in texts
            ]

    async def _judge(
        self, text: str, sources: Sequence[Sentence], in_thread: GuardThreads
    ) -> list[Finding]:
        parts, claims, nearest = await in_thread(partial(self._pairs, text, sources))
        pairs = zip(claims, nearest, strict=True)
        doubts = [await self.by.judge_claim(*pair, in_thread) for pair in pairs]
        return self.by.findings(parts, doubts)

    def _pairs(
        self, text: str, sources: Sequence[Sentence]
    ) -> tuple[list[Sentence], list[str], list[list[str]]]:
        """Return the sentences of a text, their words, and the nearest sentences of the context.

        Raises ``Unjudged`` if there are too many pairs.
        """
        parts = list(sentences(text))
        if len(parts) * min(NEAREST, len(sources)) > MAX_PAIRS:
            raise Unjudged
        claims = [text[part.start : part.end] for part in parts]
        return parts, claims, [self._nearest(part, sources) for part in parts]

    def _nearest(self, claim: Sentence, sources: Sequence[Sentence]) -> list[str]:
        nearest = sorted(sources, key=lambda source: -len(source.stems & claim.stems))[:NEAREST]
        return [self.context[source.start : source.end] for source in nearest]


def _label(network: Network, begins: str) -> str | None:
    return next((label for label in network.labels if label.lower().startswith(begins)), None)
