"""How much of a streamed answer its guards hold back, as it follows from the rules in force."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proxy.guardrails.stream.words import LEAST_REACH
from proxy.policy.decide.snapshot import Snapshot
from proxy.types.guard import (
    Detector,
    GuardRule,
    Question,
    is_contextual,
    is_detector,
    is_service,
)
from proxy.types.hold import hold_of

LETTERS_A_WORD = 6  # with the space behind them
ANYTHING = Question("an example of a system prompt", "what was asked", "what was known")


def held(snapshot: Snapshot) -> Iterator[str]:
    """Yield a line for each guard of answers that holds something back, by deployments, and one for
    how late streams are shown for all of them, without the guards that rules add."""
    for name, deployment in snapshot.deployments.items():
        holding = [rule for rule in deployment.guards.output if rule.enforces]
        for rule in holding:
            yield f"{name}: {rule.name} holds {_much(rule)}"
        if holding:
            yield f"{name}: streams are shown {_late(holding)}"


def _much(rule: GuardRule) -> str:
    detector = _looking(rule)
    if detector is None:
        return "a stream to its end"
    if hold_of(detector) is None:
        return f"{detector.reach} characters back, as it cannot tell where a finding begins"
    if detector.reach is not None and detector.reach > LEAST_REACH:
        return f"what may become a finding, at most {detector.reach} characters"
    return f"{detector.reach} characters back"


def _late(rules: Sequence[GuardRule]) -> str:
    """Return how late a stream is shown under all of these rules."""
    looking = [(rule, _looking(rule)) for rule in rules]
    if whole := [rule.name for rule, detector in looking if detector is None]:
        return f"when they have ended, because of {', '.join(whole)}"
    held = {
        rule.name: detector.reach or 0
        for rule, detector in looking
        if detector is not None and hold_of(detector) is None
    }
    if not held:
        return "a word or two late, and later only what may become a finding"
    words = -(-max(held.values()) // LETTERS_A_WORD)
    return f"some {words} words late, because of {', '.join(held)}"


def _looking(rule: GuardRule) -> Detector | None:
    """Return what looks at a stream before it ends; None where its end is waited for."""
    detector = rule.detector
    if is_contextual(detector):
        detector = detector.about(ANYTHING) or detector
    if rule.action == "retry" or is_service(detector) or not is_detector(detector):
        return None
    return detector if detector.reach is not None else None
