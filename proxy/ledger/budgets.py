"""Spend of a budget in its window, by the ledger.

Each call has a row for each budget that it was charged to. Calls from before the first charge of a
budget are summed by key, deployment and model, unless rules decide which calls count.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from proxy.ledger.rows import counter_name
from proxy.ledger.sqlite import reading
from proxy.ledger.store import Unusable
from proxy.types.limit import BudgetQuery

CHARGED_SPEND = """
SELECT b.scope, SUM(c.cost_nano_usd)
FROM budgets b CROSS JOIN charges c ON c.budget = b.id
WHERE b.name = :name AND b.scope IN (SELECT value FROM json_each(:scopes))
  AND c.started_ms >= :since AND c.started_ms < :before
GROUP BY b.id
"""
FIRST_CHARGE = "SELECT since_ms FROM charged_since WHERE name = ?"
UNCHARGED_SPEND = """
SELECT {columns} COALESCE(SUM(a.cost_nano_usd), 0)
FROM calls c JOIN attempts a USING (run, seq)
WHERE c.started_ms >= :since AND c.started_ms < :before
  AND c.deployment IN (SELECT value FROM json_each(:deployments)) {grouped}
"""
COLUMNS = {"key": "c.key", "deployment": "c.deployment", "model": "a.model"}
NEVER_MS = 2**53


def ledger_id(path: Path) -> str | None:
    """Return the name of a ledger's first run as its id, None if the file cannot be read."""
    with suppress(Unusable), reading(path, migrated=False) as file:
        row = file.execute("SELECT name FROM runs ORDER BY id LIMIT 1").fetchone()
        return None if row is None else str(row[0])
    return None


async def read_budget_spend(
    path: Path, budget: BudgetQuery, scopes: Iterable[str], since_ms: int, before_ms: int = NEVER_MS
) -> dict[str, int] | None:
    """Return the nano-USD by scope of a budget for calls that started in a period, off the loop.

    Rows that are not written yet do not count. Returns None for a budget per user, because no row
    names users. Raises ``Unusable`` if the file cannot be read.
    """
    if "user" in budget.per:
        return None
    return await asyncio.to_thread(_read_spend, path, budget, tuple(scopes), since_ms, before_ms)


def _read_spend(
    path: Path, budget: BudgetQuery, scopes: tuple[str, ...], since_ms: int, before_ms: int
) -> dict[str, int]:
    names = {scope: counter_name(scope) for scope in scopes}
    with reading(path) as file:
        parameters = {"name": budget.limit.name, "scopes": json.dumps(list(names.values()))}
        charged = dict(
            file.execute(CHARGED_SPEND, {**parameters, "since": since_ms, "before": before_ms})
        )
        uncharged: dict[str, int] = {}
        if budget.deployments is not None:
            first_charge = file.execute(FIRST_CHARGE, [budget.limit.name]).fetchone()
            until_ms = before_ms if first_charge is None else min(before_ms, first_charge[0])
            if until_ms > since_ms:
                uncharged = dict(_uncharged_spend(file, budget, since_ms, until_ms))
    return {scope: charged.get(name, 0) + uncharged.get(scope, 0) for scope, name in names.items()}


def _uncharged_spend(
    file: sqlite3.Connection, budget: BudgetQuery, since_ms: int, before_ms: int
) -> Iterator[tuple[str, int]]:
    """Yield by scope the cost of calls without charges."""
    per = budget.per
    query = UNCHARGED_SPEND.format(
        columns="".join(f"COALESCE({_column(name)}, ''), " for name in per),
        grouped=f"GROUP BY {', '.join(str(n + 1) for n in range(len(per)))}" if per else "",
    )
    deployments = json.dumps(sorted(budget.deployments or ()))
    bounds = {"since": since_ms, "before": before_ms}
    for *values, cost in file.execute(query, {**bounds, "deployments": deployments}):
        labels = [f"{name}:{value}" for name, value in zip(per, values, strict=True)]
        yield "|".join(labels), int(cost)


def _column(name: str) -> str:
    """Return the column of a scope. The policy allows letters, digits and underscores in tags."""
    tag = name.removeprefix("tag.")
    return COLUMNS[name] if tag == name else f"json_extract(c.tags, '$.\"{tag}\"')"
