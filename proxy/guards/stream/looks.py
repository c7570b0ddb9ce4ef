"""Looks at all that there is of a text: of one that came whole, or were this the end of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from proxy.guards.findings.mask import TextMatch, find_matches
from proxy.guards.findings.rule_cursor import RuleCursor
from proxy.guards.stream.words import is_torn
from proxy.guards.text.base64_text import MOST_RUN
from proxy.guards.text.normalize import View, beginning, variants
from proxy.guards.text.text_walker import SHEET

MOST_KNOWN = 256  # short texts in which nothing was found, and which are not looked at again
MOST_KNOWN_SIZE = 32  # characters of one of them


class ShortTexts:
    """Short texts that are whole, one after the other: one in which nothing was found is not looked
    at again. ``cursors`` are the rules, in the turn in which they look."""

    __slots__ = ("_clean", "_cursors", "_escaped")

    def __init__(self, cursors: Sequence[RuleCursor], *, escaped: bool) -> None:
        self._clean: set[str] = set()
        self._cursors = cursors
        self._escaped = escaped

    def find(self, text: str) -> list[TextMatch]:
        """Return what is to be masked of a text; what is only counted is."""
        if text in self._clean:
            return []
        found = self._found(text)
        if not found and len(text) <= MOST_KNOWN_SIZE and len(self._clean) < MOST_KNOWN:
            self._clean.add(text)
        for cursor, match in found:
            if not cursor.tally.rule.enforces:
                cursor.tally.count(match.kind, match.score)
        return [match for cursor, match in found if cursor.tally.rule.enforces]

    def _found(self, text: str) -> list[tuple[RuleCursor, TextMatch]]:
        views = variants(text, escaped=self._escaped)
        return [
            (cursor, match)
            for cursor in self._cursors
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
        if cursor.lookback is None:
            for match in find_matches(cursor.tally, cursor.rule, views):
                cursor.tally.count(match.kind, match.score)
