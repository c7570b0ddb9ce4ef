"""Looks at all that there is of a text: of one that came whole, or were this the end of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from proxy.guardrails.findings.mask import TextMatch, find_matches
from proxy.guardrails.findings.rule_cursor import RuleCursor
from proxy.guardrails.stream.words import MOST_RUN, is_torn
from proxy.guardrails.text.normalize import View, beginning, variants
from proxy.guardrails.text.weight import SHEET


def find_whole(
    cursors: Sequence[RuleCursor], text: str, *, escaped: bool
) -> list[tuple[RuleCursor, TextMatch]]:
    """Return what is found in a short text that is whole."""
    views = variants(text, escaped=escaped)
    return [
        (cursor, match)
        for cursor in cursors
        for match in find_matches(cursor.tally, cursor.rule, views)
    ]


def find_held(
    cursors: Sequence[RuleCursor], text: str, before: str, base: int, *, escaped: bool
) -> list[TextMatch]:
    """Return what is found of what is not decided, were this all of the text that begins at
    ``base``, behind a character ``before`` it."""
    torn = is_torn(before, text)
    views = beginning(text, escaped=escaped, torn=torn, most=MOST_RUN, ends=True).views
    return [
        replace(match, start=match.start + base, end=match.end + base)
        for cursor in cursors
        if cursor.holds
        for match in find_matches(cursor.tally, cursor.rule, views, cursor.since - base)
        if match.start + base >= cursor.decided and match.end + base > cursor.until
    ]


def glance(cursors: Sequence[RuleCursor], whole: str, *, escaped: bool) -> None:
    """Let the rules look that need the whole text and hold nothing back for it. Of a long one
    they see the text itself, no other reading, as where it does not come in pieces."""
    views = (View(whole),) if len(whole) > SHEET else variants(whole, escaped=escaped)
    for cursor in cursors:
        if cursor.reach is None:
            for match in find_matches(cursor.tally, cursor.rule, views):
                cursor.tally.count(match.kind, match.score)
