"""Inspection of a streamed text word by word.

Most streamed text is plain words, and only the last one may still become part of a finding. To
decide that, only the end of the held text is read, so each word is released as it arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from proxy.guards.findings import CONTEXT_MARGIN, RuleCursor
from proxy.guards.matching.pattern_syntax import (
    SPACE_CHARACTERS,
    UNSPACED_LETTER,
    rfind_unspaced_script_letter,
)
from proxy.guards.text.base64_text import MAX_RUN_CHARS
from proxy.guards.text.disguises import find_trailing_markup, has_no_disguise
from proxy.guards.text.normalize import PartialReadings, View, build_partial_readings
from proxy.types.partial_matcher import PartialMatcher

STEP_CHARS = 24  # characters that are inspected together, about three words
UNSPACED_STEP_CHARS = 6  # the same for scripts without spaces
MIN_LOOKBACK = 8  # characters; a shorter lookback fits in a word, and is held completely


class WordScanner:
    """Cursors of rules with a partial matcher, moved word by word."""

    def __init__(self, cursors: Sequence[RuleCursor], *, in_json: bool) -> None:
        self._rules = [(each, each.partial_matcher) for each in cursors if each.partial_matcher]
        self._in_json = in_json

    def get_step_size(self, text: str) -> int:
        """Return the number of characters to inspect in one step."""
        is_spaced = text.isascii() or not UNSPACED_LETTER.search(text)
        return STEP_CHARS if is_spaced else UNSPACED_STEP_CHARS

    def get_final_position(self) -> float:
        """Return the position before which every finding of the rules is final."""
        working = (cursor.final_end for cursor, _ in self._rules if cursor.tally.error is None)
        return min(working, default=inf)

    def advance_and_list_unclear(
        self, text: str, start_at: int, end: int, base: int
    ) -> list[RuleCursor]:
        """Advance the cursors and return those whose rules must inspect the text.

        A cursor moves to ``end``, the end of the last complete word, or to the start of a
        partial match. ``text`` begins at ``base``.
        """
        start = max(0, start_at - CONTEXT_MARGIN)
        tail = text[start : end + 1]
        plain = text[end + 1].isascii() and tail.isascii() and has_no_disguise(tail.encode())
        if not plain or find_trailing_markup(tail) < len(tail):
            return self._advance_in_readings(text, start_at, start, base)
        if tail[-2:-1].isalpha() and not tail[-3:-2].isalpha():
            return []  # a single letter, which may start a longer word
        raw, end = tail.encode(), end - start
        unclear = []
        for cursor, matcher in self._rules:
            cursor_at = cursor.final_end - base
            if cursor_at >= start + end or cursor.tally.error is not None:
                continue
            cursor_at = (cursor_at if cursor_at > start_at else start_at) - start  # for each word
            edge = cursor_at - 1 if cursor_at > 1 else 0
            end_of_text = raw[edge:] if edge else raw
            if not (cursor.has_open_match or matcher.ends_in_partial_match(end_of_text)):
                cursor.final_end = base + start + end
            elif not _try_move_to_partial_match(
                cursor, matcher, tail[edge:], cursor_at - edge, base + start + edge
            ):
                unclear.append(cursor)
        return unclear

    def _advance_in_readings(
        self, text: str, start_at: int, start: int, base: int
    ) -> list[RuleCursor]:
        """Advance the cursors in all readings of a text.

        Return those whose rules must inspect it.
        """
        tail = text[start:]
        read = build_partial_readings(
            tail, text[start - 1 : start], in_json=self._in_json, max_run=MAX_RUN_CHARS
        )
        max_end = min(read.settled_end, read.open_run_start)
        end = find_last_word_end(tail, start_at - start, max_end)
        if end <= start_at - start:
            return []
        if any(view.encoded_span is not None for view in read.views):
            return [cursor for cursor, _ in self._rules if cursor.tally.error is None]
        unclear = []
        for cursor, matcher in self._rules:
            cursor_at = max(start_at, cursor.final_end - base) - start
            if cursor.tally.error is not None or cursor_at >= end:
                continue
            readings = [_get_span_reading(view, cursor, cursor_at, end) for view in read.views]
            are_ended = all(is_word_end(reading[-1:]) for reading in readings)
            may_begin = not are_ended or any(map(matcher.may_end_in_partial_match, readings))
            if not (cursor.has_open_match or may_begin):
                cursor.final_end = base + start + end
                continue
            place = find_undecided_position(read, cursor, matcher, cursor_at)
            if place <= cursor_at:
                continue
            if cursor.has_open_match or any(map(matcher.may_contain_match, readings)):
                unclear.append(cursor)
            else:
                cursor.final_end = base + start + place
        return unclear


def make_word_scanner(cursors: Sequence[RuleCursor], *, in_json: bool) -> WordScanner | None:
    """Return a scanner, None if the rules allow none.

    Each enforcing rule needs a partial matcher, and the longest lookback exceeds ``MIN_LOOKBACK``.
    """
    holding = [cursor for cursor in cursors if cursor.may_withhold]
    longest = max((cursor.lookback or 0 for cursor in holding), default=0)
    if longest <= MIN_LOOKBACK or any(cursor.partial_matcher is None for cursor in holding):
        return None
    return WordScanner(holding, in_json=in_json)


def _try_move_to_partial_match(
    cursor: RuleCursor, matcher: PartialMatcher, text: str, start_at: int, base: int
) -> bool:
    """Move a cursor to the partial match in an ASCII text, which begins at ``base``.

    Returns False, and does not move, if there may be a match before the partial match.
    """
    place = min(matcher.find_partial_match(text, start_at), len(text) - 1)
    if place <= start_at:
        return True
    if cursor.has_open_match or matcher.may_contain_match(text):
        return False
    cursor.final_end = base + place
    return True


def _get_span_reading(view: View, cursor: RuleCursor, start_at: int, end: int) -> str:
    """Return the reading of a span of the original, and one character on either side."""
    start = max(0, view.index_of_original(start_at) - 1)
    return _select_cased_or_folded(view, cursor)[start : view.index_of_original(end + 1)]


def is_word_end(character: str) -> bool:
    """Return True for white space and for a letter of a script without spaces."""
    return character in SPACE_CHARACTERS or UNSPACED_LETTER.match(character) is not None


def find_last_word_end(text: str, start_at: int, end: int) -> int:
    """Return the position of the last word end between ``start_at`` and ``end``, or -1."""
    space, line = text.rfind(" ", start_at, end), text.rfind("\n", start_at, end)
    position = space if space > line else line  # for each word
    if text.isascii():
        return position
    return max(position, rfind_unspaced_script_letter(text, max(start_at, position), end))


def find_undecided_position(
    read: PartialReadings, cursor: RuleCursor, matcher: PartialMatcher, start_at: int
) -> int:
    """Return the first position that may still become part of a finding.

    That is the start of a partial match, otherwise the end of the last settled white space, and
    never before ``start_at``.
    """
    places = [read.open_run_start]
    for view in read.views:
        if view.encoded_span is not None:
            continue
        reading = _select_cased_or_folded(view, cursor)
        view_start = view.index_of_original(start_at)
        end = find_last_word_end(reading, view_start, view.index_of_original(read.settled_end))
        if end <= view_start:
            return start_at
        start = max(0, view_start - CONTEXT_MARGIN)
        place = start + matcher.find_partial_match(reading[start : end + 1], view_start - start)
        places.append(view.original_start(min(place, end)))
    return max(start_at, min(places))


def _select_cased_or_folded(view: View, cursor: RuleCursor) -> str:
    return view.cased if cursor.tally.rule.cased else view.folded
