"""What becomes of a call by whoever its head says it is from, as the pipeline asks for it."""

from __future__ import annotations

from proxy.policy.decide import InForce
from proxy.policy.decide.snapshot import Snapshot
from proxy.types import Call, Plan


def decide(snapshot: Snapshot, call: Call) -> Plan:
    """Return the plan. Raise ``Unauthorized`` for a stranger."""
    return InForce(snapshot).identify(call.head).decide(call)
