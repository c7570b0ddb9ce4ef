"""Words that a policy lists, and patterns beside them, found whole and in any case."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import re2
from pydantic import Field

from proxy.config.references import Reference
from proxy.config.scalars import FileName, Section, Words
from proxy.dialects.detections import counted
from proxy.guardrails.guard_kind import GuardContext, GuardKind
from proxy.guardrails.matching.merge_overlaps import apart
from proxy.guardrails.matching.partial_match import Holds
from proxy.guardrails.matching.patterns import NamedPattern, Patterns
from proxy.guardrails.matching.re2set import prefilter
from proxy.guardrails.text.normalize import folded
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Finding
from proxy.types.hold import Hold

MAX_WORD = 200
# What may stand between the words of an entry: text is wrapped, and indented.
BETWEEN = r"[\s\p{Z}]{1,8}"


class Keywords:
    """Finds the words of one list; ``name`` is the kind of all its findings.

    ``regexes`` are in the syntax of RE2 and as strict about case as they say. Both are found as
    whole words only, in any alphabet, unless ``whole_words`` is off. Raises ValueError for a list
    of nothing, an empty or overlong word, and all that ``Patterns`` refuses.
    """

    __slots__ = ("_regexes", "_words", "hold", "may_find", "name", "reach")

    def __init__(
        self,
        name: str,
        words: Iterable[str] = (),
        regexes: Sequence[str] = (),
        *,
        whole_words: bool = True,
    ) -> None:
        self.name = name
        words = list(words)
        listed = dict.fromkeys(_regex(name, word) for word in words)
        if not listed and not regexes:
            raise ValueError("must have at least one word or regex")
        self._words = Patterns(
            [NamedPattern(name, regex, whole_words=whole_words) for regex in listed]
        )
        self._regexes = Patterns(
            [NamedPattern(name, regex, whole_words=whole_words) for regex in regexes]
        )
        reaches = [each.reach for each in (self._words, self._regexes) if each.reach is not None]
        self.reach: int | None = max(reaches) if len(reaches) == 2 else None
        self.may_find = prefilter([*self._words.sets, *self._regexes.sets])
        holds = [each.hold for each in (self._words, self._regexes) if each.patterns]
        known = [hold for hold in holds if hold is not None]
        self.hold: Hold | None = None
        if known == holds:
            self.hold = known[0] if len(known) == 1 else Holds(known)

    def __repr__(self) -> str:
        return f"Keywords({self.name!r})"

    def find(self, text: str) -> Sequence[Finding]:
        """Return all words of the list that are found, by their start, without overlaps."""
        return apart([*self._words.hits(text), *self._regexes.hits(text)])


def words_of(lines: Iterable[str]) -> list[str]:
    """The words of a file's lines: one a line; blank lines and those that begin with # are not."""
    stripped = (line.strip().removeprefix("\ufeff") for line in lines)
    return [line for line in stripped if line and not line.startswith("#")]


def _regex(name: str, word: str) -> str:
    """A pattern that matches the word in any case, however its parts are spaced."""
    parts = word.split()
    if not parts:
        raise ValueError(f"{name}: words must not be empty")
    if len(word) > MAX_WORD:
        raise ValueError(f"{name}: words must have at most {MAX_WORD} characters")
    # RE2 folds letter by letter; where folding makes two of one, both spellings are written out.
    forms = dict.fromkeys(
        BETWEEN.join(re2.escape(form(part)).replace("ss", "(?:ss|ß)") for part in parts)
        for form in (str.casefold, str.lower, str)
        if form is str.casefold or not word.isascii()
    )
    return f"(?i)(?:{'|'.join(forms)})"


class KeywordsConfig(Section):
    """Forbidden words and patterns."""

    words: Words = Field(default_factory=list)
    """Forbidden words, in any case."""
    patterns: Words = Field(default_factory=list)
    """Forbidden RE2 patterns. Patterns that could be slow are rejected by `headrace check`."""
    words_from: Annotated[FileName | None, Reference("text")] = None
    """File in the policy folder with one word per line. Lines that start with `#` are comments."""
    whole_words: bool = True
    """Whether only whole words match."""


def _make(keys: KeywordsConfig, context: GuardContext) -> Keywords:
    lines = context.texts[keys.words_from].splitlines() if keys.words_from else []
    every = [*keys.words, *words_of(lines)]
    words = [form for word in every for form in dict.fromkeys((word, folded(word)))]
    return Keywords("word", words, keys.patterns, whole_words=keys.whole_words)


KIND = GuardKind(
    KeywordsConfig,
    _make,
    cased=False,
    detections=(
        DetectionFormat("keyword_detector", "keyword_detected", counted("detected_counts")),
    ),
)
