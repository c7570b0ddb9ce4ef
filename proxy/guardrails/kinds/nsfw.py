"""Sexual content in English, by a word list: what a text calls by its coarse name.

A finding tells that a word is there, not that a text is obscene: medicine and law use some of them,
and a scene that is told in clean words is not found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from proxy.config.scalars import Section, Share
from proxy.dialects.detections import share
from proxy.frozen import frozen
from proxy.guardrails.guard_kind import SHARE, GuardKind
from proxy.guardrails.matching import wordlist
from proxy.guardrails.matching.merge_overlaps import apart
from proxy.guardrails.matching.phrase_rules import PhraseRule, PhraseRules, phrase
from proxy.guardrails.matching.re2set import prefilter
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Finding, MayFind
from proxy.types.hold import Hold

LONGEST = 80  # characters of a finding
_SEX = r"(?:sexual(?:ly|ised|ized)?|sex|nude|nudes|naked|porn\w*|erotic\w*|explicit)"
_MINOR = (
    r"(?:child|children|minors?|underage|pre.?teens?|toddlers?|schoolgirls?|schoolboys?|"
    r"(?:[1-9]|1[0-7]).{0,3}year.{0,3}old\w*)"
)
# Prevention and law speak so too, but a miss costs more here: the lowest score that is found.
RULES = (
    PhraseRule(
        "sexual",
        0.34,
        r"\b(?:sex|sexual|sexually|sexy|porn\w*|penis\w*|vaginas?|genitals?|orgasm\w*|erotic\w*|"
        r"nudes?|naked|masturbat\w*|intercourse|foreplay|striptease|fetish\w*|horny|lingerie)\b",
    ),
    PhraseRule("minors", 0.5, phrase(rf"\b{_SEX} <4>{_MINOR}\b")),
    PhraseRule("minors", 0.5, phrase(rf"\b{_MINOR} <4>{_SEX}\b")),
)


@frozen
class Nsfw:
    """Finds words that are at least as explicit as ``threshold``, from 0 to 1.

    A third is mild or clinical, two thirds strong, the rest severe. ``minors`` is a sexual word
    near one for a child, which has the score of a half.
    """

    threshold: float = 0.4

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            raise ValueError(SHARE)

    @property
    def reach(self) -> int:
        return LONGEST

    @property
    def may_find(self) -> MayFind | None:
        return prefilter(_book(self.threshold).sets)

    @property
    def hold(self) -> Hold:
        return _book(self.threshold).hold

    def prepare(self) -> None:
        """Compile what tells whether a rule may hit."""
        _book(self.threshold)

    def load_rest(self) -> Iterator[None]:
        """Compile each rule by itself."""
        return _book(self.threshold).load_rest()

    def find(self, text: str) -> Sequence[Finding]:
        return apart(_book(self.threshold).find(text))


@lru_cache(maxsize=32)
def _book(threshold: float) -> PhraseRules:
    """Compile what guards of the same threshold share."""
    wanted = [*wordlist.rules({"sexual"}, threshold), *RULES]
    return PhraseRules([rule for rule in wanted if rule.score >= threshold], LONGEST)


class NsfwConfig(Section):
    """Sexual content, by a list of English words. It misses scenes without such words, and may flag
    medical and legal texts."""

    threshold: Share = 0.4
    """Minimum severity of a word."""


KIND = GuardKind(
    NsfwConfig,
    lambda keys, context: Nsfw(keys.threshold),
    cased=False,
    detections=(
        DetectionFormat(
            "nsfw",
            "nsfw",
            lambda found: {"sfw": share(1 - found.score), "nsfw": share(found.score)},
        ),
    ),
)
