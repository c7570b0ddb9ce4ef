"""The table of prices as text: rows by day, and how a table is joined with a later one.

A price that was in force is never said otherwise afterwards: a new one counts from the day on which
it was learned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal

from proxy.frozen import frozen
from proxy.policy import schema

TYPES = (
    "input",
    "cached_input",
    "cache_write",
    "cache_write_1h",
    "output",
    "reasoning",
    "audio_input",
    "audio_output",
    "web_search",
)


@frozen
class Row:
    """A price as it is written, but for the day from which it counts; None before all others."""

    since: date | None
    amounts: str


Rows = tuple[Row, ...]
Table = Mapping[str, Mapping[str, Rows]]
"""Rows by provider and name, the earliest first."""


@frozen
class TableChanges:
    """What a later table brings: names that it adds, those it prices otherwise, and those that it
    does not have any more, which stay; each as ``provider name``."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def row_of(price: schema.PriceConfig) -> Row:
    """Write a price down in the one way in which tables are written."""
    amounts = {name: getattr(price, name) for name in TYPES}
    text = flow(amounts)
    tiers = [f"{{above: {tier.above}, {flow(dict(tier))}}}" for tier in price.tiers]
    return Row(price.since, f"{text}, tiers: [{', '.join(tiers)}]" if tiers else text)


def flow(amounts: Mapping[str, object]) -> str:
    """Write USD by what it is for; what has no price is left out."""
    known = ((name, amounts.get(name)) for name in TYPES)
    return ", ".join(f"{n}: {usd.normalize():f}" for n, usd in known if isinstance(usd, Decimal))


def merged(old: Table, new: Table, today: date) -> tuple[Table, TableChanges]:
    """Join a table with a later one."""
    joined: dict[str, dict[str, Rows]] = {}
    added, changed, gone = [], [], []
    for provider in dict.fromkeys((*old, *new)):
        before, after = old.get(provider, {}), new.get(provider, {})
        names = joined[provider] = {}
        for name in sorted({*before, *after}):
            had, has = before.get(name, ()), after.get(name, ())
            names[name] = _joined(had, has, today) if had and has else had or has
            which = f"{provider} {name}"
            if not had:
                added.append(which)
            elif not has:
                gone.append(which)
            elif names[name] != had:
                changed.append(which)
    return joined, TableChanges(tuple(added), tuple(changed), tuple(gone))


def _joined(had: Rows, has: Rows, today: date) -> Rows:
    past = [row for row in had if row.since is None or row.since <= today]
    was, now = in_force(had, today), in_force(has, today)
    if was is None:
        return has
    if now is not None and now.amounts != was.amounts:
        past = [row for row in past if row.since != today] + [replace(now, since=today)]
    return (*past, *(row for row in has if row.since is not None and row.since > today))


def in_force(rows: Sequence[Row], on: date) -> Row | None:
    """Return the row of a day: the latest that had begun."""
    begun = [row for row in rows if row.since is None or row.since <= on]
    return max(begun, key=lambda row: row.since or date.min, default=None)


def written(table: Table) -> Iterable[str]:
    """Write the section ``prices``, line by line; the latest row of a name first."""
    yield "prices:"
    for provider, names in table.items():
        yield f"  {provider}:"
        for name, rows in names.items():
            if len(rows) == 1:
                yield f"    {_key(name)}: {_braced(rows[0])}"
                continue
            yield f"    {_key(name)}:"
            yield from (f"      - {_braced(row)}" for row in reversed(rows))


def _braced(row: Row) -> str:
    return f"{{{row.amounts}}}" if row.since is None else f"{{from: {row.since}, {row.amounts}}}"


def _key(name: str) -> str:
    plain = re.fullmatch(r"[a-zA-Z][a-zA-Z0-9._/-]*\*?", name)
    return name if plain else "'" + name.replace("'", "''") + "'"
