"""Findings of a rule: counted, masked, and resumed in a text that is read in pieces."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from proxy.errors import GuardBlocked, GuardUnavailable
from proxy.errors.causes import GuardConnectionFailed
from proxy.guards.text.disguises import MAX_MARKS
from proxy.guards.text.documents import MAX_TEXTS
from proxy.guards.text.normalize import PartialReadings, View
from proxy.runtime.frozen import frozen
from proxy.types import guard
from proxy.types.partial_matcher import PartialMatcher

Clock = Callable[[], float]
VERDICT_BY_ACTION: dict[guard.Action, guard.Verdict] = {
    "block": "blocked",
    "mask": "masked",
    "flag": "flagged",
    "route": "routed",
    "retry": "retried",
}


RETRY_AFTER_S = 1.0
DEADLINE, BUSY = "deadline", "busy"
MAX_FINDINGS = 10_000
"""Findings of a rule in one call, after which it inspects nothing more."""
TOO_MANY = "too_many_findings"
TOO_MANY_MESSAGE = 'Guard "{}" found more than {} values to mask. Send them in several calls.'
RETRYABLE_FAILURES = frozenset({DEADLINE, "not_ready", BUSY})
"""Failures that no text caused and that a retry may avoid."""


class GuardRetryRequested(GuardBlocked):
    """A guard requests another response. No part of the current response is sent."""


@dataclass(slots=True)
class RuleTally:
    """Runs one rule on one call, and counts its findings, time and texts.

    - ``clock`` measures the CPU time of the thread.
    - ``cpu_s`` is the CPU time of the detector, ``wait_s`` the time of a service.
    - ``opaque`` is True if the call also has content that no guard can read.
    - ``is_service_unavailable`` is True if the service could not be reached or failed.
    - ``deadline_at`` is the time after which no inspection starts.
    - ``max_texts`` bounds the texts within arguments.

    Raises ``TypeError`` unless the rule has a detector.
    """

    rule: guard.GuardRule
    clock: Clock
    findings: dict[str, int] = field(default_factory=dict)
    score: float = 0.0
    bytes: int = 0
    fields: int = 0
    cpu_s: float = 0.0
    wait_s: float = 0.0
    error: str | None = None
    blocked: bool = False
    opaque: bool = False
    is_service_unavailable: bool = False
    deadline_at: float = inf
    max_texts: int = MAX_TEXTS
    detector: guard.Detector = field(init=False)

    def __post_init__(self) -> None:
        if not guard.is_detector(self.rule.detector):
            raise TypeError(self.rule.name)
        self.detector = self.rule.detector

    def find(
        self, view: View, start_at: int = 0, remaining_s: float | None = None
    ) -> Sequence[guard.Finding]:
        """Return the findings of a reading from ``start_at`` on, or nothing after a failure.

        ``remaining_s`` is the remaining time, which is checked afterwards: nothing interrupts a
        detector. Raises ``GuardBlocked`` if a strict rule fails, and if a rule masks more than
        ``MAX_FINDINGS``.
        """
        if self.error is not None:
            return ()
        if sum(self.findings.values()) > MAX_FINDINGS:
            if self.rule.can_mask:  # masking needs all findings
                self.error, self.blocked = TOO_MANY, True
                message = TOO_MANY_MESSAGE.format(self.rule.name, f"{MAX_FINDINGS:,}")
                raise GuardBlocked(message, guard=self.rule.name, kind=TOO_MANY)
            return ()
        text = view.cased if self.rule.cased else view.folded
        started_at = self.clock()
        if started_at > self.deadline_at:
            self.record_failure(DEADLINE)
            return ()
        try:
            findings = self.detector.find(text[start_at:] if start_at else text)
        except Exception as error:  # noqa: BLE001  # a broken guard must not pass texts
            self.record_failure(_get_error_code(error))
            return ()
        cpu_s = self.clock() - started_at
        self.cpu_s += cpu_s
        if cpu_s > (self.rule.deadline_s if remaining_s is None else remaining_s):
            self.record_failure(DEADLINE)
            return ()
        return findings

    def record_failure(self, failure_code: str) -> None:
        """Record a failure. Raises ``GuardBlocked`` if the rule is strict."""
        self.error = failure_code
        if self.rule.fails_closed:
            self.blocked = True
            raise self._build_failure_error(failure_code)

    def _build_failure_error(self, failure_code: str) -> GuardBlocked:
        """Return the error for a failure: ``GuardUnavailable`` if a retry may succeed."""
        name, kind = self.rule.name, "could_not_check"
        if not (self.is_service_unavailable or failure_code in RETRYABLE_FAILURES):
            return GuardBlocked(guard.UNCHECKED_MESSAGE.format(name), guard=name, kind=kind)
        unavailable = GuardUnavailable(guard.UNCHECKED_YET.format(name), guard=name, kind=kind)
        unavailable.retry_after_s = RETRY_AFTER_S
        return unavailable

    def count_finding(self, kind: str, score: float = 1.0) -> None:
        self.findings[kind] = self.findings.get(kind, 0) + 1
        self.score = max(self.score, score)

    def record_block(self, kind: str) -> GuardBlocked:
        """Mark the rule as blocking, and return the error that stops the call or its response."""
        self.blocked = True
        stops = GuardRetryRequested if self.rule.action == "retry" else GuardBlocked
        return stops(self.rule.message, guard=self.rule.name, kind=kind)

    def to_result(self) -> guard.GuardResult:
        return guard.GuardResult(
            guard=self.rule.name,
            verdict=self._get_verdict(),
            shadow=self.rule.shadow,
            findings=dict(self.findings),
            score=self.score,
            bytes=self.bytes,
            fields=self.fields,
            seconds=self.cpu_s + self.wait_s,
            error=self.error,
            kind=self.rule.kind,
            action=self.rule.action,
            detections=self.rule.detections,
        )

    def _get_verdict(self) -> guard.Verdict:
        if self.error is not None:
            return "failed"
        if not self.findings and not self.blocked:
            return "passed" if self.bytes and not self.opaque else "not_applicable"
        return VERDICT_BY_ACTION[self.rule.action]


def _get_error_code(error: Exception) -> str:
    if isinstance(error, guard.NotReady):
        return "not_ready"
    if isinstance(error, guard.Busy):
        return BUSY
    if isinstance(error, GuardConnectionFailed):
        return error.cause
    return DEADLINE if isinstance(error, TimeoutError) else type(error).__name__


@frozen
class TextMatch:
    """A finding of the rule with the index ``rule``, in characters of the original text."""

    start: int
    end: int
    rule: int
    kind: str
    score: float = 1.0

    @property
    def sort_key(self) -> tuple[int, int, int]:
        """Sort key: earlier, then longer matches first, then in the order of the rules."""
        return self.start, -self.end, self.rule


Replace = Callable[[guard.GuardRule, str, str], str]
"""Returns the replacement of a text, by the rule, the kind of the finding and the text."""


def replace_by_kind(rule: guard.GuardRule, kind: str, text: str) -> str:
    return f"[{kind.upper()}]"


def make_json_string_replace(replace: Replace) -> Replace:
    """Return a ``Replace`` that takes and returns text with the escapes of a JSON string."""

    def replaced(rule: guard.GuardRule, kind: str, text: str) -> str:
        try:
            plain = json.loads(f'"{text}"', strict=False)
        except ValueError:
            plain = text
        return json.dumps(replace(rule, kind, plain), ensure_ascii=False)[1:-1]

    return replaced


def find_matches(
    tally: RuleTally,
    rule: int,
    views: Sequence[View],
    start_at: int = 0,
    remaining_s: float | None = None,
) -> list[TextMatch]:
    """Return the matches of a rule in all readings of a text, from ``start_at`` in the original on.

    Equal matches, and matches inside of another one, count once.
    """
    matches: set[TextMatch] = set()
    for view in views:
        if view.is_escaped_form or (
            start_at and view.encoded_span is not None and view.encoded_span[0] < start_at
        ):
            continue
        cut = view.index_of_original(start_at) if start_at else 0
        for finding in tally.find(view, cut, remaining_s):
            if finding.end > finding.start:
                start, end = view.original_span(cut + finding.start, cut + finding.end)
                matches.add(TextMatch(start, end, rule, kind=finding.kind, score=finding.score))
    result: list[TextMatch] = []
    for match in sorted(matches, key=lambda match: (*match.sort_key, match.kind)):
        if not result or match.end > result[-1].end:
            result.append(match)
    return result


def apply_masks(
    text: str, matches: Sequence[TextMatch], rules: Sequence[guard.GuardRule], replace: Replace
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


# Extra characters before the lookback, so that decoding from the middle of a text gives the same
# result: more than the combining marks of one letter.
CONTEXT_MARGIN = MAX_MARKS + 10


@dataclass(slots=True)
class RuleCursor:
    """Position of one rule in a text.

    Findings that begin before ``final_end`` are final. The next inspection starts at
    ``inspect_from``. ``has_open_match`` is True if a finding is not final.
    """

    tally: RuleTally
    rule: int
    lookback: int | None
    inspect_from: int = 0
    final_end: int = 0
    last_match_end: int = 0
    recent_spans: list[tuple[int, int]] = field(default_factory=list)
    has_open_match: bool = False
    partial_matcher: PartialMatcher | None = field(init=False)

    def __post_init__(self) -> None:
        holds = self.lookback is not None and self.tally.rule.enforces
        matcher = getattr(self.tally.rule.detector, "partial_matcher", None) if holds else None
        self.partial_matcher = matcher

    def restart_at(self, position: int) -> None:
        """Continue at ``position``, the start of another text."""
        self.inspect_from = self.final_end = self.last_match_end = position
        self.recent_spans.clear()
        self.has_open_match = False

    @property
    def is_incremental(self) -> bool:
        """True if the rule inspects incomplete texts."""
        return self.lookback is not None and self.tally.error is None

    @property
    def may_withhold(self) -> bool:
        return self.tally.rule.enforces and self.tally.error is None

    def find_new_matches(
        self,
        views: tuple[View, ...],
        base: int,
        final_end: int,
        remaining_s: float | None = None,
        floor: int | None = None,
    ) -> list[TextMatch]:
        """Return new matches before ``final_end`` in a piece that begins at ``base``.

        With ``floor``, a position in the piece, a match across ``final_end`` moves it back to the
        start of the match, but not before ``floor``. Raises ``GuardBlocked``.
        """
        fresh: list[TextMatch] = []
        matches = find_matches(self.tally, self.rule, views, self.inspect_from - base, remaining_s)
        if floor is not None:
            find_end, text = self._find_end_outside_matches, views[0].cased
            final_end = find_end(matches, base, final_end, base + floor, text)
        for match in matches:
            start, end = match.start + base, match.end + base
            if not self.final_end <= start < final_end or end <= self.last_match_end:
                continue
            self.last_match_end = end
            self.recent_spans.append((start, end))
            fresh.append(replace(match, start=start, end=end))
        self.final_end = final_end
        self.has_open_match = bool(matches) and matches[-1].end + base > final_end
        # A match at ``final_end`` may depend on the text from here on.
        distance = (self.lookback or 0) + CONTEXT_MARGIN
        next_start = base + _move_position_back(views, final_end - base, distance)
        for start, end in reversed(self.recent_spans):
            if start < next_start < end:  # an inspection must not start within a match
                next_start = start
        self.inspect_from = next_start
        self.recent_spans = [span for span in self.recent_spans if span[1] > next_start]
        return fresh

    def _find_end_outside_matches(
        self, matches: list[TextMatch], base: int, final_end: int, floor: int, text: str
    ) -> int:
        """Return a position that no match crosses. Overlapping matches may change together."""
        place = final_end
        for match in reversed(matches):
            end = match.end + base
            if match.start + base < place and (
                end > place or (end == place and not text[place - base].isspace())
            ):
                place = match.start + base
        return max(floor, place, self.final_end)


def find_final_end(partial_readings: PartialReadings, lookback: int) -> int:
    """Return the first position where a match could still reach into text that may change."""
    return min(
        partial_readings.open_run_start,
        _move_position_back(partial_readings.views, partial_readings.settled_end, lookback - 1),
    )


def _move_position_back(views: tuple[View, ...], position: int, distance: int) -> int:
    """Return ``position`` minus ``distance`` characters, in the reading where that is earliest."""
    if len(views) == 1:
        return max(0, position - distance)
    plain = (view for view in views if view.encoded_span is None)
    starts = ((view, view.index_of_original(position) - distance) for view in plain)
    return min(view.original_start(start) if start > 0 else 0 for view, start in starts)


@frozen
class FailedDetector:
    """Detector that always raises the error of a detector or service that could not be used."""

    error: Exception
    lookback: int | None = 0

    def find(self, text: str) -> Sequence[guard.Finding]:
        raise self.error
