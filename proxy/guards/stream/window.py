"""Filter of one text of a stream, which holds the end that may still be part of a finding.

However a text is cut, the filter releases, masks or blocks the same of it. If each rule that
enforces has a partial matcher, the filter inspects word by word and holds what may become a
finding. Otherwise it holds the largest lookback of those rules and inspects several pieces
together, so that the time to read a text does not depend on the number of its pieces.
"""

from __future__ import annotations

import time
from bisect import insort
from collections.abc import Sequence
from dataclasses import replace as copied
from itertools import takewhile
from operator import attrgetter

from proxy.guards.findings import (
    Clock,
    Replace,
    RuleCursor,
    RuleTally,
    TextMatch,
    named,
    settled,
    within_json,
)
from proxy.guards.stream.text_filter import ReleasedPiece
from proxy.guards.stream.words import (
    WORDS,
    ShortTexts,
    Words,
    find_held,
    glance,
    is_torn,
    last_end,
    open_from,
    words_for,
)
from proxy.guards.text.base64_text import MOST_RUN
from proxy.guards.text.documents import BEYOND_ASCII, LIGHT, SHEET, cut, weight_of_work
from proxy.guards.text.normalize import View, beginning
from proxy.types.guard import is_weighted

MOST_WHOLE = 8 * 1024 * 1024  # characters that are held for a rule that needs the whole text
PACE = 8  # how often a letter may be read that has to be read by itself
HELD_SHARE = 32  # of what is held anyway, so much more may come before the next look
MOST_LOOKS = 4  # at the longest text that is kept, which may follow each other at once
LEAST_UNREAD = 1024  # characters after which all that is kept is looked at once more, and cut
SEAM = "\u200b"  # read between two blocks: a word ends at it, or goes on where marks are left out
LETTERS_A_SECOND = 20_000  # how much more must have come after a look that took so long
_order = attrgetter("order")


