"""A budget as the ledger is asked about it."""

from __future__ import annotations

from proxy.frozen import frozen
from proxy.types.limit import Limit


@frozen
class BudgetQuery:
    """A limit in USD, and what it is ``per``.

    ``deployments`` are those all of whose calls it counts; None where it depends on rules which
    calls it counts. ``scopes`` are the counters of it whose owner no caller chooses.
    """

    limit: Limit
    per: tuple[str, ...] = ()
    deployments: frozenset[str] | None = None
    scopes: frozenset[str] = frozenset()
