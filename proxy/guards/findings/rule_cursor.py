"""Position of one rule in a text that is read in pieces.

The findings are the same for any pieces: a finding counts once everything that it depends on has
been read, and each inspection starts far enough back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from proxy.guards.findings.mask import TextMatch, find_matches
from proxy.guards.findings.tally import RuleTally
from proxy.guards.text.clusters import MOST
from proxy.guards.text.normalize import Beginning, View
from proxy.types.hold import PartialMatcher, partial_matcher_of

# Characters before the lookback, so that a reading in the middle of a text begins the same: more
# than the marks of one letter.
MARGIN = MOST + 10


@dataclass(slots=True)
class RuleCursor:
    """Position of one rule. Findings that begin before ``decided`` are final; the next inspection
    starts at ``since``. ``ahead`` is True if a finding is not final."""

    tally: RuleTally
    rule: int
    lookback: int | None
    since: int = 0
    decided: int = 0
    until: int = 0
    recent: list[tuple[int, int]] = field(default_factory=list)
    ahead: bool = False
    hold: PartialMatcher | None = field(init=False)

    def __post_init__(self) -> None:
        holds = self.lookback is not None and self.tally.rule.enforces
        self.hold = partial_matcher_of(self.tally.rule.detector) if holds else None

    def begin_anew(self, at: int) -> None:
        """Continue with another text at a position."""
        self.since = self.decided = self.until = at
        self.recent.clear()
        self.ahead = False

    @property
    def looks(self) -> bool:
        """True if the rule inspects incomplete texts."""
        return self.lookback is not None and self.tally.error is None

    @property
    def holds(self) -> bool:
        return self.tally.rule.enforces and self.tally.error is None

    def see(
        self,
        views: tuple[View, ...],
        base: int,
        decided: int,
        left_s: float | None = None,
        least: int | None = None,
    ) -> list[TextMatch]:
        """Return new matches before ``decided`` in a piece that begins at ``base``.

        With ``least``, a position in the piece, ``decided`` moves back to before a match across
        it, but not before ``least``. Raises ``GuardBlocked``.
        """
        fresh: list[TextMatch] = []
        found = find_matches(self.tally, self.rule, views, self.since - base, left_s)
        if least is not None:
            decided = self._before(found, base, decided, base + least, views[0].cased)
        for match in found:
            start, end = match.start + base, match.end + base
            if not self.decided <= start < decided or end <= self.until:
                continue
            self.until = end
            self.recent.append((start, end))
            fresh.append(replace(match, start=start, end=end))
        self.decided = decided
        self.ahead = bool(found) and found[-1].end + base > decided
        since = base + _context(views, decided - base, self.lookback or 0)
        for start, end in reversed(self.recent):
            if start < since < end:  # an inspection must not start within a match
                since = start
        self.since = since
        self.recent = [each for each in self.recent if each[1] > since]
        return fresh

    def _before(
        self, found: list[TextMatch], base: int, decided: int, least: int, text: str
    ) -> int:
        """Return a position that no match crosses. Overlapping matches may change together."""
        place = decided
        for match in reversed(found):
            end = match.end + base
            if match.start + base < place and (
                end > place or (end == place and not text[place - base].isspace())
            ):
                place = match.start + base
        return max(least, place, self.decided)


def settled(read: Beginning, lookback: int) -> int:
    """Return the position before which every match lies within the settled part."""
    if len(read.views) == 1:
        return max(0, min(read.upto - lookback + 1, read.run))
    places = [(each, each.index(read.upto) - lookback + 1) for each in read.views if not each.whole]
    return min(read.run, *(view.begins(place) if place > 0 else 0 for view, place in places))


def _context(views: tuple[View, ...], decided: int, lookback: int) -> int:
    """Return the first position that a match at ``decided`` may depend on."""
    back = lookback + MARGIN
    if len(views) == 1:
        return max(0, decided - back)
    places = [(view, view.index(decided) - back) for view in views if view.whole is None]
    return min(view.begins(place) if place > 0 else 0 for view, place in places)
