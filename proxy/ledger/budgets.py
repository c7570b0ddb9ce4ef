"""What a budget has seen in its window, as the ledger knows it: for counters that began anew."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from proxy.ledger.reading import reading
from proxy.ledger.store import Unusable

COLUMNS = {"key": "c.key", "deployment": "c.deployment", "model": "a.model"}
QUERY = """
SELECT COALESCE(SUM(a.cost_nano_usd), 0)
FROM calls c JOIN attempts a USING (run, seq)
WHERE c.started_ms >= ?
"""
AMONG = " AND c.deployment IN (SELECT value FROM json_each(?))"


Values = tuple[str, ...]


async def spent(
    path: Path,
    since_ms: int,
    of: Mapping[str, str],
    deployments: frozenset[str] | None = None,
    before_ms: int | None = None,
) -> int | None:
    """Return the nano-USD that calls cost since a moment, and before another where one is given,
    off the loop: of some ``deployments``, or of all. Raise ``Unusable`` if the file cannot be read.

    ``of`` says whose calls, by ``key``, ``deployment``, ``model`` or ``tag.NAME``; an empty value
    is that of calls without one. Users are not in the ledger: for them the answer is None. What was
    not written yet is not in it.
    """
    if "user" in of:
        return None
    return await asyncio.to_thread(_spent, path, since_ms, of, deployments, before_ms)


def _spent(
    path: Path,
    since_ms: int,
    of: Mapping[str, str],
    deployments: frozenset[str] | None,
    before_ms: int | None,
) -> int:
    query, values = QUERY, [since_ms, *of.values()]
    for name in of:
        query += f" AND COALESCE({_column(name)}, '') = ?"
    if before_ms is not None:
        query += " AND c.started_ms < ?"
        values.append(before_ms)
    if deployments is not None:
        query += AMONG
        values.append(json.dumps(sorted(deployments)))
    with reading(path) as file:
        [(found,)] = file.execute(query, values)
    return int(found)


async def by(
    path: Path, since_ms: int, per: Sequence[str], deployments: frozenset[str]
) -> dict[Values, int] | None:
    """Give the same for all values of what a budget is per, but a user or a model."""
    try:
        return await asyncio.to_thread(_by, path, since_ms, per, deployments)
    except Unusable:
        return None


def _by(
    path: Path, since_ms: int, per: Sequence[str], deployments: frozenset[str]
) -> dict[Values, int]:
    columns = "".join(f"COALESCE({_column(name)}, ''), " for name in per)
    query = QUERY.replace("SELECT", f"SELECT {columns}") + AMONG
    if per:
        query += f" GROUP BY {', '.join(str(n + 1) for n in range(len(per)))}"
    with reading(path) as file:
        rows = file.execute(query, [since_ms, json.dumps(sorted(deployments))]).fetchall()
    return {tuple(row[:-1]): int(row[-1]) for row in rows}


def _column(name: str) -> str:
    """Names of tags are checked by the policy: letters, digits and underscores."""
    tag = name.removeprefix("tag.")
    return COLUMNS[name] if tag == name else f"json_extract(c.tags, '$.\"{tag}\"')"
