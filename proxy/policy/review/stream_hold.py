"""Delay of streamed responses by output guards, as ``headrace check`` reports it."""

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
    """Yield for each deployment a line per output guard that withholds text, and a line about the
    total delay. Guards of rules are not included."""
    for name, deployment in snapshot.deployments.items():
        holding = [rule for rule in deployment.guards.output if rule.enforces]
        for rule in holding:
            yield f"{name}: output guard {rule.name} withholds {_much(rule)}"
        if holding:
            yield f"{name}: streamed responses are {_late(holding)}"


def _much(rule: GuardRule) -> str:
    detector = _looking(rule)
    if detector is None:
        return "streamed responses until their end"
    if hold_of(detector) is None:
        return f"the last {detector.reach} characters of streamed text"
    if detector.reach is not None and detector.reach > LEAST_REACH:
        return f"text that may become a finding, up to {detector.reach} characters"
    return f"the last {detector.reach} characters of streamed text"


def _late(rules: Sequence[GuardRule]) -> str:
    """Return the delay of a stream under all of these rules."""
    looking = [(rule, _looking(rule)) for rule in rules]
    if whole := [rule.name for rule, detector in looking if detector is None]:
        return f"sent after their end, because of {', '.join(whole)}"
    held = {
        rule.name: detector.reach or 0
        for rule, detector in looking
        if detector is not None and hold_of(detector) is None
    }
    if not held:
        return "delayed by a word or two, and longer only while text may become a finding"
    words = -(-max(held.values()) // LETTERS_A_WORD)
    return f"delayed by about {words} words, because of {', '.join(held)}"


def _looking(rule: GuardRule) -> Detector | None:
    """Return the detector that inspects a stream while it runs, or None if it waits for the end."""
    detector = rule.detector
    if is_contextual(detector):
        detector = detector.about(ANYTHING) or detector
    if rule.action == "retry" or is_service(detector) or not is_detector(detector):
        return None
    return detector if detector.reach is not None else None
