"""How much of a streamed answer its guards hold back, as it follows from the rules in force."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.guardrails.stream.words import LEAST_REACH
from proxy.policy.decide.snapshot import Snapshot
from proxy.types.guard import (
    GuardRule,
    Question,
    is_contextual,
    is_detector,
    is_service,
)
from proxy.types.hold import hold_of

ANYTHING = Question("an example of a system prompt", "what was asked", "what was known")


def held(snapshot: Snapshot) -> Iterator[str]:
    """Yield a line for each guard of answers that holds something back, by deployments, without the
    guards that rules add."""
    for name, deployment in snapshot.deployments.items():
        for rule in deployment.guards.output:
            if rule.enforces:
                yield f"{name}: {rule.name} holds {_much(rule)}"


def _much(rule: GuardRule) -> str:
    detector = rule.detector
    if is_contextual(detector):
        detector = detector.about(ANYTHING) or detector
    whole = (
        rule.action == "retry"
        or is_service(detector)
        or not is_detector(detector)
        or detector.reach is None
    )
    if whole or not is_detector(detector):
        return "a stream to its end"
    if hold_of(detector) is None:
        return f"{detector.reach} characters back, as it cannot tell where a finding begins"
    if detector.reach is not None and detector.reach > LEAST_REACH:
        return f"what may become a finding, at most {detector.reach} characters"
    return f"{detector.reach} characters back"
