"""Inspects whole texts in batches: at once, or in threads, where rules inspect a batch in parallel.

A rule with a lookback inspects a long text piece by piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import NamedTuple

from proxy.errors import GuardBlocked
from proxy.guards import findings
from proxy.guards.guard_threads import GuardThreads
from proxy.guards.text import normalize
from proxy.guards.text.base64_text import MAX_RUN_CHARS, find_base64_runs
from proxy.guards.text.documents import BATCH_CHARS, TEXT_WEIGHT
from proxy.guards.text.normalize import PartialReadings, View
from proxy.guards.text.walk import Text
from proxy.guards.whole.joined_parts import JoinedParts, MergedMatchSpans, iter_joined_texts
from proxy.types.guard import GuardRule, is_detector


class TextViews(NamedTuple):
    """Readings of a text, of joined texts, or of base64 that is too long for a piece of its text.

    Rules with a lookback inspect a text that ``is_long`` in pieces. ``bytes`` is None unless this
    is a text itself: only then it is counted, and judged as a whole.
    """

    text_index: int
    text: Text
    views: tuple[View, ...]
    bytes: int | None = None
    joined: JoinedParts | None = None
    is_long: bool = False


class LongTextPiece(NamedTuple):
    """A piece of a long text, from ``base`` on, with the cursor of each rule.

    Only the last piece has the ``bytes`` of the text.
    """

    text_index: int
    partial_readings: PartialReadings
    base: int
    cursors: dict[int, findings.RuleCursor]
    bytes: int | None


TextBatch = Sequence[TextViews] | LongTextPiece


@dataclass(slots=True)
class RuleInspection:
    """Inspects the texts of a call with one rule, and collects matches by text index."""

    tally: findings.RuleTally
    number: int
    matches: list[tuple[int, findings.TextMatch]] = field(default_factory=list)
    failure: GuardBlocked | None = None
    _by_text: dict[int, list[findings.TextMatch]] = field(default_factory=dict)
    _known_spans: MergedMatchSpans = field(default_factory=lambda: MergedMatchSpans(()))

    @property
    def has_failed(self) -> bool:
        return self.tally.error is not None

    def inspect(self, batch: TextBatch, read_s: float = 0.0) -> None:
        """Inspect a batch within the remaining time of the rule.

        Reading the batch for all rules took ``read_s`` seconds.
        """
        self.tally.cpu_s += read_s
        if self._remaining_s < 0:
            self.record_failure(findings.DEADLINE)
            return
        try:
            if isinstance(batch, LongTextPiece):
                self._inspect_piece(batch)
            else:
                for part in batch:
                    if not self.has_failed and self._must_inspect(part):
                        self._inspect_views(part)
        except GuardBlocked as blocked:
            self.failure = blocked

    def record_failure(self, error_code: str) -> None:
        """Record a failure of the rule, and the block that it may cause."""
        try:
            self.tally.record_failure(error_code)
        except GuardBlocked as blocked:
            self.failure = blocked

    def _must_inspect(self, part: TextViews) -> bool:
        rule, text = self.tally.rule, part.text
        if not rule.applies_to(text.role, text.kind):
            return False
        if finds_spans(rule):
            return not part.is_long
        is_judged = part.bytes is not None if part.joined is None else text.join_key is not None
        return is_judged and not text.in_data_member

    @property
    def _remaining_s(self) -> float:
        return self.tally.rule.deadline_s - self.tally.cpu_s

    def _find_matches(self, views: Sequence[View]) -> list[findings.TextMatch]:
        return findings.find_matches(self.tally, self.number, views, remaining_s=self._remaining_s)

    def _inspect_views(self, part: TextViews) -> None:
        matches = self._find_matches(part.views)
        if self.has_failed:
            return
        if part.joined is None:
            self._record_matches(part.text_index, matches, part.bytes)
        elif matches:
            self._record_joined_matches(part.joined, matches)

    def _record_joined_matches(
        self, joined: JoinedParts, matches: Sequence[findings.TextMatch]
    ) -> None:
        """Record the matches in joined texts that no single text has.

        If one text has part of a match, only the rest is added, and it is not counted again.
        """
        spans = self._find_spans_if_unjoined(joined)
        if self.has_failed:
            return
        detector, new = self.tally.detector, list[tuple[int, findings.TextMatch]]()
        for match, pieces in zip(matches, joined.split_matches(matches), strict=True):
            new_pieces = [piece for piece in pieces if not spans[piece[0]].contains(piece[1])]
            known_in = next((n for n, part in pieces if spans[n].find_overlap(part)), None)
            if known_in is not None:
                new += joined.list_pieces_outside_text(match, new_pieces, known_in, detector)
            elif joined.is_one_value(match, detector):
                self.tally.count_finding(match.kind, match.score)
                new += new_pieces
        for text_index, match in new:
            self._add_match(text_index, match)

    def _find_spans_if_unjoined(self, joined: JoinedParts) -> dict[int, MergedMatchSpans]:
        """Return the spans of matches, by text, that exist without joining.

        These are earlier matches of each text, and matches within the cut part of one message:
        cutting may cause a match that the whole message does not have.
        """
        known_matches = {number: [*self._by_text.get(number, ())] for number, *_ in joined.parts}
        for start, end in joined.message_spans:
            matches = self._find_matches(normalize.build_views(joined.text.text[start:end]))
            shifted = (replace(m, start=m.start + start, end=m.end + start) for m in matches)
            for number, piece in chain.from_iterable(joined.split_matches(shifted)):
                known_matches[number].append(piece)
        return {n: MergedMatchSpans.from_matches(each) for n, each in known_matches.items()}

    def _inspect_piece(self, piece: LongTextPiece) -> None:
        cursor = piece.cursors.get(self.number)
        if cursor is None or self.has_failed:
            return
        read, matches = piece.partial_readings, list[findings.TextMatch]()
        final_end = piece.base + (
            len(read.views[0].cased)
            if piece.bytes is not None
            else findings.find_final_end(read, cursor.lookback or 0)
        )
        if not piece.base:  # findings in long base64 are recorded before the pieces
            known_matches = self._by_text.get(piece.text_index, ())
            self._known_spans = MergedMatchSpans.from_matches(known_matches)
        if final_end > cursor.final_end:
            found = cursor.find_new_matches(read.views, piece.base, final_end, self._remaining_s)
            matches = [match for match in found if not self._known_spans.contains(match)]
        if not self.has_failed:
            self._record_matches(piece.text_index, matches, piece.bytes)

    def _record_matches(
        self, text_index: int, matches: Sequence[findings.TextMatch], byte_count: int | None
    ) -> None:
        """Count matches, and an inspected text with its bytes unless they are None."""
        for match in matches:
            self.tally.count_finding(match.kind, match.score)
            self._add_match(text_index, match)
        if byte_count is not None:
            self.tally.bytes += byte_count
            self.tally.fields += 1

    def _add_match(self, text_index: int, match: findings.TextMatch) -> None:
        self.matches.append((text_index, match))
        self._by_text.setdefault(text_index, []).append(match)


def finds_spans(rule: GuardRule) -> bool:
    """Return True if a rule finds spans, rather than judges a text as a whole."""
    return is_detector(rule.detector) and rule.detector.lookback is not None


def build_text_views(text_index: int, text: Text, longest: int = BATCH_CHARS) -> TextViews:
    """Return the readings of a text: only the original one of a text above ``longest``."""
    is_long = len(text.text) > longest
    max_run = 0 if text.has_decoded_text else None
    views = (
        (View(text.text),)
        if is_long
        else normalize.build_views(text.text, in_json=text.in_json, max_run=max_run)
    )
    ascii_only = text.text.isascii()
    size = len(text.text if ascii_only else text.text.encode("utf-8", "surrogatepass"))
    return TextViews(text_index=text_index, text=text, views=views, bytes=size, is_long=is_long)


def split_into_batches(
    texts: Sequence[Text], inspections: Sequence[RuleInspection], size: int = BATCH_CHARS
) -> Iterator[TextBatch]:
    """Yield the texts in batches of ``size`` characters.

    A batch is read when it is requested, after all rules have inspected the previous one.
    """
    result: list[TextViews] = []
    weight = 0
    joined_views = (
        TextViews(text_index=-1, text=joined.text, views=joined.build_views(), joined=joined)
        for joined in iter_joined_texts(texts)
    )
    alone = (build_text_views(text_index, text, size) for text_index, text in enumerate(texts))
    for part in chain(alone, joined_views):
        result.append(part)
        weight += TEXT_WEIGHT + len(part.text.text)
        if weight >= size:
            yield result
            result, weight = [], 0
        if part.is_long:
            if not part.text.has_decoded_text:
                for run in find_base64_runs(part.text.text, MAX_RUN_CHARS + 1):
                    for view in normalize.build_base64_views(run.group(), run.span()):
                        yield (TextViews(part.text_index, part.text, (view,)),)
            yield from _iter_long_text_pieces(part, inspections, size)
    if result:
        yield result


def _iter_long_text_pieces(
    part: TextViews, inspections: Sequence[RuleInspection], batch: int
) -> Iterator[TextBatch]:
    """Yield the pieces of a long text.

    A piece begins where the rules continue. If no position was decided, the next piece is longer.
    """
    text = part.text.text
    cursors: dict[int, findings.RuleCursor] = {}
    for inspection in inspections:
        tally, number = inspection.tally, inspection.number
        if finds_spans(tally.rule) and tally.rule.applies_to(part.text.role, part.text.kind):
            cursors[number] = findings.RuleCursor(tally, number, tally.detector.lookback)
    min_run = max(0, min((cursor.lookback or 0 for cursor in cursors.values()), default=0) - 1)
    max_run = 0 if part.text.has_decoded_text else MAX_RUN_CHARS
    base, size = 0, batch
    while any(cursor.is_incremental for cursor in cursors.values()):
        is_last = base + size >= len(text)
        partial_readings = normalize.build_partial_readings(
            text[base : base + size],
            text[base - 1 : base] if base else "",
            in_json=part.text.in_json,
            max_run=max_run,
            min_run=min_run,
            is_final=is_last,
        )
        yield LongTextPiece(
            text_index=part.text_index,
            partial_readings=partial_readings,
            base=base,
            cursors=cursors,
            bytes=part.bytes if is_last else None,
        )
        if is_last:
            return
        end = base + size
        starts = (each.inspect_from for each in cursors.values() if each.is_incremental)
        next_start = min(starts, default=end)
        size_beyond = batch if next_start - base >= batch // 2 else max(batch, size)
        base, size = next_start, end - next_start + size_beyond


async def inspect_in_threads(
    threads: GuardThreads,
    clock: findings.Clock,
    tallies: Sequence[findings.RuleTally],
    texts: Sequence[Text],
    max_wait_s: float,
) -> list[RuleInspection]:
    """Inspect texts batch by batch in guard threads, all rules of a batch in parallel.

    Returns one inspection per rule, each with a new tally. ``clock`` measures the CPU time of its
    thread. Rules fail if they do not end within the longest deadline plus ``max_wait_s``.
    """

    def read_batch() -> tuple[TextBatch | None, float]:
        started_at = clock()
        return next(remaining, None), clock() - started_at

    inspections = [_make_empty_inspection(tally, number) for number, tally in enumerate(tallies)]
    remaining = split_into_batches(texts, inspections)
    longest_s = max([tally.rule.deadline_s for tally in tallies], default=0)
    try:
        async with asyncio.timeout(longest_s + max_wait_s):
            while pending := [each for each in inspections if not each.has_failed]:
                async with threads.hold_slot():
                    batch, seconds = await threads.run_in_thread(read_batch)
                    if batch is None:
                        break
                    async with asyncio.TaskGroup() as group:
                        for inspection in pending:
                            job = partial(inspection.inspect, batch, seconds)
                            group.create_task(threads.run_in_thread(job))
    except TimeoutError:  # a running thread continues with a tally that nobody reads
        for inspection in [each for each in inspections if not each.has_failed]:
            failed = _make_empty_inspection(inspection.tally, inspection.number)
            failed.record_failure(findings.BUSY)
            inspections[inspection.number] = failed
    return inspections


def _make_empty_inspection(tally: findings.RuleTally, number: int) -> RuleInspection:
    """Return an inspection with a new, empty tally for the same rule."""
    return RuleInspection(findings.RuleTally(tally.rule, tally.clock, opaque=tally.opaque), number)
