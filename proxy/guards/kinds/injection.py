"""The `injection` guard: finds prompt injection and jailbreaks by rules.

The rules miss paraphrases and instructions that look harmless. See `docs/guard-quality.md` for the
measured quality, and use the `onnx` guard with a classifier to find more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain

from proxy.config.scalars import Certain, Section
from proxy.guards.guard_kind import GuardKind
from proxy.guards.matching.injection_rules import (
    CHARS_AFTER,
    CHARS_BEFORE,
    LanguageBook,
    english_rules,
)
from proxy.guards.matching.merge_overlaps import resolve_overlaps
from proxy.guards.matching.partial_match import PartialMatchers
from proxy.guards.matching.phrase_rules import PhraseRules
from proxy.guards.matching.re2set import Prefilter, replace_surrogates
from proxy.runtime.frozen import frozen
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Action, Finding, MayFind
from proxy.types.hold import PartialMatcher

MAX_LENGTH = 240  # characters of a finding
APPLICATION = frozenset({"system", "developer"})  # roles of the application's own messages
KINDS = tuple(dict.fromkeys(rule.kind for rule in english_rules().rules))


@frozen
class Injection:
    """Detector of injections. ``threshold`` is the minimum score of a rule, above 0 and up to 1."""

    threshold: float = 0.95
    lookback = CHARS_BEFORE + MAX_LENGTH + CHARS_AFTER

    @property
    def may_find(self) -> MayFind:
        english, languages = _english(), _languages()
        return Prefilter(
            (
                *(pattern_set.shared_prefilter for pattern_set in english.sets),
                languages.openings.shared_prefilter,
            ),
            confirm=lambda lines: english.may_find(lines) or languages.may_find(lines),
        )

    @property
    def hold(self) -> PartialMatcher:
        return PartialMatchers([_english().hold, _languages().hold])

    def prepare(self) -> None:
        _languages().prepare()

    def load_rest(self) -> Iterator[None]:
        yield from _english().load_rest()
        yield from _languages().load_rest()

    def find(self, text: str) -> Sequence[Finding]:
        text = replace_surrogates(text)
        is_harmless = english_rules().context.is_harmless
        return resolve_overlaps(
            finding
            for finding in chain(_english().find(text), _languages().find(text))
            if finding.score >= self.threshold and not is_harmless(text, finding.start, finding.end)
        )


@lru_cache(maxsize=1)
def _languages() -> LanguageBook:
    return LanguageBook(MAX_LENGTH, context_length=CHARS_AFTER)


@lru_cache(maxsize=1)
def _english() -> PhraseRules:
    return PhraseRules(english_rules().rules, MAX_LENGTH, context_length=CHARS_AFTER)


class InjectionConfig(Section):
    """Prompt injection in the text of users, tools and files, found by rules. An instruction that
    a text forbids is not a finding, nor one that an English text quotes as an attack. Messages of
    the roles `system` and `developer` are inspected only if `roles` contains them."""

    action: Action = "flag"
    """Action on findings. Default `flag`, because of false positives."""
    threshold: Certain = 0.95
    """Minimum confidence of a finding."""


KIND = GuardKind(
    InjectionConfig,
    lambda keys, context: Injection(keys.threshold),
    cased=False,
    roles_left_out=APPLICATION,
    detections=(
        DetectionFormat(
            "injection_attack",
            "injection_attack",
            lambda results: {"safe": f"{1 - results.score:.3f}", "attack": f"{results.score:.3f}"},
        ),
    ),
)
