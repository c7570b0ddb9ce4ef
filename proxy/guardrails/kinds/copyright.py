"""Protected texts in an answer: long passages of them, or an answer that is mostly made of them.

The texts are the policy's own. What is translated or told in other words is not found.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.guardrails.matching.passages import Passages, compared_words
from proxy.types.guard import Finding

GRAM = 5  # words of a sequence by which likeness is told
LEAST_GRAMS = 20  # an answer of fewer says too little to be like anything
MOST = 1024 * 1024  # characters of all texts together


class Copyright:
    """Finds passages of ``words`` words, and whole texts of whose short sequences at least
    ``share`` are known; without a ``share`` passages alone, which a stream need not wait for.

    Raises ``ValueError`` where the texts are none, too long, or one of them too short.
    """

    __slots__ = ("_alike", "_passages", "_share")

    def __init__(self, texts: Sequence[str], words: int, share: float | None) -> None:
        if not texts:
            raise ValueError("needs texts to look for")
        if sum(map(len, texts)) > MOST:
            raise ValueError(f"its texts have more than {MOST} characters")
        for number, text in enumerate(texts, 1):
            if sum(1 for _ in compared_words(text)) < words:
                raise ValueError(f"text {number} has fewer than {words} words")
        self._passages = Passages(texts, words)
        self._share = share
        self._alike = Passages(texts if share is not None else (), GRAM)

    @property
    def reach(self) -> int | None:
        return self._passages.reach if self._share is None else None

    def find(self, text: str) -> Sequence[Finding]:
        if self._share is not None:
            share, sequences = self._alike.share(text)
            if sequences >= LEAST_GRAMS and share >= self._share:
                return (Finding(start=0, end=len(text), kind="similar", score=round(share, 3)),)
        return [
            Finding(start=f.start, end=f.end, kind="passage", score=f.score)
            for f in self._passages.find(text)
        ]
