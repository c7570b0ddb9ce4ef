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

from proxy.guards.matching.partial_match import PartialMatchers, Shape, Shapes
from proxy.guards.matching.re2set import (
    SET_MEMORY,
    CharacterOffsets,
    Pattern,
    PatternSet,
    compile_lazy_patterns,
    encode_utf8,
)
from proxy.runtime.frozen import frozen
from proxy.types.guard import Finding
from proxy.types.partial_matcher import PartialMatcher

T = TypeVar("T")
DATA = Path(__file__).parent / "data"

# Letters of phrases. RE2's \w is ASCII, and \pL is hundreds of ranges, with which rules
# take thirty times as long to compile.
_LETTERS = r"A-Za-z\x{C0}-\x{1FFF}\x{2070}-\x{10FFFF}"
WORD_SEPARATOR = f"[^0-9{_LETTERS}]"
_CLASSES = {r"[\pL\pN]": f"[0-9{_LETTERS}]", r"\pL": f"[{_LETTERS}]", r"\PL": f"[^{_LETTERS}]"}
_OTHER_CASE = "\\x{B5}"  # the micro sign, whose other case is one of the letters
_MISSING = re.compile(r"(?<!\?P)<[a-z]\w+>")
# Rules of one pass. More would cost less on plain text; on texts made of the rules' own words an
# automaton of 60 took twice as long as three of 20, and two of 30 a quarter more.
SET_SIZE = 30
PARTIAL_SET_SIZE = 10  # rules per set with partial matches; RE2 compiles a set with the GIL held


@frozen
class PhraseRule:
    """Case-insensitive pattern with the kind and the score of its findings."""

    kind: str
    score: float
    pattern: str


class PhraseRules:
    """Compiled rules.

    Matches longer than ``longest`` characters are ignored. ``sets`` raises ``ValueError`` for a
    pattern that RE2 does not accept.
    """

    def __init__(self, rules: Sequence[PhraseRule], longest: int) -> None:
        self._rules, self._longest = rules, longest
        self._singles = [
            (rule, Pattern(f"(?i){expand_letter_case(rule.pattern)}", lazy=True, memory=SET_MEMORY))
            for rule in rules
        ]

    @cached_property
    def sets(self) -> Sequence[PatternSet]:
        parts = _split_evenly(self._singles, SET_SIZE)
        return [PatternSet(pattern.source for _, pattern in part) for part in parts]

    @cached_property
    def partial_matcher(self) -> PartialMatcher:
        return build_partial_matcher(self._rules)

    def prefilter(self, lines: bytes) -> bool:
        return any(pattern_set.may_match(lines) for pattern_set in self.sets)

    def load_rare_data(self) -> Iterator[None]:
        return compile_lazy_patterns(pattern for _, pattern in self._singles)

    def find(self, text: str) -> list[Finding]:
        """Return all findings by their start. Findings of two rules may overlap."""
        data = encode_utf8(text)
        findings = []
        for pattern_set, part in zip(
            self.sets, _split_evenly(self._singles, SET_SIZE), strict=True
        ):
            for index in pattern_set.find_matching(data):
                rule, pattern = part[index]
                characters = CharacterOffsets(text, data)
                for spans in pattern.find_all(data):
                    start, end = characters.to_character_span(*spans[0])
                    if 0 < end - start <= self._longest:
                        findings.append(Finding(start, end, kind=rule.kind, score=rule.score))
        return sorted(findings, key=lambda finding: finding.start)


def _split_evenly(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def build_partial_matcher(rules: Sequence[PhraseRule], context_length: int = 0) -> PartialMatcher:
    shapes = [Shape(f"(?i){rule.pattern}", context_length) for rule in rules]
    return PartialMatchers([Shapes(part) for part in _split_evenly(shapes, PARTIAL_SET_SIZE)])


def read_rules(data: Any) -> Iterator[PhraseRule]:
    """Yield the rules of a data file, except those that refer to a missing list."""
    lists = {name: join_alternatives(value) for name, value in data["lists"].items()}
    for rule in data["rules"]:
        pattern = build_phrase_pattern(join_alternatives(rule["phrases"]), lists)
        if not _MISSING.search(pattern):
            yield PhraseRule(rule["kind"], rule["score"], pattern)


def join_alternatives(value: str | list[str]) -> str:
    """Return a list of a data file as one pattern."""
    return value if isinstance(value, str) else "|".join(value)


def build_phrase_pattern(text: str, lists: Mapping[str, str] | None = None) -> str:
    text = replace_lists(text, lists or {})
    text = re.sub(r"<(\d+)>", r"(?:[\\pL\\pN]+ ){0,\1}?", text)
    for name, character_class in _CLASSES.items():
        text = text.replace(name, character_class)
    return text.replace(" ?", f"(?:{WORD_SEPARATOR}+)?").replace(" ", f"{WORD_SEPARATOR}+")


def replace_lists(text: str, lists: Mapping[str, str]) -> str:
    """Replace the names of lists in angle brackets. A list may refer to later lists."""
    for name, words in lists.items():
        text = text.replace(f"<{name}>", words)
    return text


def expand_letter_case(pattern: str) -> str:
    """Return an equivalent case-insensitive pattern that compiles faster.

    RE2 looks up the other case of each letter of a class, and these classes contain both cases.
    """
    for character_class in _CLASSES.values():
        both_cases = character_class.replace("]", f"{_OTHER_CASE}]")
        pattern = pattern.replace(character_class, f"(?-i:{both_cases})")
    return pattern.replace(WORD_SEPARATOR, f"(?-i:{WORD_SEPARATOR[:-1]}{_OTHER_CASE}])")
