"""What a policy asks of a guard, and what the guard then says of one call.

A guard that has seen nothing has not passed anything; one that broke has not either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from proxy.errors import GuardBlocked
from proxy.guardrails.finding import Detector, Finding
from proxy.guardrails.view import View

Action = Literal["block", "mask", "flag"]
Verdict = Literal["passed", "flagged", "masked", "blocked", "failed", "unseen"]
Clock = Callable[[], float]

MESSAGE = "The text was blocked by a guard."


@dataclass(frozen=True, slots=True)
class Rule:
    """A detector, and what its findings lead to.

    ``shadow`` only counts what it would do. ``on_error`` says what a detector that raises, or takes
    longer than ``deadline_s``, means for a call: ``closed`` blocks it, unless the action is
    ``flag``. ``roles`` and ``fields`` narrow where it looks; None means everywhere. ``cased`` gives
    the detector texts with their capitals. ``message`` is what a client reads of a block.
    """

    name: str
    detector: Detector
    action: Action = "block"
    shadow: bool = False
    on_error: Literal["closed", "open"] = "closed"
    deadline_s: float = 1.0
    roles: frozenset[str] | None = None
    fields: frozenset[str] | None = None
    cased: bool = False
    message: str = MESSAGE

    @property
    def enforces(self) -> bool:
        """Say whether what it finds changes or stops a text."""
        return self.action != "flag" and not self.shadow

    @property
    def strict(self) -> bool:
        """Say whether its failing stops a text."""
        return self.enforces and self.on_error == "closed"

    def applies(self, role: str | None, kind: str) -> bool:
        """Say whether it looks at texts of a kind, and of a role where the text has one."""
        if self.fields is not None and kind not in self.fields:
            return False
        return self.roles is None or role in self.roles


@dataclass(frozen=True, slots=True)
class Result:
    """What one guard says of one call. ``seconds`` is the time spent inside of its detector."""

    guard: str
    verdict: Verdict
    shadow: bool
    findings: dict[str, int]
    score: float
    bytes: int
    fields: int
    seconds: float
    error: str | None = None


@dataclass(slots=True)
class Tally:
    """One rule at work on one call: runs its detector and counts what came of it."""

    rule: Rule
    clock: Clock
    findings: dict[str, int] = field(default_factory=dict)
    score: float = 0.0
    bytes: int = 0
    fields: int = 0
    seconds: float = 0.0
    error: str | None = None
    blocked: bool = False

    def find(self, view: View, since: int = 0, left_s: float | None = None) -> Sequence[Finding]:
        """Give the findings from a place of a reading on; nothing once the detector has failed.

        Raises ``GuardBlocked`` when it fails and its rule is strict. ``left_s`` is what is left of
        its deadline, which is checked afterwards: a detector cannot be interrupted.
        """
        if self.error is not None:
            return ()
        text = view.cased if self.rule.cased else view.folded
        began = self.clock()
        try:
            found = self.rule.detector.find(text[since:] if since else text)
        except Exception as bug:  # noqa: BLE001  # a guard that breaks must not let texts pass
            self.fail(type(bug).__name__)
            return ()
        spent = self.clock() - began
        self.seconds += spent
        if spent > (self.rule.deadline_s if left_s is None else left_s):
            self.fail("deadline")
            return ()
        return found

    def fail(self, error: str) -> None:
        """Note that the guard cannot tell. Raises ``GuardBlocked`` when its rule is strict."""
        self.error = error
        if self.rule.strict:
            raise self.block("could_not_check")

    def count(self, kind: str, score: float = 1.0) -> None:
        self.findings[kind] = self.findings.get(kind, 0) + 1
        self.score = max(self.score, score)

    def block(self, kind: str) -> GuardBlocked:
        """Give the error that stops the call."""
        self.blocked = True
        return GuardBlocked(self.rule.message, guard=self.rule.name, kind=kind)

    def result(self) -> Result:
        return Result(
            guard=self.rule.name,
            verdict=self._verdict(),
            shadow=self.rule.shadow,
            findings=dict(self.findings),
            score=self.score,
            bytes=self.bytes,
            fields=self.fields,
            seconds=self.seconds,
            error=self.error,
        )

    def _verdict(self) -> Verdict:
        if self.error is not None:
            return "failed"
        if not self.findings and not self.blocked:
            return "passed" if self.bytes else "unseen"
        said: dict[Action, Verdict] = {"block": "blocked", "mask": "masked", "flag": "flagged"}
        return said[self.rule.action]
