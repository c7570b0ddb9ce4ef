"""What a policy of the operator's own forbids, as a model judges it."""

from __future__ import annotations

from proxy.config.scalars import Prose
from proxy.guardrails.guard_kind import GuardContext, GuardKind
from proxy.guardrails.services.judge import ByModelConfig, Judge, judged_by
from proxy.guardrails.services.wire import SPOKEN_KINDS
from proxy.types.detections import DetectionFormat


class PolicyViolationConfig(ByModelConfig):
    """Violations of your own policy, judged by a model."""

    policy: Prose
    """Text of the policy."""


def _make(keys: PolicyViolationConfig, context: GuardContext) -> Judge:
    rule = f"A text must not break this policy:\n{keys.policy}"
    return judged_by(keys, context, rule, "policy_violation")


KIND = GuardKind(
    PolicyViolationConfig,
    _make,
    fields=SPOKEN_KINDS,
    asks=True,
    detections=(
        DetectionFormat(
            "policy_violation",
            "policy_violation",
            lambda found: {"violating_policy": ", ".join(sorted(found.findings)) or None},
        ),
    ),
)
