"""Rules by name, matched together: one pass over the text tells which of them to look for.

RE2 only: no text makes a match slow, and while one is matched other threads run on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import re2

from proxy.guardrails.finding import Finding

MAX_MEMORY = 64 << 20  # bytes for the automata of a book; the library's 8 MB is for one pattern


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern, in letters of either case; the kind of what it finds, and how sure that is."""

    kind: str
    score: float
    pattern: str


class Rulebook:
    """Compiled rules. Raises ValueError for a pattern that RE2 does not take."""

    def __init__(self, rules: Sequence[Rule], longest: int) -> None:
        """``longest`` bounds a finding in characters: a longer match is none."""
        self._longest = longest
        options = re2.Options()
        options.case_sensitive = False
        options.max_mem = MAX_MEMORY
        options.log_errors = False  # they are raised; the library prints them as well
        self._any = re2.Set.SearchSet(options)
        self._each: list[tuple[Rule, Any]] = []
        try:
            for rule in rules:
                self._any.Add(rule.pattern)
                self._each.append((rule, re2.compile(rule.pattern, options)))
            self._any.Compile()  # without it, nothing would ever match
        except re2.error as error:
            raise ValueError(f"not a pattern: {error}") from error

    def find(self, text: str) -> list[Finding]:
        """Give what all rules find, by its start; findings of two rules may overlap."""
        text = encodable(text)
        found = []
        for index in self._any.Match(text) or ():  # None when nothing matches
            rule, compiled = self._each[index]
            for match in compiled.finditer(text):
                start, end = match.span()
                if 0 < end - start <= self._longest:
                    found.append(Finding(start, end, rule.kind, rule.score))
        return sorted(found, key=lambda finding: finding.start)


def encodable(text: str) -> str:
    """Give the text with a sign for each lone surrogate, which JSON may carry and UTF-8 cannot."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def apart(findings: Iterable[Finding]) -> list[Finding]:
    """Keep of findings that overlap the surest, the longest of equals; give them by their start."""
    kept: list[Finding] = []
    for finding in sorted(findings, key=lambda f: (f.start, f.end)):
        if not kept or kept[-1].end <= finding.start:
            kept.append(finding)
        elif _weight(finding) > _weight(kept[-1]):
            kept[-1] = finding
    return kept


def _weight(finding: Finding) -> tuple[float, int]:
    return finding.score, finding.end - finding.start
