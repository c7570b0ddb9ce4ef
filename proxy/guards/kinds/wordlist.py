"""The `toxicity` and `nsfw` guards: find offensive and sexual English by words and phrases.

A word list ignores context: it flags quotations, medical texts and surnames, and misses offenses in
clean words.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache, partial

import orjson
import re2

from proxy.config.scalars import Section, Share
from proxy.dialects.findings import TOXICITY, round_score
from proxy.guards.guard_kind import GuardKind
from proxy.guards.matching.partial_match import CombinedPartialMatcher
from proxy.guards.matching.patterns import trim_overlaps
from proxy.guards.matching.phrase_rules import (
    DATA_FOLDER,
    PhraseRule,
    PhraseRules,
    parse_phrase_rules,
)
from proxy.guards.matching.re2set import build_line_prefilter
from proxy.runtime.frozen import frozen
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Finding, PrefilterFunction

WORDS_FILE, PHRASES_FILE = DATA_FOLDER / "obscenity_en.tsv", DATA_FOLDER / "offensive_en.json"
MAX_FINDING_CHARS = 80  # characters of a finding
TOXIC_KINDS = ("insult", "profanity", "slur", "threat")


@frozen
class WordList:
    """Detector of words and phrases of some kinds, with a severity of at least ``threshold``.

    Severity is from 0 to 1: one third is mild or clinical, two thirds strong, higher values severe.
    """

    kinds: tuple[str, ...]
    threshold: float = 0.4

    lookback = MAX_FINDING_CHARS

    @property
    def prefilter(self) -> PrefilterFunction | None:
        return build_line_prefilter(self._rules.pattern_sets)

    @property
    def partial_matcher(self) -> CombinedPartialMatcher:
        return self._rules.partial_matcher

    @property
    def _rules(self) -> PhraseRules:
        return _compile_rules(self.kinds, self.threshold)

    def prepare(self) -> None:
        self._rules.pattern_sets  # noqa: B018  # compiled at the first use

    def iter_loading_steps(self) -> Iterator[None]:
        return self._rules.iter_loading_steps()

    def find(self, text: str) -> Sequence[Finding]:
        return trim_overlaps(self._rules.find(text))


@lru_cache(maxsize=32)
def _compile_rules(kinds: tuple[str, ...], threshold: float) -> PhraseRules:
    return PhraseRules([*select_rules(kinds, threshold)], MAX_FINDING_CHARS)


def select_rules(kinds: Collection[str], min_severity: float) -> Iterator[PhraseRule]:
    """Yield the rules of some kinds with a severity of at least ``min_severity``."""
    for rule in _load_all_rules():
        if rule.kind in kinds and rule.score >= min_severity:
            yield rule


@lru_cache(maxsize=1)
def _load_all_rules() -> Sequence[PhraseRule]:
    """Return one rule for the words of each kind and severity, then the rules for phrases."""
    text = WORDS_FILE.read_text("utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    word_rules = []
    for kind, severity, *words in (line.split("\t") for line in lines):
        # Longer words first, so that none hides a longer one.
        words.sort(key=lambda word: (-len(word), word))
        pattern = "|".join(map(build_whole_word_pattern, words))
        word_rules.append(PhraseRule(kind, float(severity), pattern))
    return [*word_rules, *parse_phrase_rules(orjson.loads(PHRASES_FILE.read_bytes()))]


def build_whole_word_pattern(word: str) -> str:
    """Return the pattern of a whole word. A sign at an edge needs no word boundary."""
    start = r"\b" if word[0].isalnum() else ""
    end = r"\b" if word[-1].isalnum() else ""
    return f"{start}{re2.escape(word)}{end}"


Toxicity = partial(WordList, TOXIC_KINDS)
Nsfw = partial(WordList, ("sexual", "minors"))


class ToxicityConfig(Section):
    """Insults, profanity, slurs and threats, by a list of English words.

    It ignores who is addressed, and misses polite malice.
    """

    threshold: Share = 0.4
    """Minimum severity of a word."""


class NsfwConfig(Section):
    """Sexual content, by a list of English words.

    It misses scenes without such words, and may flag medical and legal texts.
    """

    threshold: Share = 0.4
    """Minimum severity of a word."""


TOXICITY_GUARD = GuardKind(
    ToxicityConfig,
    lambda keys, context: Toxicity(keys.threshold),
    cased=False,
    detections=(TOXICITY,),
)
NSFW_GUARD = GuardKind(
    NsfwConfig,
    lambda keys, context: Nsfw(keys.threshold),
    cased=False,
    detections=(
        DetectionFormat(
            "nsfw",
            "nsfw",
            lambda r: {"sfw": round_score(1 - r.score), "nsfw": round_score(r.score)},
        ),
    ),
)
