"""The `keywords` guard: finds words and patterns of a policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import re2
from pydantic import Field

from proxy.config.scalars import FileName, RefersTo, Section, TextList
from proxy.dialects.findings import make_counts_details
from proxy.guards.guard_kind import GuardContext, GuardKind
from proxy.guards.matching.partial_match import CombinedPartialMatcher
from proxy.guards.matching.patterns import Patterns, trim_overlaps
from proxy.guards.matching.re2set import build_line_prefilter
from proxy.guards.text.normalize import normalize_word
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Finding
from proxy.types.partial_matcher import PartialMatcher

MAX_WORD_LENGTH = 200
WORD_GAP = r"[\s\p{Z}]{1,8}"  # between the words of an entry: text may be wrapped and indented


class Keywords:
    """Detector of words in any case, and of ``regexes`` in RE2 syntax.

    Regexes are case-sensitive by default. All findings have the kind ``name``. With
    ``whole_words``, matches must not start or end within a word of any alphabet. Raises
    ``ValueError`` for an empty list, an empty or overlong word, and as ``Patterns`` does.
    """

    def __init__(
        self,
        name: str,
        words: Iterable[str] = (),
        regexes: Sequence[str] = (),
        *,
        whole_words: bool = True,
    ) -> None:
        self.name = name
        word_patterns = dict.fromkeys(_build_word_pattern(name, word) for word in words)
        if not word_patterns and not regexes:
            raise ValueError("must have words, patterns or words_from")
        # Two sets: the patterns of a policy may have no prefilter, or need more memory.
        groups = [[*group] for group in (word_patterns, regexes) if group]
        self._groups = [Patterns(name, group, whole_words=whole_words) for group in groups]
        lookbacks = [group.lookback for group in self._groups if group.lookback is not None]
        is_bounded = len(lookbacks) == len(self._groups)
        self.lookback: int | None = max(lookbacks) if is_bounded else None
        self.prefilter = build_line_prefilter([group.pattern_set for group in self._groups])
        matchers = [g.partial_matcher for g in self._groups if g.partial_matcher is not None]
        self.partial_matcher: PartialMatcher | None = None
        if len(matchers) == len(self._groups):
            single, *more = matchers
            self.partial_matcher = CombinedPartialMatcher(matchers) if more else single

    def find(self, text: str) -> Sequence[Finding]:
        return trim_overlaps(f for group in self._groups for f in group.find_overlapping(text))


def parse_words(lines: Iterable[str]) -> list[str]:
    """Return the words of a file with one word per line.

    Skips blank lines and lines that start with #.
    """
    stripped = (line.strip().removeprefix("\ufeff") for line in lines)
    return [line for line in stripped if line and not line.startswith("#")]


def _build_word_pattern(name: str, word: str) -> str:
    """Return a pattern for a word or phrase in any case, with any white space between its parts."""
    parts = word.split()
    if not parts:
        raise ValueError(f"{name}: words must not be empty")
    if len(word) > MAX_WORD_LENGTH:
        raise ValueError(f"{name}: words must have at most {MAX_WORD_LENGTH} characters")
    # RE2 folds letter by letter. If folding makes two letters of one, both spellings are included.
    forms = dict.fromkeys(
        WORD_GAP.join(re2.escape(form(part)).replace("ss", "(?:ss|ß)") for part in parts)
        for form in (str.casefold, str.lower, str)
        if form is str.casefold or not word.isascii()
    )
    return f"(?i)(?:{'|'.join(forms)})"


class KeywordsConfig(Section):
    """Forbidden words and patterns."""

    words: TextList = Field(default_factory=list)
    """Forbidden words, in any case."""
    patterns: TextList = Field(default_factory=list)
    """Forbidden RE2 patterns. `headrace check` rejects patterns that need too much memory."""
    words_from: Annotated[FileName | None, RefersTo("text")] = None
    """File in the policy folder with one word per line. Lines that start with `#` are comments."""
    whole_words: bool = True
    """Match whole words only."""


def _build_keywords_detector(keys: KeywordsConfig, context: GuardContext) -> Keywords:
    lines = context.texts[keys.words_from].splitlines() if keys.words_from else []
    words = [*keys.words, *parse_words(lines)]
    words = [form for word in words for form in (word, normalize_word(word))]
    return Keywords("word", words, keys.patterns, whole_words=keys.whole_words)


DETAILS = make_counts_details("detected_counts")
DETECTION = DetectionFormat("keyword_detector", "keyword_detected", DETAILS)
KIND = GuardKind(KeywordsConfig, _build_keywords_detector, cased=False, detections=(DETECTION,))
