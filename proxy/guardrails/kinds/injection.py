"""Prompt injection and jailbreaks: rules for what attacks say outright, a model for the rest.

Neither understands the text. Paraphrase, other languages and orders that look like any order get
past both (docs/guard-quality.md counts how many), so this guard flags better than it blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain

from proxy.config.scalars import Section, Share
from proxy.frozen import frozen
from proxy.guardrails.guard_kind import POSITIVE_SHARE, GuardKind
from proxy.guardrails.matching import injection_model
from proxy.guardrails.matching.hold import Holds
from proxy.guardrails.matching.injection_languages import LanguageBook
from proxy.guardrails.matching.injection_model import WINDOW, ScoredWindow
from proxy.guardrails.matching.injection_rules import NAMES, RULES
from proxy.guardrails.matching.merge_overlaps import apart
from proxy.guardrails.matching.phrase_rules import PhraseRule, PhraseRules
from proxy.guardrails.matching.re2set import Staged
from proxy.types.detections import DetectionFormat
from proxy.types.guard import Action, Finding, MayFind
from proxy.types.hold import Hold

MODEL = "model"
LONGEST = 2 * WINDOW  # characters of a finding
APPLICATION = frozenset({"system", "developer"})  # whose messages the application wrote itself
KINDS = (MODEL, *(f"rule:{name}" for name in NAMES))


@frozen
class Injection:
    """Finds windows of a text that are injections at least as probably as ``threshold``.

    A score is the probability at even odds: of as many attacks as other texts. Traffic with fewer
    attacks has more false alarms per true one; the default is where 1 in 200 benign texts is one.
    """

    threshold: float = 0.95
    rules: bool = True
    model: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ValueError(POSITIVE_SHARE)
        if not (self.rules or self.model):
            raise ValueError("must have rules, a model, or both")

    @property
    def reach(self) -> int:
        """A rule's longest match; twice a window, as those that overlap settle which is given."""
        return LONGEST

    @property
    def may_find(self) -> MayFind | None:
        """The rules' own; the model has something to say of every text."""
        if self.model:
            return None
        english, others = _english(), _languages()
        return Staged(
            (*(each.sieve for each in english.sets), others.openings.sieve),
            lambda lines: english.may_find(lines) or others.may_find(lines),
        )

    @property
    def hold(self) -> Hold | None:
        """The rules' own; of what the model judges no beginning can be told."""
        return None if self.model else Holds([_english().hold, _languages().hold])

    def prepare(self) -> None:
        """Compile what tells whether a rule may hit, and read the model where it is asked."""
        if self.rules:
            _languages().prepare()
        if self.model:
            injection_model.shipped()

    def load_rest(self) -> Iterator[None]:
        """Compile each rule by itself."""
        if self.rules:
            yield from _english().load_rest()
            yield from _languages().load_rest()

    def find(self, text: str) -> Sequence[Finding]:
        found = self._by_rules(text) if self.rules else []
        if not self.model:
            return found
        high = injection_model.shipped().windows(text, self.threshold)
        return _together(
            found,
            [Finding(start=w.start, end=w.end, kind=MODEL, score=w.score) for w in highest(high)],
        )

    def _by_rules(self, text: str) -> list[Finding]:
        found = chain(_english().find(text), _languages().find(text))
        return apart(each for each in found if each.score >= self.threshold)


def highest(windows: Sequence[ScoredWindow]) -> Iterator[ScoredWindow]:
    """Return the windows that no overlapping window exceeds; of equals, the first.

    So what is given does not hang on where the text was cut, nor do two of them overlap.
    """
    ahead: deque[int] = deque()  # of the windows in view, each below the one before it
    left = right = 0
    for at, window in enumerate(windows):
        while right < len(windows) and windows[right].start < window.end:
            while ahead and windows[ahead[-1]].score < windows[right].score:
                ahead.pop()
            ahead.append(right)
            right += 1
        while windows[left].end <= window.start:
            left += 1
        while ahead[0] < left:
            ahead.popleft()
        if ahead[0] == at:
            yield window


def _together(sure: Sequence[Finding], others: Sequence[Finding]) -> list[Finding]:
    """Add the findings that do not touch what a rule has found already."""
    found, at = list(sure), 0
    for other in others:
        while at < len(sure) and sure[at].end <= other.start:
            at += 1
        if at == len(sure) or sure[at].start >= other.end:
            found.append(other)
    return sorted(found, key=lambda finding: finding.start)


@lru_cache(maxsize=1)
def _languages() -> LanguageBook:
    return LanguageBook(LONGEST)


@lru_cache(maxsize=1)
def _english() -> PhraseRules:
    """Compile the rules once: they are the same for every guard."""
    rules = [PhraseRule(f"rule:{rule.kind}", rule.score, rule.pattern) for rule in RULES]
    return PhraseRules(rules, LONGEST)


class InjectionConfig(Section):
    """Prompt injection in the text of users, tools and files, found by rules and optionally by a
    small model. Messages of the roles `system` and `developer` are inspected only if `roles`
    contains them."""

    action: Action = "flag"
    """Action on findings. Default `flag`, because of false positives."""
    threshold: Share = 0.95
    """Minimum confidence of a finding."""
    by_rules: bool = True
    """Whether to use the rules."""
    by_model: bool = False
    """Whether to use the model too. It finds twice as much, with more than 1% false positives on
    some kinds of text."""


KIND = GuardKind(
    InjectionConfig,
    lambda keys, context: Injection(keys.threshold, rules=keys.by_rules, model=keys.by_model),
    cased=False,
    roles_left_out=APPLICATION,
    detections=(
        DetectionFormat(
            "injection_attack",
            "injection_attack",
            lambda found: {"safe": f"{1 - found.score:.3f}", "attack": f"{found.score:.3f}"},
        ),
    ),
)
