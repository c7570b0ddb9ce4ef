"""Runs the detector of one rule on one call and counts the result.

A guard without texts is not applicable, and a guard that failed has not passed anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from proxy.errors import GuardBlocked, GuardUnavailable
from proxy.errors.causes import ConnectionFailed
from proxy.guards.text.normalize import View
from proxy.guards.text.text_walker import MOST_TEXTS
from proxy.types.guard import (
    UNCHECKED,
    UNCHECKED_YET,
    Action,
    Busy,
    Detector,
    Finding,
    GuardResult,
    GuardRule,
    NotReady,
    Verdict,
    is_detector,
)

Clock = Callable[[], float]
VERDICT_OF: dict[Action, Verdict] = {
    "block": "blocked",
    "mask": "masked",
    "flag": "flagged",
    "route": "routed",
    "retry": "retried",
}


RETRY_AFTER_S = 1.0
DEADLINE, BUSY = "deadline", "busy"
MOST_FINDINGS = 10_000
"""Findings of a rule in one call, after which it inspects nothing more."""
TOO_MANY = "too_many_findings"
UNMASKED = 'Guard "{}" found more than {} values to mask. Send them in several calls.'
PASSING = frozenset({DEADLINE, "not_ready", BUSY})
"""Failures that no text caused and that a retry may avoid."""


class RetryWanted(GuardBlocked):
    """A guard requires a new response; nothing of this one is sent."""


@dataclass(slots=True)
class RuleTally:
    """One rule on one call.

    ``clock`` measures the CPU of the thread, of which ``seconds`` are spent; ``waited`` are the
    seconds of a service. ``opaque`` is True if the call also has content that no guard can read,
    and ``is_away`` if the service failed for any text. No inspection starts after ``until``;
    ``most_texts`` bounds the texts within arguments. Raises ``TypeError`` unless the rule has a
    detector.
    """

    rule: GuardRule
    clock: Clock
    findings: dict[str, int] = field(default_factory=dict)
    score: float = 0.0
    bytes: int = 0
    fields: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    error: str | None = None
    blocked: bool = False
    opaque: bool = False
    is_away: bool = False
    until: float = inf
    most_texts: int = MOST_TEXTS
    detector: Detector = field(init=False)

    def __post_init__(self) -> None:
        if not is_detector(self.rule.detector):
            raise TypeError(self.rule.name)
        self.detector = self.rule.detector

    def find(self, view: View, since: int = 0, left_s: float | None = None) -> Sequence[Finding]:
        """Return the findings from a position of a reading on, none after a failure.

        ``left_s`` is the remaining time, which is checked afterwards: nothing interrupts a
        detector. Raises ``GuardBlocked`` if a strict rule fails, and if a rule masks more than
        ``MOST_FINDINGS``.
        """
        if self.error is not None:
            return ()
        if sum(self.findings.values()) > MOST_FINDINGS:
            self._stop_looking()
            return ()
        text = view.cased if self.rule.cased else view.folded
        started_at = self.clock()
        if started_at > self.until:
            self.fail(DEADLINE)
            return ()
        try:
            found = self.detector.find(text[since:] if since else text)
        except Exception as error:  # noqa: BLE001  # a broken guard must not pass texts
            self.fail(_code(error))
            return ()
        spent = self.clock() - started_at
        self.seconds += spent
        if spent > (self.rule.deadline_s if left_s is None else left_s):
            self.fail(DEADLINE)
            return ()
        return found

    def fail(self, error: str) -> None:
        """Record a failure. Raises ``GuardBlocked`` if the rule is strict."""
        self.error = error
        if self.rule.fails_closed:
            self.blocked = True
            raise self._stopping(error)

    def _stop_looking(self) -> None:
        """Keep the findings, unless all must be masked. Raises ``GuardBlocked``."""
        if self.rule.can_mask:
            self.error, self.blocked = TOO_MANY, True
            message = UNMASKED.format(self.rule.name, f"{MOST_FINDINGS:,}")
            raise GuardBlocked(message, guard=self.rule.name, kind=TOO_MANY)

    def _stopping(self, error: str) -> GuardBlocked:
        """Return the error for a failure. The message of the policy is for findings only."""
        name = self.rule.name
        if not (self.is_away or error in PASSING):
            return GuardBlocked(UNCHECKED.format(name), guard=name, kind="could_not_check")
        late = GuardUnavailable(UNCHECKED_YET.format(name), guard=name, kind="could_not_check")
        late.retry_after_s = RETRY_AFTER_S
        return late

    def count(self, kind: str, score: float = 1.0) -> None:
        self.findings[kind] = self.findings.get(kind, 0) + 1
        self.score = max(self.score, score)

    def block(self, kind: str) -> GuardBlocked:
        """Return the error that stops the call or requires a new response."""
        self.blocked = True
        stops = RetryWanted if self.rule.action == "retry" else GuardBlocked
        return stops(self.rule.message, guard=self.rule.name, kind=kind)

    def result(self) -> GuardResult:
        return GuardResult(
            guard=self.rule.name,
            verdict=self._verdict(),
            shadow=self.rule.shadow,
            findings=dict(self.findings),
            score=self.score,
            bytes=self.bytes,
            fields=self.fields,
            seconds=self.seconds + self.waited,
            error=self.error,
            kind=self.rule.kind,
            action=self.rule.action,
            detections=self.rule.detections,
        )

    def _verdict(self) -> Verdict:
        if self.error is not None:
            return "failed"
        if not self.findings and not self.blocked:
            return "passed" if self.bytes and not self.opaque else "not_applicable"
        return VERDICT_OF[self.rule.action]


def _code(error: Exception) -> str:
    if isinstance(error, NotReady):
        return "not_ready"
    if isinstance(error, Busy):
        return BUSY
    if isinstance(error, ConnectionFailed):
        return error.cause
    return DEADLINE if isinstance(error, TimeoutError) else type(error).__name__
