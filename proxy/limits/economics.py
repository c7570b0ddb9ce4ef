"""The guard that looks at what a call may cost, before anything is claimed or asked.

It stands here as the estimate does, the same that limits claim. A call whose cost nobody can tell
is one that it has failed on, and ``on_error`` says what that means.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.errors import GuardBlocked
from proxy.record import Record
from proxy.types.guard import UNPRICED, CostCap, GuardResult, Verdict

FINDING = "cost"


def permit(ceilings: Sequence[CostCap], cost: int | None, record: Record) -> None:
    """Note what every ceiling says of a call, which may cost so many nano-USD; None where nobody
    can tell. Raises ``GuardBlocked`` where one stops it."""
    record.guarded("input", [_result(ceiling, cost) for ceiling in ceilings])
    for ceiling in ceilings:
        name = ceiling.name
        if cost is None and ceiling.strict:
            raise GuardBlocked(UNPRICED.format(name), guard=name, kind="could_not_check")
        if cost is not None and cost > ceiling.most and ceiling.enforces:
            raise GuardBlocked(ceiling.message, guard=name, kind=FINDING)


def _result(ceiling: CostCap, cost: int | None) -> GuardResult:
    verdict: Verdict = "passed"
    if cost is None:
        verdict = "failed"
    elif cost > ceiling.most:
        verdict = "blocked" if ceiling.action == "block" else "flagged"
    found = cost is not None and cost > ceiling.most
    return GuardResult(
        guard=ceiling.name,
        verdict=verdict,
        shadow=ceiling.shadow,
        findings={FINDING: 1} if found else {},
        score=float(found),
        bytes=0,
        fields=0,
        seconds=0.0,
        error="unpriced" if cost is None else None,
        kind=ceiling.kind,
        action=ceiling.action,
    )
