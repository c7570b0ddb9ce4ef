"""Case-insensitive rules in RE2 syntax with two additions for phrases.

A space stands for everything that separates words, ``<3>`` for up to three words. A few passes over
a text select the rules that are searched one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import re2

from proxy.frozen import frozen
from proxy.guardrails.matching.hold import Holds, Shape, Shapes
from proxy.guardrails.matching.re2set import PatternSet, giving_way
from proxy.types.guard import Finding
from proxy.types.hold import Hold

# Letters as far as phrases need to know them; RE2's own \W knows ASCII only, and \pL is hundreds of
# ranges, with which rules take thirty times as long to compile.
_LETTERS = r"A-Za-z\x{C0}-\x{1FFF}\x{2070}-\x{10FFFF}"
BETWEEN = f"[^0-9{_LETTERS}]"
_CLASSES = {r"[\pL\pN]": f"[0-9{_LETTERS}]", r"\pL": f"[{_LETTERS}]", r"\PL": f"[^{_LETTERS}]"}
_OF_EITHER_CASE = "\\x{B5}"  # beside them: the one whose other case is among them
MAX_MEMORY = 64 << 20  # bytes for an automaton; the library's 8 MB is for one pattern
# Rules of one pass. More would cost less on plain text; on texts made of the rules' own words an
# automaton of 60 took twice as long as three of 20, and two of 30 a quarter more.
TOGETHER = 30
LIVE_TOGETHER = 10  # with their beginnings, which a set compiles with the interpreter held
LONE = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")  # as ``encodable`` has them


@frozen
class PhraseRule:
    """A pattern, in letters of either case; the kind of what it finds, and how sure that is."""

    kind: str
    score: float
    pattern: str


class PhraseRules:
    """Compiled rules. Raises ValueError for a pattern that RE2 does not take."""

    def __init__(self, rules: Sequence[PhraseRule], longest: int, *, after: int = 0) -> None:
        """``longest`` bounds a finding in characters: a longer match is none. ``after`` is how many
        characters behind a match decide about it."""
        self._longest, self._after = longest, after
        self._rules = rules
        options = re2.Options()
        options.case_sensitive = False
        options.max_mem = MAX_MEMORY
        options.log_errors = False  # they are raised; the library prints them as well
        self._options = options
        self._compiled: dict[str, Any] = {}
        self._parts = [
            (PatternSet(f"(?i){unfolded(rule.pattern)}" for rule in each), each)
            for each in together(rules)
        ]

    @property
    def sets(self) -> list[PatternSet]:
        """What tells whether there may be a finding."""
        return [each for each, _ in self._parts]

    @cached_property
    def hold(self) -> Hold:
        """Return what tells of a stream how a rule may go on; made when it is first asked for, as
        questions ask for none."""
        return live(self._rules, self._after)

    def may_find(self, lines: bytes) -> bool:
        """False only if none of these lines has a finding."""
        return any(each.may_hit(lines) for each in self.sets)

    def load_rest(self) -> Iterator[None]:
        """Compile each rule by itself, which most texts ask for none of: a step for each."""
        for _, rules in self._parts:
            for rule in rules:
                self._alone(rule.pattern)
                yield

    def find(self, text: str) -> list[Finding]:
        """Return all findings by their start. Findings of two rules may overlap."""
        text = encodable(text)
        found = []
        for rule, pattern in self._matching(text):
            for match in pattern.finditer(text):
                start, end = match.span()
                if 0 < end - start <= self._longest:
                    found.append(Finding(start=start, end=end, kind=rule.kind, score=rule.score))
        return sorted(found, key=lambda finding: finding.start)

    def _matching(self, text: str) -> Iterator[tuple[PhraseRule, Any]]:
        data = text.encode()
        for several, rules in self._parts:
            for index in several.hits(data):
                yield rules[index], self._alone(rules[index].pattern)

    def _alone(self, pattern: str) -> Any:
        """Return a pattern by itself, which tells where it matches: compiled when it first does,
        as most never do, and all of them would take half of a second of each start."""
        compiled = self._compiled.get(pattern)
        if compiled is None:
            with giving_way():
                compiled = re2.compile(unfolded(pattern), self._options)
            self._compiled[pattern] = compiled
        return compiled


def together(rules: Sequence[PhraseRule], most: int = TOGETHER) -> Iterator[Sequence[PhraseRule]]:
    """Return the rules that are looked for in one pass."""
    return (rules[at : at + most] for at in range(0, len(rules), most))


def live(rules: Sequence[PhraseRule], after: int = 0) -> Hold:
    """Return what tells of a stream how one of the rules may go on."""
    several = together(rules, LIVE_TOGETHER)
    shapes = ([Shape(f"(?i){rule.pattern}", after) for rule in each] for each in several)
    return Holds([Shapes(each, translated=LONE) for each in shapes])


def encodable(text: str) -> str:
    """Return a text with a sign in place of each lone surrogate: UTF-8 has none, JSON may."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def phrase(written: str, lists: Mapping[str, str] | None = None) -> str:
    """Return the RE2 pattern of a phrase, with ``lists`` filled in."""
    written = fill(written, lists or {})
    written = re.sub(r"<(\d+)>", r"(?:[\\pL\\pN]+ ){0,\1}?", written)
    for known, cheap in _CLASSES.items():
        written = written.replace(known, cheap)
    return written.replace(" ?", f"(?:{BETWEEN}+)?").replace(" ", f"{BETWEEN}+")


def fill(written: str, lists: Mapping[str, str]) -> str:
    """Replace names in brackets. A list may contain the names of later lists."""
    for name, words in lists.items():
        written = written.replace(f"<{name}>", words)
    return written


def unfolded(pattern: str) -> str:
    """Return a pattern that matches the same in letters of either case, and compiles in half the
    time: RE2 looks for the other case of each letter of a class, wherever the class stands, and
    these have both."""
    for known in _CLASSES.values():
        whole = known.replace("]", f"{_OF_EITHER_CASE}]")
        pattern = pattern.replace(known, f"(?-i:{whole})")
    return pattern.replace(BETWEEN, f"(?-i:{BETWEEN[:-1]}{_OF_EITHER_CASE}])")
