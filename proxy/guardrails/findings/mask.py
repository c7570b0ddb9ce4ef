"""Findings as places of the original text, and how they are replaced.

A stream and a whole text are masked by the same rule, so that both read the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from proxy.frozen import frozen
from proxy.guardrails.findings.tally import RuleTally
from proxy.guardrails.text.normalize import View
from proxy.types.guard import GuardRule


@frozen
class TextMatch:
    """A finding of the rule at ``rule``, in characters of the original text."""

    start: int
    end: int
    rule: int
    kind: str
    score: float = 1.0

    @property
    def order(self) -> tuple[int, int, int]:
        """Earlier before later, longer before shorter, then as the policy has the rules."""
        return self.start, -self.end, self.rule


Replace = Callable[[GuardRule, str, str], str]
"""Returns the replacement of a text, by the rule, the kind of the finding and the text."""


def named(rule: GuardRule, kind: str, text: str) -> str:
    """Replace by the name of what was found."""
    return f"[{kind.upper()}]"


def within_json(replace: Replace) -> Replace:
    """Return a replacement for texts that stand escaped inside of a JSON string."""

    def replaced(rule: GuardRule, kind: str, text: str) -> str:
        try:
            plain = json.loads(f'"{text}"', strict=False)
        except ValueError:
            plain = text
        return json.dumps(replace(rule, kind, plain), ensure_ascii=False)[1:-1]

    return replaced


def find_matches(
    tally: RuleTally, rule: int, views: Sequence[View], since: int = 0, left_s: float | None = None
) -> list[TextMatch]:
    """Return what a rule finds in all readings of a text, from ``since`` in the original on.

    What readings find alike, or one finds inside of what another does, is found once.
    """
    found: set[TextMatch] = set()
    for view in views:
        if view.written or (since and view.whole is not None and view.whole[0] < since):
            continue
        cut = view.index(since) if since else 0
        for each in tally.find(view, cut, left_s):
            if each.end > each.start:
                start, end = view.span(cut + each.start, cut + each.end)
                found.add(
                    TextMatch(start=start, end=end, rule=rule, kind=each.kind, score=each.score)
                )
    if not found:
        return []
    kept: list[TextMatch] = []
    for match in sorted(found, key=_order):
        if not kept or match.end > kept[-1].end:
            kept.append(match)
    return kept


def _order(match: TextMatch) -> tuple[int, int, int, str]:
    return (*match.order, match.kind)


def masked(
    text: str, matches: Sequence[TextMatch], rules: Sequence[GuardRule], replace: Replace
) -> str:
    """Put replacements for matches, which come in their order.

    Where matches overlap, the later one counts from where the earlier one ends; so a replacement
    that can be undone loses nothing, and a stream can be masked before its end is known.
    """
    parts: list[str] = []
    past = 0
    for match in matches:
        start = max(match.start, past)
        if match.end <= past:
            continue
        parts += (text[past:start], replace(rules[match.rule], match.kind, text[start : match.end]))
        past = match.end
    parts.append(text[past:])
    return "".join(parts)
