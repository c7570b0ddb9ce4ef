"""Lists the prices of a day: of the targets of a folder, and of its price table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from proxy.runtime.frozen import frozen
from proxy.types import Target

TARGET_SOURCE = "target"


@frozen
class PriceLine:
    """Price of a model on one day, None if it has none on that day.

    ``source`` is ``target``, a name in the price table, or None without any price.
    """

    provider: str | None
    upstream: str | None
    model: str
    source: str | None
    price: Price | None


@frozen
class PriceListing:
    """Prices of one day. ``as_of`` is the date of the price table."""

    day: date
    as_of: date | None
    lines: tuple[PriceLine, ...]


def list_prices(
    loaded: LoadedFolder, snapshot: Snapshot, day: date, model: str | None = None
) -> PriceListing:
    """Return the prices of all targets.

    With a ``model`` such as ``gpt-4o*``, return only its prices in targets and in the price
    table.
    """
    deployments = list_labels(snapshot).deployments.values()
    targets = dict.fromkeys(target for deployment in deployments for target in deployment.targets)
    lines = [_make_target_line(loaded, target, day) for target in targets]
    if model is not None:
        lines = [line for line in lines if fnmatchcase(line.model, model)]
        lines += _list_table_lines(loaded, model, day)
    return PriceListing(day, loaded.policies_with_prices.price_table.as_of, tuple(lines))


def _make_target_line(loaded: LoadedFolder, target: Target, day: date) -> PriceLine:
    provider = target.upstream.provider
    rows = loaded.policies_with_prices.prices.get(provider or "", {})
    name = find_exact_or_wildcard_name(rows, target.model)
    source = None if not target.prices else TARGET_SOURCE
    if name is not None and parse_valid_prices(rows[name]) == target.prices:
        source = name
    price = find_price_on(target.prices, day)
    return PriceLine(provider, target.upstream.name, target.model, source=source, price=price)


def _list_table_lines(loaded: LoadedFolder, model: str, day: date) -> Iterator[PriceLine]:
    for provider, names in loaded.policies_with_prices.prices.items():
        for name, rows in names.items():
            if fnmatchcase(name, model):
                price = find_price_on(parse_valid_prices(rows), day)
                yield PriceLine(provider, None, name, source=name, price=price)


def parse_valid_prices(rows: Any) -> tuple[Price, ...]:
    """Return the prices of a name in the table, without invalid rows, which ``check`` reports."""
    valid = (row for row in schema.iter_price_rows(rows) if isinstance(row, schema.PriceConfig))
    return tuple(map(compile_price, valid))


def format_table(listing: PriceListing) -> str:
    """Return aligned columns. An unknown value is a dash."""
    heads = ["upstream", "provider", "model", "source", "from"]
    heads += [name.replace("_", " ") for name in PRICE_NAMES]
    rows = [heads, *(_format_cells(line) for line in listing.lines)]
    used = [n for n in range(len(heads)) if n < 5 or any(row[n] != "-" for row in rows[1:])]
    widths = {n: max(len(row[n]) for row in rows) for n in used}
    lines = ("  ".join(row[n].ljust(widths[n]) for n in used).rstrip() for row in rows)
    age = f"of {listing.as_of}" if listing.as_of else "of unknown age"
    return "\n".join([f"USD per million tokens on {listing.day}; price table {age}", *lines])


def _format_cells(line: PriceLine) -> list[str]:
    price = line.price
    start = "-" if price is None or price.since is None else str(price.since)
    cells = [line.upstream or "-", line.provider or "-", line.model, line.source or "-", start]
    for name in PRICE_NAMES:
        base = None if price is None else getattr(price, name)
        tiers = [(tier.above, getattr(tier, name, None)) for tier in price.tiers] if price else []
        texts = [f"({usd:f} above {tokens})" for tokens, usd in tiers if usd is not None]
        cells.append("-" if base is None else " ".join([f"{base:f}", *texts]))
    return cells


def format_json(listing: PriceListing) -> str:
    """Return one object. Unknown values are null, and USD are exact text."""
    data = {
        "at": str(listing.day),
        "as_of": str(listing.as_of) if listing.as_of else None,
        "prices": [_make_json_object(line) for line in listing.lines],
    }
    return orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()


def _make_json_object(line: PriceLine) -> Mapping[str, Any]:
    price = line.price
    data = {"upstream": line.upstream, "provider": line.provider, "model": line.model}
    data["by"] = line.source
    if price is None:
        return {**data, "price": None}
    tiers = [{"above": tier.above, **_format_price_fields(tier)} for tier in price.tiers]
    start = str(price.since) if price.since else None
    return {**data, "price": {"from": start, **_format_price_fields(price), "tiers": tiers}}


def _format_price_fields(part: object) -> dict[str, str]:
    prices = ((name, getattr(part, name, None)) for name in PRICE_NAMES)
    return {name: f"{usd:f}" for name, usd in prices if usd is not None}


FORMATS = {"table": format_table, "json": format_json}
