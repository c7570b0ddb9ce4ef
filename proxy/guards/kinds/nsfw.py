"""The `nsfw` guard: finds sexual content in English by words, and sexual words near words for a
child.

It matches words without their context: it flags terms of medicine and law, and misses scenes in
clean words.
"""

from __future__ import annotations

from functools import partial

from proxy.config.scalars import Section, Share
from proxy.dialects.findings import score_of
from proxy.guards.guard_kind import GuardKind
from proxy.guards.matching.wordlist import WordList
from proxy.types.detections import DetectionFormat

Nsfw = partial(WordList, ("sexual", "minors"))


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
            lambda results: {"sfw": score_of(1 - results.score), "nsfw": score_of(results.score)},
        ),
    ),
)
