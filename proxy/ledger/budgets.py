"""What a budget has seen in its window, as the ledger knows it: for counters that began anew."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from proxy.ledger.reading import reading
from proxy.ledger.store import Unusable

COLUMNS = {"key": "c.key", "deployment": "c.deployment", "model": "c.models"}
QUERY = """
SELECT COALESCE(SUM(a.cost_micro_usd), 0)
FROM calls c JOIN attempts a USING (run, seq)
WHERE c.started_ms >= ?
"""


async def spent(path: Path, since_ms: int, of: Mapping[str, str]) -> int | None:
    """Give the micro-USD that calls cost since a moment, off the loop.

    ``of`` says whose calls, by ``key``, ``deployment``, ``model`` or ``tag.NAME``; an empty value
    is that of calls without one. Users are not in the ledger: for them, and for a file that cannot
    be read, the answer is None. What was not written yet is not in it.
    """
    if "user" in of:
        return None
    try:
        return await asyncio.to_thread(_spent, path, since_ms, of)
    except Unusable:
        return None


def _spent(path: Path, since_ms: int, of: Mapping[str, str]) -> int:
    query, values = QUERY, [since_ms, *(_value(name, value) for name, value in of.items())]
    for name in of:
        query += f" AND COALESCE({_column(name)}, '') = ?"
    with reading(path) as file:
        [(found,)] = file.execute(query, values)
    return int(found)


def _column(name: str) -> str:
    """Names of tags are checked by the policy: letters, digits and underscores."""
    tag = name.removeprefix("tag.")
    return COLUMNS[name] if tag == name else f"json_extract(c.tags, '$.\"{tag}\"')"


def _value(name: str, value: str) -> str:
    return json.dumps([value], separators=(",", ":")) if name == "model" else value
