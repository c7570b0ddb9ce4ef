"""Filters one text of a stream, and holds the end that may still be part of a finding.

The result does not depend on how the text is cut into pieces. If each rule that enforces has a
partial matcher, the filter inspects word by word and holds what may become a finding. Otherwise it
holds the largest lookback of those rules, and inspects several pieces together. The time to read a
text therefore does not depend on the number of its pieces.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from operator import attrgetter

from proxy.guards import findings
from proxy.guards.findings import Replace, RuleCursor, RuleTally, TextMatch
from proxy.guards.stream import word_scanner
from proxy.guards.stream.text_filter import ReleasedText
from proxy.guards.stream.word_scanner import STEP_CHARS, WordScanner
from proxy.guards.text import documents, normalize
from proxy.guards.text.base64_text import MAX_RUN_CHARS
from proxy.guards.text.documents import NON_ASCII_WEIGHT
from proxy.guards.text.normalize import View
from proxy.types.guard import has_context_chars

MAX_WHOLE_CHARS = 8 * 1024 * 1024  # maximum characters kept for a rule that needs the whole text
PAUSE_DIVISOR = 8  # divisor: characters read one by one per new character of the next pause
HELD_DIVISOR = 32  # divisor: held characters per new character before the next inspection
MAX_INSPECTIONS = 4  # inspections of the longest kept text that may follow without a pause
MIN_UNREAD = 1024  # new characters after which the kept text is inspected and trimmed
BLOCK_SEPARATOR = "\u200b"  # a word may end here, or continue in the reading without it
PAUSE_CHARS_PER_S = 20_000  # new characters required per second of the last inspection
_sort_key = attrgetter("sort_key")


class Window:
    """Inspects one text that arrives in pieces. Raises ``GuardBlocked``.

    ``tallies`` are the rules that apply; windows of one response may share them. A text
    ``in_json`` is inside of a JSON string. Positions count characters since the first text.
    """

    def __init__(
        self,
        tallies: Sequence[RuleTally],
        *,
        in_json: bool = False,
        replace: Replace = findings.replace_by_kind,
    ) -> None:
        self._tallies, self._in_json = tallies, in_json
        self._replace = findings.make_json_string_replace(replace) if in_json else replace
        self._cursors = [
            RuleCursor(tally, rule, tally.detector.lookback) for rule, tally in enumerate(tallies)
        ]
        holding = [cursor.lookback for cursor in self._cursors if cursor.may_withhold]
        self._needs_whole = None in holding
        finite = [cursor.lookback for cursor in self._cursors if cursor.lookback is not None]
        self.lookback = max((lookback for lookback in holding if lookback is not None), default=0)
        self._words = word_scanner.make_word_scanner(self._cursors, in_json=in_json)
        self._min_run = 0 if self._words else max(0, min(finite, default=0) - 1)
        self._max_lookback = max(finite, default=0)
        self._min_pause = self.lookback // HELD_DIVISOR if holding else self._max_lookback // 4
        self._limit = 4 * self._max_lookback + 2 * MAX_RUN_CHARS
        self._max_unread = max(self._max_lookback, MIN_UNREAD)
        self._credit = self._max_credit = MAX_INSPECTIONS * self._limit
        judging = [cursor.tally.detector for cursor in self._cursors if cursor.lookback is None]
        self._context_size = sum(
            detector.context_chars for detector in judging if has_context_chars(detector)
        )
        self._parts: list[str] | None = [] if judging else None
        self._text = ""  # text from ``_text_start`` on
        self._preceding = ""
        self._text_start = self._begin = self._final_end = self._released = self._length = 0
        self._unread, self._pause = 0, 0 if self._words else self._min_pause
        self._last_weight = 0  # of the last inspection, in ASCII characters
        self._last_cpu_s, self._new_size = 0.0, STEP_CHARS
        self._is_ascii = True
        self._pending: list[TextMatch] = []

    @property
    def held_size(self) -> int:
        return max(0, self._length - max(self._final_end, self._released))

    def estimate_feed_work(self, text: str) -> int:
        unread = self._unread + len(text)
        if self._words is not None:
            size = len(text) + (self._unread // 4 if self._unread > self._max_unread else 0)
        elif self._needs_whole or (
            unread <= self._pause and len(self._text) + len(text) <= self._limit
        ):
            return 0
        else:
            size = unread
        is_ascii = self._is_ascii and text.isascii()
        return self._last_weight + (size if is_ascii else NON_ASCII_WEIGHT * size)

    def estimate_close_work(self) -> int:
        if self._length == self._begin:
            return 0
        unread = self._unread if self._parts is None else self._length - self._begin
        unread_weight = unread if self._is_ascii else NON_ASCII_WEIGHT * unread
        return self._last_weight + self._context_size + unread_weight

    def feed(self, text: str) -> list[ReleasedText]:
        size = len(text)
        if size > documents.BATCH_CHARS:
            parts = documents.split_by_char_count(text)
            return [released for part in parts for released in self.feed(part)]
        if not text:
            return []
        byte_size = size
        if not text.isascii():
            byte_size = len(text.encode("utf-8", "surrogatepass"))
            self._is_ascii = False
        is_new = self._length == self._begin
        for tally in self._tallies:
            tally.fields += is_new
            tally.bytes += byte_size
        self._length += size
        if self._parts is not None:
            self._keep_whole_text(text, self._parts)
            if self._needs_whole:
                return []
        self._text += text
        self._unread += size
        self._new_size += size
        if self._words is not None:
            is_due = self._new_size >= STEP_CHARS or (
                not self._is_ascii and self._new_size >= self._words.get_step_size(text)
            )
            return self._inspect_by_words(self._words) if is_due else []
        return self._inspect_pieces_together()

    def _inspect_pieces_together(self) -> list[ReleasedText]:
        """Inspect several pieces together, and release the text before the longest lookback."""
        if self._unread > self._pause or len(self._text) > self._limit:
            if any(cursor.is_incremental for cursor in self._cursors):
                self._inspect(self._cursors)
            else:
                self._last_weight = self._unread = 0
        return self._release_or_fail_over_limit()

    def _inspect_by_words(self, words: WordScanner) -> list[ReleasedText]:
        """Release the text before the last word if nothing may begin there.

        Otherwise the rules that may have a finding inspect it, as often as new characters
        allow.
        """
        text, base = self._text, self._text_start
        pending_start = self._final_end - base
        pending_size = len(text) - pending_start
        end = word_scanner.find_last_word_end(text, pending_start, len(text) - 1)
        moved = False
        if end > pending_start and self._credit + HELD_DIVISOR * self._new_size >= pending_size:
            self._credit += HELD_DIVISOR * self._new_size - pending_size
            self._pause -= self._new_size
            self._new_size = 0
            unclear = words.advance_and_list_unclear(text, pending_start, end, base)
            moved = True
            self._credit = min(self._credit, self._max_credit)
            if not unclear:
                self._last_weight //= 2
            elif self._pause <= 0:
                start = min(cursor.inspect_from for cursor in unclear) - base
                if self._credit >= len(text) - start:
                    self._inspect(unclear, max(0, start))
        if self._unread > self._max_unread or (
            self._unread > max(self._min_pause, self._pause)
            and base + len(text) - words.get_final_position() > self._max_lookback
        ):
            self._inspect(self._cursors)
            moved = True
        return self._release_or_fail_over_limit() if moved else []

    def _release_or_fail_over_limit(self) -> list[ReleasedText]:
        pieces = self._release()
        if len(self._text) > self._limit:
            for cursor in [cursor for cursor in self._cursors if cursor.is_incremental]:
                cursor.tally.record_failure("too_long_to_hold")
            pieces += self._release()
        return pieces

    def _keep_whole_text(self, text: str, parts: list[str]) -> None:
        """Keep a text for the rules that need the whole text, which fail if it is too long."""
        parts.append(text)
        if self._length - self._begin <= MAX_WHOLE_CHARS:
            return
        self._parts = None
        for cursor in self._cursors:
            if cursor.lookback is None:
                cursor.tally.record_failure("too_long")
        if self._needs_whole:
            self._needs_whole = False
            self._text = "".join(parts[:-1])

    def flush(self) -> list[ReleasedText]:
        """Release everything.

        The rest of a finding that crosses this position is masked, or blocks. A rule that needs the
        whole text inspects the text before and after it separately.
        """
        if self._needs_whole:
            return self.close()
        pieces: list[ReleasedText] = []
        if self.held_size:
            matches = self._find_matches_as_if_ended()
            for match in sorted([*self._pending, *matches], key=_sort_key):
                if self._tallies[match.rule].rule.can_block:
                    self._mask_or_block(match, pieces)
                self._release_masked(match, pieces)  # counted later, when the match is final
            self._release_unchanged_text(self._text_start + len(self._text), pieces)
        last = (self._text or self._preceding)[-1:]
        if last and last != BLOCK_SEPARATOR:  # the client does not get the separator
            self._text += BLOCK_SEPARATOR
            self._length += 1
            self._released = self._length
        return pieces

    def _find_matches_as_if_ended(self) -> list[TextMatch]:
        """Return the matches in the held text that are not final, as if the text ended."""
        base, in_json = self._text_start, self._in_json
        views = normalize.build_partial_readings(
            self._text, self._preceding, in_json=in_json, max_run=MAX_RUN_CHARS, is_final=True
        ).views
        return [
            replace(match, start=match.start + base, end=match.end + base)
            for cursor in self._cursors
            if cursor.may_withhold
            for match in findings.find_matches(
                cursor.tally, cursor.rule, views, cursor.inspect_from - base
            )
            if match.start + base >= cursor.final_end and match.end + base > cursor.last_match_end
        ]

    def _count_whole_text_matches(self, text: str) -> None:
        """Count the matches of rules that need the whole text and do not enforce.

        In a long text, these rules inspect only the first reading, as in whole responses.
        """
        is_long = len(text) > documents.BATCH_CHARS
        views = (View(text),) if is_long else normalize.build_views(text, in_json=self._in_json)
        for cursor in self._cursors:
            if cursor.lookback is None:
                for match in findings.find_matches(cursor.tally, cursor.rule, views):
                    cursor.tally.count_finding(match.kind, match.score)

    def close(self) -> list[ReleasedText]:
        whole_text = "".join(self._parts or ())
        if self._needs_whole:
            self._text = whole_text
        if self._text:
            self._inspect(self._cursors, final=True)
        if whole_text and not self._needs_whole:
            self._count_whole_text_matches(whole_text)
        pieces = self._release()
        self._text = self._preceding = ""
        self._text_start = self._begin = self._final_end = self._released = self._length
        self._last_weight, self._unread, self._new_size = 0, 0, STEP_CHARS
        self._is_ascii = True
        if self._parts is not None:
            self._parts = []
        for cursor in self._cursors:
            cursor.restart_at(self._length)
        return pieces

    def _inspect(
        self, cursors: Sequence[RuleCursor], start: int = 0, *, final: bool = False
    ) -> None:
        """Inspect the held text.

        The next inspection waits for as much text as this one read, so that a text full of partial
        matches is not inspected again for each piece.
        """
        clock = self._tallies[0].clock
        started_at = clock()
        effort = self._collect_matches_counting_slow_chars(cursors, start, final=final)
        cpu_s = clock() - started_at
        self._last_weight = int(cpu_s * documents.WEIGHT_PER_SECOND)
        if self._words:  # the first inspection may compile patterns
            cpu_s, self._last_cpu_s = min(cpu_s, self._last_cpu_s), cpu_s
        self._credit -= len(self._text) - start
        self._pause = max(
            0 if self._words else self._min_pause,
            effort // PAUSE_DIVISOR,
            min(int(cpu_s * PAUSE_CHARS_PER_S), self._max_lookback // 4),
        )
        if not start:
            self._unread = 0

    def _collect_matches_counting_slow_chars(
        self, cursors: Sequence[RuleCursor], start: int, *, final: bool
    ) -> int:
        """Collect new matches. Return how many characters were read one by one, within bounds."""
        text, in_json, base = self._text, self._in_json, self._text_start + start
        preceding = text[start - 1] if start else self._preceding
        text = text[start:] if start else text
        max_run = None if self._needs_whole else MAX_RUN_CHARS
        read = normalize.build_partial_readings(
            text, preceding, in_json=in_json, max_run=max_run, min_run=self._min_run, is_final=final
        )
        for cursor in cursors:
            if cursor.lookback is None and not self._needs_whole:
                continue
            final_end = len(text) if final else findings.find_final_end(read, cursor.lookback or 0)
            floor = None
            if not final and self._words and (matcher := cursor.partial_matcher) is not None:
                floor, final_before = final_end, max(0, cursor.final_end - base)
                undecided = word_scanner.find_undecided_position(
                    read, cursor, matcher, final_before
                )
                final_end = max(final_end, undecided)
            # A cursor that moved word by word updates how far back the text must be kept.
            if base + final_end <= cursor.final_end and floor is None:
                continue
            for match in cursor.find_new_matches(read.views, base, base + final_end, floor=floor):
                if cursor.tally.rule.enforces:
                    insort(self._pending, match, key=_sort_key)
                else:
                    cursor.tally.count_finding(match.kind, match.score)
        return min(read.extra_weight, 2 * self._max_lookback)

    def _release(self) -> list[ReleasedText]:
        released_end = text_start = self._text_start + len(self._text)
        for cursor in self._cursors:
            if cursor.tally.error is None:
                if cursor.tally.rule.enforces and cursor.final_end < released_end:
                    released_end = cursor.final_end
                if cursor.lookback is not None and cursor.inspect_from < text_start:
                    text_start = cursor.inspect_from
        self._final_end = released_end
        pieces: list[ReleasedText] = []
        if self._pending:
            ready = [*takewhile(lambda match: match.start < released_end, self._pending)]
            del self._pending[: len(ready)]
            for match in ready:
                self._mask_or_block(match, pieces)
        self._release_unchanged_text(released_end, pieces)
        cut = min(text_start, released_end) - self._text_start
        if cut > 0:
            self._preceding = self._text[cut - 1]
            self._text = self._text[cut:]
            self._text_start += cut
        return pieces

    def _mask_or_block(self, match: TextMatch, pieces: list[ReleasedText]) -> None:
        tally = self._tallies[match.rule]
        tally.count_finding(match.kind, match.score)
        if tally.rule.can_block:
            raise tally.record_block(match.kind)
        self._release_masked(match, pieces)

    def _release_masked(self, match: TextMatch, pieces: list[ReleasedText]) -> None:
        """Release the text before a match, and the replacement of its part not yet released."""
        if match.end <= self._released:
            return
        tally = self._tallies[match.rule]
        self._release_unchanged_text(match.start, pieces)
        covered = self._text[self._released - self._text_start : match.end - self._text_start]
        replacement = self._replace(tally.rule, match.kind, covered)
        pieces.append(ReleasedText(replacement, len(covered), is_changed=True))
        self._released = match.end

    def _release_unchanged_text(self, end: int, pieces: list[ReleasedText]) -> None:
        if end > self._released:
            text = self._text[self._released - self._text_start : end - self._text_start]
            pieces.append(ReleasedText(text, len(text), is_changed=False))
            self._released = end