class Window:
    """Feed it a text; it gives the pieces that may be shown. Raises ``GuardBlocked``.

    ``tallies`` are those of the rules that apply, and may be shared by the windows of one answer.
    ``escaped`` says that the text stands inside of a JSON string, and must stay so.
    """

    __slots__ = (
        "_base", "_before", "_begun", "_beside", "_credit", "_cursors", "_done", "_escaped",
        "_fresh", "_last", "_least", "_limit", "_longest", "_most_credit", "_most_unread", "_near",
        "_parts", "_pause", "_pending", "_plain", "_replace", "_seen", "_short", "_shown", "_since",
        "_spent", "_tallies", "_text", "_took", "_unread", "_whole", "_words",
    )  # fmt: skip

    def __init__(
        self,
        tallies: Sequence[RuleTally],
        *,
        escaped: bool = False,
        replace: Replace = named,
        spent: Clock = time.thread_time,
    ) -> None:
        self._tallies = tallies
        self._escaped = escaped
        self._replace = within_json(replace) if escaped else replace
        self._cursors = [
            RuleCursor(tally, rule, tally.detector.lookback) for rule, tally in enumerate(tallies)
        ]
        holding = [cursor.lookback for cursor in self._cursors if cursor.holds]
        self._whole = None in holding
        in_turn = sorted(self._cursors, key=lambda cursor: cursor.lookback is None)
        self._short = ShortTexts(self._cursors if self._whole else in_turn, escaped=escaped)
        finite = [cursor.lookback for cursor in self._cursors if cursor.lookback is not None]
        lookbacks_held = [lookback for lookback in holding if lookback is not None]
        self._words = words_for(self._cursors, escaped=escaped)
        self._near = 0 if self._words else max(0, min(finite, default=0) - 1)
        self._longest = max(finite, default=0)
        self._least = (
            max(lookbacks_held, default=0) // HELD_SHARE if holding else self._longest // 4
        )
        self._limit = 4 * self._longest + 2 * MOST_RUN
        self._most_unread = max(self._longest, LEAST_UNREAD)
        self._credit = self._most_credit = MOST_LOOKS * self._limit
        judging = [cursor.tally.detector for cursor in self._cursors if cursor.lookback is None]
        self._beside = sum(each.weight for each in judging if is_weighted(each))
        self._parts: list[str] | None = [] if judging else None
        self._text = ""  # from ``_base`` on, all in characters since the beginning
        self._before = ""
        self._base = self._begun = self._done = self._shown = self._seen = 0
        self._unread, self._pause = 0, 0 if self._words else self._least
        self._spent = spent
        self._last = 0  # the weight of the last look
        self._took, self._since = 0.0, WORDS
        self._fresh = self._plain = True
        self._pending: list[TextMatch] = []

    @property
    def lookback(self) -> int:
        """The largest lookback of the rules that hold something back, 0 where none does."""
        return max((cursor.lookback or 0 for cursor in self._cursors if cursor.holds), default=0)

    @property
    def held(self) -> int:
        """Characters that have come and are neither released nor masked away."""
        return max(0, self._seen - max(self._done, self._shown))

    def weight(self, text: str) -> int:
        """Return how much there is to read when these characters come."""
        if self._words is not None:
            size = len(text) + (self._unread // 4 if self._unread > self._most_unread else 0)
            return self._last + (size if self._plain and text.isascii() else BEYOND_ASCII * size)
        unread = self._unread + len(text)
        if self._whole or (unread <= self._pause and len(self._text) + len(text) <= self._limit):
            return 0
        return self._last + (unread if self._plain and text.isascii() else BEYOND_ASCII * unread)

    def weight_of_end(self) -> int:
        """Return how much there is to read when the text ends."""
        if self._seen == self._begun:
            return 0
        unread = self._unread if self._parts is None else self._seen - self._begun
        return self._last + self._beside + (unread if self._plain else BEYOND_ASCII * unread)

    def feed(self, text: str) -> list[ReleasedPiece]:
        """Take the next characters, return the pieces that they release. However many there are,
        no more than a sheet of them is read at once."""
        size = len(text)
        if size > SHEET:
            return [released for piece in cut(text) for released in self.feed(piece)]
        if not text:
            return []
        self._note(text, size)
        if self._whole:
            return []
        self._text += text
        self._unread += size
        self._since += size
        if self._words is not None:
            is_due = self._since >= self._words.together(text)
            return self._word_by_word(self._words) if is_due else []
        if self._unread > self._pause or len(self._text) > self._limit:
            if any(cursor.looks for cursor in self._cursors):
                self._look(self._cursors)
            else:
                self._last = self._unread = 0
        elif self._is_held():
            return []
        return self._released_or_given_up()

    def _word_by_word(self, words: Words) -> list[ReleasedPiece]:
        """Release what is before the last word, where nothing is found or under way there. Where
        something may be, the rules that know of it look, as often as new characters allow."""
        text, base, pending_start = self._text, self._base, self._done - self._base
        pending_size = len(text) - pending_start
        end = last_end(text, pending_start, len(text) - 1)
        moved = False
        if end > pending_start and self._credit + HELD_SHARE * self._since >= pending_size:
            self._credit += HELD_SHARE * self._since - pending_size
            self._pause -= self._since
            self._since = 0
            unclear = words.advance(text, pending_start, end, base)
            moved = True
            self._credit = min(self._credit, self._most_credit)
            if not unclear:
                self._last //= 2
            elif self._pause <= 0:
                start = min(cursor.since for cursor in unclear) - base
                if self._credit >= len(text) - start:
                    self._look(unclear, max(0, start))
        if self._unread > self._most_unread or (
            pending_size > self._longest and self._unread > max(self._least, self._pause)
        ):
            self._look(self._cursors)
            moved = True
        return self._released_or_given_up() if moved else []

    def _released_or_given_up(self) -> list[ReleasedPiece]:
        pieces = self._release()
        if len(self._text) > self._limit:  # so much that shows nothing, or reads as nothing yet
            for cursor in [cursor for cursor in self._cursors if cursor.looks]:
                cursor.tally.fail("too_long_to_hold")
            pieces += self._release()
        return pieces

    def take(self, text: str) -> list[ReleasedPiece]:
        """Take a text that is whole, return all of it: what ``feed`` and ``flush`` would give. What
        is short and comes between two texts is read once, and leaves no trace."""
        if len(text) > MOST_RUN or self._seen != self._begun:
            return [*self.feed(text), *self.flush()]
        if not text:
            return []
        size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
        for tally in self._tallies:
            tally.fields += 1
            tally.bytes += size
        matches = self._short.find(text)
        if matches:
            return self._masked(text, matches)
        return [ReleasedPiece(text, len(text), changed=False)]

    def _masked(self, text: str, matches: list[TextMatch]) -> list[ReleasedPiece]:
        """Return a short text that is whole, masked."""
        pieces: list[ReleasedPiece] = []
        self._text, base = text, self._base
        for match in sorted(matches, key=_order):
            self._mask(copied(match, start=match.start + base, end=match.end + base), pieces)
        self._show(base + len(text), pieces)
        self._text, self._shown = "", base
        return pieces

    def _is_held(self) -> bool:
        """True if a rule holds back what it has not looked at, as it had before."""
        released_end = self._done
        for cursor in self._cursors:
            tally = cursor.tally
            if cursor.decided <= released_end and tally.error is None and tally.rule.enforces:
                return True
        return False

    def _note(self, text: str, length: int) -> None:
        """Count a text, and keep it for the rules that need the whole."""
        size = length
        if not text.isascii():
            size = len(text.encode("utf-8", "surrogatepass"))
            self._plain = False
        for tally in self._tallies:
            tally.fields += self._fresh
            tally.bytes += size
        self._fresh = False
        self._seen += length
        if self._parts is not None:
            self._parts.append(text)
            if self._seen - self._begun > MOST_WHOLE:
                self._forgo(self._parts)

    def let_go(self) -> list[ReleasedPiece]:
        """Return all that is held, as something else is to be shown behind it. What is found across
        is masked from there on, or blocks: a rule that needs the whole text reads two texts."""
        if self._whole:
            return self.flush()
        pieces: list[ReleasedPiece] = []
        if self.held:
            preceding, text = self._before, self._text
            matches = find_held(self._cursors, text, preceding, self._base, escaped=self._escaped)
            for match in sorted([*self._pending, *matches], key=_order):
                if self._tallies[match.rule].rule.can_block:
                    self._mask(match, pieces)
                self._put(match, pieces)  # it counts once nothing can change it
            self._show(self._base + len(text), pieces)
        if (self._text or self._before)[-1:] not in ("", SEAM):  # it is never shown
            self._text += SEAM
            self._seen += 1
            self._shown = self._seen
        return pieces

    def flush(self) -> list[ReleasedPiece]:
        """End the text, return all that is left of it. What is fed next is another text."""
        whole_text = "".join(self._parts or ())
        if self._whole:
            self._text = whole_text
        if self._text:
            self._look(self._cursors, final=True)
        if whole_text and not self._whole:
            glance(self._cursors, whole_text, escaped=self._escaped)
        pieces = self._release()
        self._text = self._before = ""
        self._base = self._begun = self._done = self._shown = self._seen
        self._last, self._unread, self._since = 0, 0, WORDS
        self._fresh = self._plain = True
        if self._parts is not None:
            self._parts = []
        for cursor in self._cursors:
            cursor.begin_anew(self._seen)
        return pieces

    def _forgo(self, parts: list[str]) -> None:
        """The text is too long for the rules that need the whole of it."""
        self._parts = None
        for cursor in self._cursors:
            if cursor.lookback is None:
                cursor.tally.fail("too_long")
        if self._whole:
            self._whole = False
            self._text = "".join(parts[:-1])

    def _look(self, cursors: Sequence[RuleCursor], start: int = 0, *, final: bool = False) -> None:
        """Look at all that is held, and let the more come before the next look the longer it took:
        a text that is made of beginnings is read again and again, but not at each of its pieces."""
        clock = self._tallies[0].clock
        # The clock takes less time itself, but tells how busy the machine is, too.
        cpu_clock = self._spent if self._words or self._last > LIGHT else clock
        started_at, cpu_before = clock(), cpu_clock()
        effort = self._read(cursors, start, final=final)
        cpu_s = clock() - started_at if cpu_clock is clock else cpu_clock() - cpu_before
        self._last = weight_of_work(cpu_s)
        if self._words:  # what is read for the first time may have to be made ready
            cpu_s, self._took = min(cpu_s, self._took), cpu_s
        min_pause = 0 if self._words else self._least
        self._credit -= len(self._text) - start
        self._pause = max(
            min_pause, effort // PACE, min(int(cpu_s * LETTERS_A_SECOND), self._longest // 4)
        )
        if not start:
            self._unread = 0

    def _read(self, cursors: Sequence[RuleCursor], start: int, *, final: bool) -> int:
        """Return how many letters had to be read one by one, at most twice the longest lookback."""
        text, escaped, base = self._text, self._escaped, self._base + start
        preceding = text[start - 1] if start else self._before
        text = text[start:] if start else text
        torn = is_torn(preceding, text)
        max_run = None if self._whole else MOST_RUN
        read = beginning(
            text, escaped=escaped, torn=torn, max_run=max_run, min_run=self._near, ends=final
        )
        for cursor in cursors:
            if cursor.lookback is None and not self._whole:
                continue
            decided = len(text) if final else settled(read, cursor.lookback or 0)
            floor = None
            if not final and self._words and cursor.hold is not None:
                floor, decided_before = decided, max(0, cursor.decided - base)
                decided = max(decided, open_from(read, cursor, cursor.hold, decided_before))
            # What was moved word by word has to see how far back it must keep the text.
            if base + decided > cursor.decided or floor is not None:
                self._scan(cursor, read.views, base, decided, floor)
        return min(read.effort, 2 * self._longest)

    def _scan(
        self,
        cursor: RuleCursor,
        views: tuple[View, ...],
        base: int,
        decided: int,
        floor: int | None,
    ) -> None:
        for match in cursor.see(views, base, base + decided, floor=floor):
            if cursor.tally.rule.enforces:
                insort(self._pending, match, key=_order)
            else:
                cursor.tally.count(match.kind, match.score)

    def _release(self) -> list[ReleasedPiece]:
        released_end = text_start = self._base + len(self._text)
        for cursor in self._cursors:
            if cursor.tally.error is None:
                if cursor.tally.rule.enforces and cursor.decided < released_end:
                    released_end = cursor.decided
                if cursor.lookback is not None and cursor.since < text_start:
                    text_start = cursor.since
        self._done = released_end
        pieces: list[ReleasedPiece] = []
        if self._pending:
            ready = [*takewhile(lambda match: match.start < released_end, self._pending)]
            del self._pending[: len(ready)]
            for match in ready:
                self._mask(match, pieces)
        self._show(released_end, pieces)
        cut = min(text_start, released_end) - self._base
        if cut > 0:
            self._before = self._text[cut - 1]
            self._text = self._text[cut:]
            self._base += cut
        return pieces

    def _mask(self, match: TextMatch, pieces: list[ReleasedPiece]) -> None:
        tally = self._tallies[match.rule]
        tally.count(match.kind, match.score)
        if tally.rule.can_block:
            raise tally.block(match.kind)
        self._put(match, pieces)

    def _put(self, match: TextMatch, pieces: list[ReleasedPiece]) -> None:
        """Add the replacement of what is not shown of a match, and what is before it."""
        if match.end <= self._shown:
            return
        tally = self._tallies[match.rule]
        self._show(match.start, pieces)
        covered = self._text[self._shown - self._base : match.end - self._base]
        replacement = self._replace(tally.rule, match.kind, covered)
        pieces.append(ReleasedPiece(replacement, len(covered), changed=True))
        self._shown = match.end

    def _show(self, upto: int, pieces: list[ReleasedPiece]) -> None:
        if upto > self._shown:
            text = self._text[self._shown - self._base : upto - self._base]
            pieces.append(ReleasedPiece(text, len(text), changed=False))
            self._shown = upto
