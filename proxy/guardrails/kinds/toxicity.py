"""Toxic speech in English: slurs, insults, profanity and threats, by a word list and a few rules.

How bad a word is said to be becomes the score. Nobody weighs who says it to whom: for that, ask a
moderation endpoint or a judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from proxy.config.scalars import Section, Share
from proxy.dialects.detections import TOXICITY
from proxy.frozen import frozen
from proxy.guardrails.guard_kind import SHARE, GuardKind
from proxy.guardrails.matching import wordlist
from proxy.guardrails.matching.merge_overlaps import apart
from proxy.guardrails.matching.phrase_rules import PhraseRule, PhraseRules, phrase
from proxy.guardrails.matching.re2set import prefilter
from proxy.types.guard import Finding, MayFind
from proxy.types.hold import Hold

KINDS = ("insult", "profanity", "slur", "threat")
LONGEST = 80  # characters of a finding
RULES = (
    PhraseRule(
        "threat",
        0.9,
        phrase(
            r"\b(?:i will|i.ll|i am going to|i.m going to|i.m gonna|gonna|we will|we.ll) <2>"
            r"(?:kill|murder|stab|shoot|strangle|rape|butcher) (?:you|him|her|them|your)\b"
        ),
    ),
    PhraseRule(
        "threat",
        0.9,
        phrase(
            r"\b(?:kill yourself|go hang yourself|kys|hope <2>you <1>die|you (?:should|deserve "
            r"to) (?:die|be (?:shot|killed|hanged)))\b"
        ),
    ),
    PhraseRule(
        "insult",
        0.34,
        r"\b(?:idiots?|idiotic|morons?|moronic|imbeciles?|stupid|dumb|losers?|scumbags?|creeps?)\b",
    ),
    PhraseRule(
        "insult",
        0.6,
        phrase(
            r"\b(?:you are|you.re|what an?|such an?|you) (?:(?:all|such|just|nothing but|an?|"
            r"absolute|complete|total|bloody) ){0,3}(?:idiots?|morons?|imbeciles?|scum|worthless|"
            r"pathetic|disgusting|waste of (?:space|skin|air|oxygen)|subhumans?|vermin)\b"
        ),
    ),
)


@frozen
class Toxicity:
    """Finds words and phrases that are at least as bad as ``threshold``, from 0 to 1.

    A third is mild, two thirds strong, the rest severe.
    """

    threshold: float = 0.4
    kinds: tuple[str, ...] = KINDS

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise ValueError(SHARE)
        if unknown := set(self.kinds) - set(KINDS):
            raise ValueError(
                f"kinds must be a subset of {', '.join(KINDS)}, not {', '.join(sorted(unknown))}"
            )

    @property
    def reach(self) -> int:
        return LONGEST

    @property
    def may_find(self) -> MayFind | None:
        return prefilter(_book(self.kinds, self.threshold).sets)

    @property
    def hold(self) -> Hold:
        return _book(self.kinds, self.threshold).hold

    def prepare(self) -> None:
        """Compile what tells whether a rule may hit."""
        _book(self.kinds, self.threshold)

    def load_rest(self) -> Iterator[None]:
        """Compile each rule by itself."""
        return _book(self.kinds, self.threshold).load_rest()

    def find(self, text: str) -> Sequence[Finding]:
        return apart(_book(self.kinds, self.threshold).find(text))


@lru_cache(maxsize=32)
def _book(kinds: tuple[str, ...], threshold: float) -> PhraseRules:
    """Compile what guards of the same keys share."""
    wanted = [*wordlist.rules(kinds, threshold), *RULES]
    return PhraseRules([r for r in wanted if r.kind in kinds and r.score >= threshold], LONGEST)


class ToxicityConfig(Section):
    """Insults, profanity, slurs and threats, by a list of English words. It ignores who is
    addressed, and misses polite malice."""

    threshold: Share = 0.4
    """Minimum severity of a word."""


KIND = GuardKind(
    ToxicityConfig,
    lambda keys, context: Toxicity(keys.threshold),
    cased=False,
    detections=(TOXICITY,),
)
