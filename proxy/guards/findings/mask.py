"""Finds the matches of a rule in a text and masks them, alike for whole texts and streams."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from proxy.guards.findings.tally import RuleTally
from proxy.guards.text.normalize import View
from proxy.runtime.frozen import frozen
from proxy.types.guard import GuardRule


@frozen
class TextMatch:
    """A finding of the rule with the index ``rule``, in characters of the original text."""

    start: int
    end: int
    rule: int
    kind: str
    score: float = 1.0

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key: earlier, then longer matches first, then in the order of the rules."""
        return self.start, -self.end, self.rule


Replace = Callable[[GuardRule, str, str], str]
"""Returns the replacement of a text, by the rule, the kind of the finding and the text."""


def named(rule: GuardRule, kind: str, text: str) -> str:
    """Replace a text by the name of its kind."""
    return f"[{kind.upper()}]"


def within_json(replace: Replace) -> Replace:
    """Return a replacement for escaped texts in a JSON string."""

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
    """Return the matches of a rule in all readings of a text, from ``since`` in the original on.

    Equal matches, and matches inside of another one, count once.
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
    result: list[TextMatch] = []
    for match in sorted(found, key=lambda match: (*match.order, match.kind)):
        if not result or match.end > result[-1].end:
            result.append(match)
    return result


def masked(
    text: str, matches: Sequence[TextMatch], rules: Sequence[GuardRule], replace: Replace
) -> str:
    """Replace matches, which must be in order.

    If matches overlap, the later one begins at the end of the earlier one. So a reversible
    replacement loses nothing, and a stream can be masked before its end.
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
