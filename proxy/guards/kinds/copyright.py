"""The `copyright` guard: finds passages of protected texts, and responses that consist of them.

The policy lists the texts. Translations and paraphrases are not found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, StringConstraints

from proxy.config.scalars import FileName, Reference, Section, Share
from proxy.dialects.findings import similarity_details
from proxy.guards.guard_kind import GuardContext, GuardKind
from proxy.guards.matching.passages import Passages, compared_words
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Action, Finding
from proxy.types.hold import PartialMatcher

GRAM_WORDS = 5  # words per sequence for the share of a response
MIN_GRAMS = 20  # minimum sequences of a response for its share
MAX_CHARACTERS = 1024 * 1024  # characters of all texts together


class Copyright:
    """Detector of passages with ``words`` consecutive words, and of responses whose share of
    known five-word sequences is at least ``share``. If ``share`` is None, streams are not
    delayed to their end.

    Raises ``ValueError`` without texts, if all texts together are too long, or if a text is shorter
    than a passage.
    """

    __slots__ = ("_alike", "_passages", "_share")

    def __init__(self, texts: Sequence[str], words: int, share: float | None) -> None:
        if not texts:
            raise ValueError("must have texts or texts_from")
        if sum(map(len, texts)) > MAX_CHARACTERS:
            raise ValueError(f"texts must have at most {MAX_CHARACTERS} characters together")
        for number, text in enumerate(texts, 1):
            if sum(1 for _ in compared_words(text)) < words:
                raise ValueError(f"text {number} must have at least {words} words")
        self._passages = Passages(texts, words)
        self._share = share
        self._alike = Passages(texts if share is not None else (), GRAM_WORDS)

    @property
    def lookback(self) -> int | None:
        return self._passages.lookback if self._share is None else None

    @property
    def hold(self) -> PartialMatcher | None:
        """Partial matches of passages, or None with a share, which needs the whole text."""
        return self._passages.hold if self._share is None else None

    def find(self, text: str) -> Sequence[Finding]:
        if self._share is not None:
            share, sequences = self._alike.share(text)
            if sequences >= MIN_GRAMS and share >= self._share:
                return (Finding(start=0, end=len(text), kind="similar", score=round(share, 3)),)
        return [Finding(f.start, f.end, "passage") for f in self._passages.find(text)]


class CopyrightConfig(Section):
    """Passages of protected texts, and responses that consist mostly of such passages."""

    action: Action = "flag"
    """Action on findings. Default `flag`, because quotations may be lawful."""
    texts: list[Annotated[str, StringConstraints(min_length=1)]] = Field(default_factory=list)
    """Protected texts."""
    texts_from: Annotated[list[FileName], Reference("text")] = Field(default_factory=list)
    """Files with protected texts, in the policy folder."""
    words: Annotated[int, Field(ge=5, le=100)] = 20
    """Minimum number of consecutive words of a passage."""
    share: Share | None = 0.5
    """Maximum share of a response that may consist of five-word sequences of the texts. With null
    only passages are found, and streams are not delayed to their end."""


def _make(keys: CopyrightConfig, context: GuardContext) -> Copyright:
    texts = [*keys.texts, *(context.texts[name] for name in keys.texts_from)]
    return Copyright(texts, keys.words, keys.share)


KIND = GuardKind(
    CopyrightConfig,
    _make,
    detections=(DetectionFormat("copyright_ip", "copyright_ip_similarity", similarity_details),),
    example={"texts": ["word " * 20]},
)
