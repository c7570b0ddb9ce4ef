"""The `toxicity` guard: finds slurs, insults, profanity and threats in English by words and
phrases."""

from __future__ import annotations

from functools import partial

from proxy.config.scalars import Section, Share
from proxy.dialects.findings import TOXICITY
from proxy.guards.guard_kind import GuardKind
from proxy.guards.matching.wordlist import WordList

KINDS = ("insult", "profanity", "slur", "threat")
Toxicity = partial(WordList, KINDS)


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
