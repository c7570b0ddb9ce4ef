"""Rows of a price table: their text, and the merge of a table with a later one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Literal

from proxy.policy import schema
from proxy.runtime.frozen import frozen

PRICE_NAMES = (
    "input", "cached_input", "cache_write", "cache_write_1h", "output", "reasoning", "audio_input",
    "audio_output", "web_search",
)  # fmt: skip


@frozen
class PriceRow:
    """A price as members of a YAML mapping, and its first day, None for the earliest price."""

    since: date | None
    amounts: str


Rows = tuple[PriceRow, ...]
Table = Mapping[str, Mapping[str, Rows]]
"""Rows by provider and name, the earliest first."""


TableChanges = Mapping[str, Literal["added", "changed", "missing"]]
"""Names (``provider name``) that a new table adds, changes or lacks. Missing rows are kept."""


def make_row(price: schema.PriceConfig) -> PriceRow:
    """Return the row of a price in canonical form."""
    amounts = {name: getattr(price, name) for name in PRICE_NAMES}
    text = format_yaml_members(amounts)
    tiers = [f"{{above: {tier.above}, {format_yaml_members(dict(tier))}}}" for tier in price.tiers]
    return PriceRow(price.since, f"{text}, tiers: [{', '.join(tiers)}]" if tiers else text)


def format_yaml_members(amounts: Mapping[str, object]) -> str:
    """Return the known prices as members of a YAML mapping."""
    prices = ((name, amounts.get(name)) for name in PRICE_NAMES)
    return ", ".join(f"{n}: {usd.normalize():f}" for n, usd in prices if isinstance(usd, Decimal))


def merge_tables(old: Table, new: Table, today: date) -> tuple[Table, TableChanges]:
    """Return a table with the prices of both. A price that differs starts ``today``."""
    table: dict[str, dict[str, Rows]] = {}
    changes: dict[str, Literal["added", "changed", "missing"]] = {}
    for provider in dict.fromkeys((*old, *new)):
        old_names, new_names = old.get(provider, {}), new.get(provider, {})
        names = table[provider] = {}
        for name in sorted({*old_names, *new_names}):
            old_rows, new_rows = old_names.get(name, ()), new_names.get(name, ())
            is_in_both = old_rows and new_rows
            names[name] = (
                _merge_rows(old_rows, new_rows, today) if is_in_both else old_rows or new_rows
            )
            full_name = f"{provider} {name}"
            if not old_rows:
                changes[full_name] = "added"
            elif not new_rows:
                changes[full_name] = "missing"
            elif names[name] != old_rows:
                changes[full_name] = "changed"
    return table, changes


def _merge_rows(old_rows: Rows, new_rows: Rows, today: date) -> Rows:
    past = [row for row in old_rows if row.since is None or row.since <= today]
    old, new = find_current_row(old_rows, today), find_current_row(new_rows, today)
    if old is None:
        return new_rows
    if new is not None and new.amounts != old.amounts:
        past = [row for row in past if row.since != today] + [replace(new, since=today)]
    return (*past, *(row for row in new_rows if row.since is not None and row.since > today))


def find_current_row(rows: Sequence[PriceRow], day: date) -> PriceRow | None:
    """Return the row with the latest start on or before ``day``."""
    started = [row for row in rows if row.since is None or row.since <= day]
    return max(started, key=lambda row: row.since or date.min, default=None)


def format_table_lines(table: Table) -> Iterable[str]:
    """Yield the lines of the section ``prices``, with the latest row of a name first."""
    yield "prices:"
    for provider, names in table.items():
        yield f"  {provider}:"
        for name, rows in names.items():
            is_plain = re.fullmatch(r"[a-zA-Z][a-zA-Z0-9._/-]*\*?", name)
            key = name if is_plain else "'" + name.replace("'", "''") + "'"
            if len(rows) == 1:
                yield f"    {key}: {_format_mapping(rows[0])}"
                continue
            yield f"    {key}:"
            yield from (f"      - {_format_mapping(row)}" for row in reversed(rows))


def _format_mapping(row: PriceRow) -> str:
    return f"{{{row.amounts}}}" if row.since is None else f"{{from: {row.since}, {row.amounts}}}"
