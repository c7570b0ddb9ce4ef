"""Lists the prices of a day: of the targets of a folder, and of its price table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase
from typing import Any

import orjson

from proxy.money.usage import Price, find_exact_or_wildcard_name, find_price_on
from proxy.policy import schema
from proxy.policy.catalog import list_labels
from proxy.policy.compile.targets import compile_price
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import LoadedFolder
from proxy.prices.rows import PRICE_NAMES
from proxy.types import Target

TARGET_SOURCE = "target"
COLUMNS = ("upstream", "provider", "model", "by", "from", *PRICE_NAMES)
Line = dict[str, Any]
"""A model and its price on one day, None if it has none on that day.

``by`` is ``target``, a name in the price table, or None without any price. USD are exact text.
"""


def list_prices(
    loaded: LoadedFolder, snapshot: Snapshot, day: date, model: str | None = None
) -> dict[str, Any]:
    """Return the prices of all targets on a day, and the date of the price table.

    With a ``model`` such as ``gpt-4o*``, return only its prices in targets and in the price
    table.
    """
    deployments = list_labels(snapshot).deployments.values()
    targets = dict.fromkeys(target for deployment in deployments for target in deployment.targets)
    lines = [_make_target_line(loaded, target, day) for target in targets]
    if model is not None:
        lines = [line for line in lines if fnmatchcase(line["model"], model)]
        for provider, names in loaded.policies_with_prices.prices.items():
            for name, rows in names.items():
                if fnmatchcase(name, model):
                    price = _make_price(parse_valid_prices(rows), day)
                    head = {"upstream": None, "provider": provider, "model": name, "by": name}
                    lines.append(head | {"price": price})
    as_of = loaded.policies_with_prices.price_table.as_of
    return {"at": str(day), "as_of": as_of and str(as_of), "prices": lines}


def _make_target_line(loaded: LoadedFolder, target: Target, day: date) -> Line:
    provider = target.upstream.provider
    rows = loaded.policies_with_prices.prices.get(provider or "", {})
    name = find_exact_or_wildcard_name(rows, target.model)
    source = None if not target.prices else TARGET_SOURCE
    if name is not None and parse_valid_prices(rows[name]) == target.prices:
        source = name
    line = {"upstream": target.upstream.name, "provider": provider, "model": target.model}
    return line | {"by": source, "price": _make_price(target.prices, day)}


def parse_valid_prices(rows: Any) -> tuple[Price, ...]:
    """Return the prices of a name in the table, without invalid rows, which ``check`` reports."""
    valid = (row for row in schema.iter_price_rows(rows) if isinstance(row, schema.PriceConfig))
    return tuple(map(compile_price, valid))


def _make_price(prices: Sequence[Price], day: date) -> Line | None:
    price = find_price_on(prices, day)
    if price is None:
        return None
    tiers = [{"above": tier.above, **_format_prices(tier)} for tier in price.tiers]
    start = str(price.since) if price.since else None
    return {"from": start, **_format_prices(price), "tiers": tiers}


def _format_prices(part: object) -> dict[str, str]:
    prices = ((name, getattr(part, name, None)) for name in PRICE_NAMES)
    return {name: f"{usd:f}" for name, usd in prices if usd is not None}


def format_table(listing: Mapping[str, Any]) -> str:
    """Return aligned columns. An unknown value is a dash."""
    heads = [{"by": "source"}.get(name, name.replace("_", " ")) for name in COLUMNS]
    rows = [heads, *(_format_cells(line) for line in listing["prices"])]
    used = [n for n in range(len(heads)) if n < 5 or any(row[n] != "-" for row in rows[1:])]
    widths = {n: max(len(row[n]) for row in rows) for n in used}
    lines = ("  ".join(row[n].ljust(widths[n]) for n in used).rstrip() for row in rows)
    age = f"of {listing['as_of']}" if listing["as_of"] else "of unknown age"
    return "\n".join([f"USD per million tokens on {listing['at']}; price table {age}", *lines])


def _format_cells(line: Line) -> list[str]:
    cells = {**line, **(line["price"] or {})}
    for tier in cells.get("tiers", ()):
        for name in tier.keys() & set(PRICE_NAMES):
            cells[name] = f"{cells.get(name, '-')} ({tier[name]} above {tier['above']})"
    return [cells.get(name) or "-" for name in COLUMNS]


def format_json(listing: Mapping[str, Any]) -> str:
    """Return one object. Unknown values are null, and USD are exact text."""
    return orjson.dumps(listing, option=orjson.OPT_INDENT_2).decode()


FORMATS = {"table": format_table, "json": format_json}
