"""What a policy asks of a guard, and the result of the guard for one call.

A guard that has seen nothing has not passed anything; one that broke has not either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from proxy.causes import ConnectionFailed
from proxy.errors import GuardBlocked, GuardUnavailable
from proxy.guardrails.text.normalize import View
from proxy.guardrails.text.weight import MOST_TEXTS
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
"""Findings of a rule in one call, after which it looks at nothing more."""
TOO_MANY = "too_many_findings"
UNMASKED = 'Guard "{}" found more than {} values to mask. Send them in several calls.'
PASSING = frozenset({DEADLINE, "not_ready", BUSY})
"""Failures that another try may not meet, and that no text is the cause of."""


class RetryWanted(GuardBlocked):
    """A guard wants the answer to be asked for once more; nothing of this one is shown."""


@dataclass(slots=True)
class RuleTally:
    """One rule at work on one call: runs its detector and counts what came of it.

    ``clock`` is that of the work of the thread that looks, of which ``seconds`` are spent;
    ``waited`` are the seconds that somebody else took to answer; ``opaque`` says that beside the
    texts there is what no guard can read, which has not passed any; with ``is_away`` its service
    could not tell, whatever the text. ``until`` is the moment after
    which it begins to look at nothing more, ``most_texts`` how many it looks at where texts are
    values of arguments. The rule is bound to the call already, and what it asks
    for is answered: its detector looks. Raises ``TypeError`` if not.
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
        """Return the findings from a place of a reading on; nothing once the detector has failed.

        Raises ``GuardBlocked`` when it fails and its rule is strict, and when its rule masks and
        has more than ``MOST_FINDINGS``. ``left_s`` is what is left of its deadline, which is
        checked afterwards: a detector cannot be interrupted.
        """
        if self.error is not None:
            return ()
        if sum(self.findings.values()) > MOST_FINDINGS:
            self._stop_looking()
            return ()
        text = view.cased if self.rule.cased else view.folded
        began = self.clock()
        if began > self.until:
            self.fail(DEADLINE)
            return ()
        try:
            found = self.detector.find(text[since:] if since else text)
        except Exception as bug:  # noqa: BLE001  # a guard that breaks must not let texts pass
            self.fail(_error(bug))
            return ()
        spent = self.clock() - began
        self.seconds += spent
        if spent > (self.rule.deadline_s if left_s is None else left_s):
            self.fail(DEADLINE)
            return ()
        return found

    def fail(self, error: str) -> None:
        """Note that the guard cannot tell. Raises ``GuardBlocked`` when its rule is strict."""
        self.error = error
        if self.rule.strict:
            self.blocked = True
            raise self._stopping(error)

    def _stop_looking(self) -> None:
        """End with what was found, unless all of it has to be masked. Raises ``GuardBlocked``."""
        if self.rule.masks:
            self.error, self.blocked = TOO_MANY, True
            message = UNMASKED.format(self.rule.name, f"{MOST_FINDINGS:,}")
            raise GuardBlocked(message, guard=self.rule.name, kind=TOO_MANY)

    def _stopping(self, error: str) -> GuardBlocked:
        """Return the error of a text that nobody has found anything in: a policy's own message is
        of findings."""
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
        """Return the error that stops the call, or asks for another answer."""
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


def _error(bug: Exception) -> str:
    if isinstance(bug, NotReady):
        return "not_ready"
    if isinstance(bug, Busy):
        return BUSY
    if isinstance(bug, ConnectionFailed):
        return bug.cause
    return DEADLINE if isinstance(bug, TimeoutError) else type(bug).__name__
