"""Case-insensitive rules in RE2 syntax with two additions for phrases.

A space matches any separator of words, and ``<3>`` matches up to three words. A few passes over a
text select the rules that are then searched one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from proxy.guards.matching import re2set
from proxy.guards.matching.partial_match import (
    CombinedPartialMatcher,
    StreamPattern,
    StreamPatternMatcher,
)
from proxy.guards.matching.re2set import CharacterOffsets, Pattern, PatternSet
from proxy.runtime.frozen import frozen
from proxy.types.guard import Finding

T = TypeVar("T")
DATA_FOLDER = Path(__file__).parent / "data"

# Letters of phrases. RE2's \w is ASCII, and \pL is hundreds of ranges, with which rules
# take thirty times as long to compile.
_LETTERS = r"A-Za-z\x{C0}-\x{1FFF}\x{2070}-\x{10FFFF}"
WORD_SEPARATOR = f"[^0-9{_LETTERS}]"
_CLASSES = {r"[\pL\pN]": f"[0-9{_LETTERS}]", r"\pL": f"[{_LETTERS}]", r"\PL": f"[^{_LETTERS}]"}
_OTHER_CASE = "\\x{B5}"  # the micro sign, whose other case is one of the letters
_LIST_NAME = re.compile(r"(?<!\?P)<[a-z]\w+>")
# Rules of one pass. More would cost less on plain text; on texts made of the rules' own words an
# automaton of 60 took twice as long as three of 20, and two of 30 a quarter more.
RULES_PER_SET = 30
RULES_PER_PARTIAL_SET = (
    10  # rules per set with partial matches; RE2 compiles a set with the GIL held
)


@frozen
class PhraseRule:
    """Case-insensitive pattern with the kind and the score of its findings."""

    kind: str
    score: float
    pattern: str


class PhraseRules:
    """Phrase rules with their compiled patterns.

    Matches of more than ``max_chars`` characters are ignored. ``chars_after`` is the number of
    characters behind a match that may change the decision. ``pattern_sets`` raises ``ValueError``
    for a pattern that RE2 does not accept.
    """

    def __init__(self, rules: Sequence[PhraseRule], max_chars: int, chars_after: int = 0) -> None:
        self._rules, self._max_chars = rules, max_chars
        self._patterns = [
            Pattern(
                f"(?i){make_classes_case_sensitive(rule.pattern)}",
                lazy=True,
                memory=re2set.SET_MEMORY_BYTES,
            )
            for rule in rules
        ]
        self._chars_after = chars_after

    @cached_property
    def pattern_sets(self) -> Sequence[PatternSet]:
        sources = [pattern.source for pattern in self._patterns]
        return [*map(PatternSet, _iter_batches(sources, RULES_PER_SET))]

    @property
    def stream_patterns(self) -> Sequence[StreamPattern]:
        return [
            StreamPattern(f"(?i){rule.pattern}", self._chars_after, compiled=pattern)
            for rule, pattern in zip(self._rules, self._patterns, strict=True)
        ]

    @cached_property
    def partial_matcher(self) -> CombinedPartialMatcher:
        return build_partial_matcher(self.stream_patterns)

    def may_contain_match(self, lines: bytes) -> bool:
        return any(pattern_set.may_match_or_begin(lines) for pattern_set in self.pattern_sets)

    def iter_loading_steps(self) -> Iterator[None]:
        return re2set.iter_compile_steps(self._patterns)

    def find(self, text: str) -> list[Finding]:
        """Return all findings by their start. Findings of two rules may overlap."""
        data = re2set.encode_utf8(text)
        findings = []
        for number, pattern_set in enumerate(self.pattern_sets):
            for hit in pattern_set.find_candidates(data):
                index = number * RULES_PER_SET + hit
                rule, characters = self._rules[index], CharacterOffsets(text, data)
                for spans in self._patterns[index].find_all(data):
                    finding = characters.to_finding(*spans[0], rule.kind, rule.score)
                    if 0 < finding.end - finding.start <= self._max_chars:
                        findings.append(finding)
        return sorted(findings, key=lambda finding: finding.start)


def build_partial_matcher(patterns: Sequence[StreamPattern]) -> CombinedPartialMatcher:
    return CombinedPartialMatcher(
        [*map(StreamPatternMatcher, _iter_batches(patterns, RULES_PER_PARTIAL_SET))]
    )


def _iter_batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def parse_phrase_rules(data: Any) -> Iterator[PhraseRule]:
    """Yield the rules of a data file, except those that refer to a missing list."""
    lists = {name: join_alternatives(value) for name, value in data["lists"].items()}
    for rule in data["rules"]:
        pattern = build_phrase_pattern(join_alternatives(rule["phrases"]), lists)
        if not _LIST_NAME.search(pattern):
            yield PhraseRule(rule["kind"], rule["score"], pattern)


def join_alternatives(value: str | list[str]) -> str:
    """Return a list of a data file as one pattern."""
    return value if isinstance(value, str) else "|".join(value)


def build_phrase_pattern(text: str, lists: Mapping[str, str] | None = None) -> str:
    text = expand_lists(text, lists or {})
    text = re.sub(r"<(\d+)>", r"(?:[\\pL\\pN]+ ){0,\1}?", text)
    for name, character_class in _CLASSES.items():
        text = text.replace(name, character_class)
    return text.replace(" ?", f"(?:{WORD_SEPARATOR}+)?").replace(" ", f"{WORD_SEPARATOR}+")


def expand_lists(text: str, lists: Mapping[str, str]) -> str:
    """Replace each ``<name>`` by the alternatives of that list, which may name later lists."""
    for name, words in lists.items():
        text = text.replace(f"<{name}>", words)
    return text


def make_classes_case_sensitive(pattern: str) -> str:
    """Return an equivalent case-insensitive pattern that compiles faster.

    These classes contain both cases, so RE2 need not look up the other case of each letter.
    """
    for character_class in _CLASSES.values():
        both_cases = character_class.replace("]", f"{_OTHER_CASE}]")
        pattern = pattern.replace(character_class, f"(?-i:{both_cases})")
    return pattern.replace(WORD_SEPARATOR, f"(?-i:{WORD_SEPARATOR[:-1]}{_OTHER_CASE}])")
