"""Price table as text, and its merge with a later one.

A price of the past never changes: a new one applies from the day of the refresh.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal

from proxy.policy import schema
from proxy.runtime.frozen import frozen

TYPES = (
    "input", "cached_input", "cache_write", "cache_write_1h", "output", "reasoning", "audio_input",
    "audio_output", "web_search",
)  # fmt: skip


@frozen
class Row:
    """Price as text, and its first day, None for the earliest price."""

    since: date | None
    amounts: str


Rows = tuple[Row, ...]
Table = Mapping[str, Mapping[str, Rows]]
"""Rows by provider and name, the earliest first."""


@frozen
class TableChanges:
    """Names (``provider name``) that a later table adds, changes, or lacks. ``gone`` ones stay."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def row_of(price: schema.PriceConfig) -> Row:
    """Return the row of a price in canonical form."""
    amounts = {name: getattr(price, name) for name in TYPES}
    text = flow(amounts)
    tiers = [f"{{above: {tier.above}, {flow(dict(tier))}}}" for tier in price.tiers]
    return Row(price.since, f"{text}, tiers: [{', '.join(tiers)}]" if tiers else text)


def flow(amounts: Mapping[str, object]) -> str:
    """Return the known prices as members of a YAML mapping."""
    known = ((name, amounts.get(name)) for name in TYPES)
    return ", ".join(f"{n}: {usd.normalize():f}" for n, usd in known if isinstance(usd, Decimal))


def merged(old: Table, new: Table, today: date) -> tuple[Table, TableChanges]:
    """Merge a table with a later one."""
    table: dict[str, dict[str, Rows]] = {}
    added, changed, gone = [], [], []
    for provider in dict.fromkeys((*old, *new)):
        old_names, new_names = old.get(provider, {}), new.get(provider, {})
        names = table[provider] = {}
        for name in sorted({*old_names, *new_names}):
            before, after = old_names.get(name, ()), new_names.get(name, ())
            names[name] = _merged(before, after, today) if before and after else before or after
            full_name = f"{provider} {name}"
            if not before:
                added.append(full_name)
            elif not after:
                gone.append(full_name)
            elif names[name] != before:
                changed.append(full_name)
    return table, TableChanges(tuple(added), tuple(changed), tuple(gone))


def _merged(before: Rows, after: Rows, today: date) -> Rows:
    past = [row for row in before if row.since is None or row.since <= today]
    old, new = in_force(before, today), in_force(after, today)
    if old is None:
        return after
    if new is not None and new.amounts != old.amounts:
        past = [row for row in past if row.since != today] + [replace(new, since=today)]
    return (*past, *(row for row in after if row.since is not None and row.since > today))


def in_force(rows: Sequence[Row], on: date) -> Row | None:
    """Return the row of a day: the latest that had started."""
    started = [row for row in rows if row.since is None or row.since <= on]
    return max(started, key=lambda row: row.since or date.min, default=None)


def written(table: Table) -> Iterable[str]:
    """Yield the lines of the section ``prices``, with the latest row of a name first."""
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
