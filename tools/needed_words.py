"""What a text must hold for a pattern to match it: one of some plain strings.

To look for many strings at once is cheap, whatever the patterns are that need them. Of a pattern
that ``TOKENS`` reads; where it is in doubt it needs less, never more.
"""

from __future__ import annotations

import re

from proxy.guardrails.matching.injection_languages import GAP
from proxy.guardrails.matching.tokens import TOKENS

Needed = frozenset[str]  # one of these; empty where nothing need be there
_COMMON = (
    "a about above add after again ai all also an and answer any are as ask asked at back be "
    "been before but by call can change class close code come could customer data day dear "
    "display do don down each email end every file find first follow for forward from get "
    "give go good had has have he hello her here hey hi him his how http https i if in into "
    "is it its just key keys know let like line list ll long look made mail make many may me "
    "message model more most must my name need never new no not note now of old on one "
    "only open or order orders other our out output over own page part people place please "
    "post put question re read reading reply request run said same say see send set share "
    "she should show so some start starting step stop system take task tell text than that "
    "the their them then there these they thing this through time to told tool two up use "
    "user using very want was way we well were what when where which who will with without "
    "word work would write you your"
)
COMMON = frozenset(_COMMON.split())
"""Words that stand in many texts."""
_LETTERS = re.compile(
    r"(?:[^\\\[\](){}|?*+.^$](?![?*+{]))+"
)  # which stand for themselves, once each


def needed(pattern: str, gap: str) -> Needed:
    """Return strings of which every match of ``pattern`` holds one, in the pattern's own case; none
    where it may match without. Where the pattern has ``gap`` the strings have ``GAP``."""
    pattern = pattern.replace(gap, GAP)
    groups = [_Branches()]
    place = 0
    while token := _LETTERS.match(pattern, place) or TOKENS.match(pattern, place):
        group, place = groups[-1], token.end()
        if token.re is _LETTERS:
            group.extend(token[0])
            continue
        match token.lastgroup:
            case "opens":
                groups.append(_Branches())
            case "closes":
                groups.pop()
                groups[-1].add(group.ended())
            case "other":
                group.end_branch()
            case "repeats":
                group.repeat(
                    at_least_one=token["repeats"][0] == "+" or (token["least"] or "0") != "0"
                )
            case "between" | "flags":
                pass
            case _:
                group.add(_letter(token))
    return groups[0].ended()


def _letter(token: re.Match[str]) -> Needed:
    text = token["one"] or token["quoted"] or ""
    escaped = len(text) == 2 and text[0] == "\\" and not text[1].isalnum()
    plain = token["quoted"] is not None or escaped or (len(text) == 1 and text != ".")
    text = text[1:] if escaped else text
    return frozenset((text,)) if plain and text else frozenset()


class _Branches:
    """The branches that have been read of a group, and of this branch the best and the last run."""

    __slots__ = ("best", "branches", "last", "run")

    def __init__(self) -> None:
        self.branches: list[Needed] = []
        self.best: Needed = frozenset()
        self.run = ""  # letters that follow each other
        self.last: Needed = frozenset()  # what was read last, and is in neither yet

    def add(self, part: Needed) -> None:
        self._settle()
        self.last = part

    def extend(self, letters: str) -> None:
        """Take letters that follow each other."""
        self._settle()
        self.run += letters[:-1]
        self.last = frozenset((letters[-1],))

    def repeat(self, *, at_least_one: bool) -> None:
        """What was read last is there as often as it says: what follows it is no part of a run."""
        last, self.last = self.last, frozenset()
        self._break()
        if at_least_one:
            self._offer(last)

    def end_branch(self) -> None:
        self._settle()
        self._break()
        self.branches.append(self.best)
        self.best = frozenset()

    def ended(self) -> Needed:
        self.end_branch()
        return frozenset().union(*self.branches) if all(self.branches) else frozenset()

    def _settle(self) -> None:
        """Take what was read last into the run, now that nothing repeats it."""
        last, self.last = self.last, frozenset()
        if len(last) == 1 and len(only := next(iter(last))) == 1:
            self.run += only
            return
        self._break()
        self._offer(last)

    def _break(self) -> None:
        if self.run:
            self._offer(frozenset((self.run,)))
        self.run = ""

    def _offer(self, strings: Needed) -> None:
        if strings and _worth(strings) > _worth(self.best):
            self.best = strings


def _worth(strings: Needed) -> tuple[int, int]:
    """The longer the shortest, the rarer; then the fewer. A word that many texts have is as rare as
    a letter."""
    letters = (1 if each in COMMON else len(each.replace(GAP, "").encode()) for each in strings)
    return (min(letters, default=0), sum(GAP in each for each in strings) - len(strings))
