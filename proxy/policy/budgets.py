"""Which budgets count every call of their deployments, so that the ledger can be asked about them.

One that a rule brings, or that a rule takes away, counts calls that the ledger cannot tell apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from proxy.limits.drift import Budget
from proxy.policy.roster import roster
from proxy.policy.snapshot import Snapshot
from proxy.types import Bound
from proxy.types.limit import Claim


def budgets(snapshot: Snapshot) -> Iterator[Budget]:
    """Give the budgets of a revision, with their counters whose owner no caller chooses."""
    listed = roster(snapshot).deployments
    for bound, deployments in _whole(snapshot).items():
        scopes = dict.fromkeys(
            scope
            for name in sorted(deployments)
            for limit, scope in listed[name].scopes
            if limit is bound.limit
        )
        named = {scope: _values(bound.per, scope) for scope in scopes}
        yield Budget(bound.limit, bound.per, frozenset(deployments), named)


def counted_by(snapshot: Snapshot, limit: str) -> frozenset[str] | None:
    """Name the deployments all of whose calls a budget counts; None where that cannot be said."""
    whole = _whole(snapshot).items()
    return next((frozenset(names) for bound, names in whole if bound.limit.name == limit), None)


def whose(snapshot: Snapshot, claim: Claim) -> dict[str, str] | None:
    """Return whose a counter of a budget is, by what the budget is per; None for a limit that is
    no more."""
    for bound in _all(snapshot):
        if bound.limit.name == claim.limit.name:
            return dict(zip(bound.per, _values(bound.per, claim.scope), strict=True))
    return None


def _all(snapshot: Snapshot) -> Iterator[Bound]:
    for deployment in snapshot.deployments.values():
        yield from deployment.bounds
        for section in deployment.sections:
            for rule in section.rules:
                yield from rule.bounds


def _whole(snapshot: Snapshot) -> dict[Bound, set[str]]:
    sections = [section for each in snapshot.deployments.values() for section in each.sections]
    taken = {name for section in sections for rule in section.rules for name in rule.without}
    found: dict[Bound, set[str]] = {}
    for name, deployment in snapshot.deployments.items():
        for bound in deployment.bounds:
            if bound.limit.kind == "usd" and bound.limit.name not in taken:
                found.setdefault(bound, set()).add(name)
    return found


def _values(per: tuple[str, ...], scope: str) -> tuple[str, ...]:
    """Take a counter's name apart again."""
    if not per:
        return ()
    values, rest = [], scope.removeprefix(f"{per[0]}:")
    for after in per[1:]:
        value, _, rest = rest.partition(f"|{after}:")
        values.append(value)
    return (*values, rest)
