"""Prices of a day: of the targets of a folder, and of its price table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import date
from fnmatch import fnmatchcase
from typing import Any

import orjson
from pydantic import ValidationError

from proxy.money.usage import Price, listed, price_on
from proxy.policy import schema
from proxy.policy.catalog import roster
from proxy.policy.compile.targets import price_of
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import Loaded
from proxy.prices.rows import TYPES
from proxy.runtime.frozen import frozen
from proxy.types import Target

OWN = "target"


@frozen
class PriceLine:
    """One price. ``by`` is its source: the target, a name in the price table, or None without one.
    ``price`` is None if no price has started."""

    provider: str | None
    upstream: str | None
    model: str
    by: str | None
    price: Price | None


@frozen
class Listing:
    """Prices of one day. ``as_of`` is the date of the price table."""

    at: date
    as_of: date | None
    lines: tuple[PriceLine, ...]


def listing(loaded: Loaded, snapshot: Snapshot, at: date, model: str | None = None) -> Listing:
    """Return the prices of all targets, or those of a ``model`` such as ``gpt-4o*`` in the targets
    and in the price table."""
    deployments = roster(snapshot).deployments.values()
    targets = dict.fromkeys(target for each in deployments for target in each.targets)
    lines = [_of_target(loaded, target, at) for target in targets]
    if model is not None:
        lines = [line for line in lines if fnmatchcase(line.model, model)]
        lines += _of_table(loaded, model, at)
    return Listing(at, loaded.priced.price_table.as_of, tuple(lines))


def _of_target(loaded: Loaded, target: Target, at: date) -> PriceLine:
    provider = target.upstream.provider
    rows = loaded.priced.prices.get(provider or "", {})
    name = listed(rows, target.model)
    by = None if not target.prices else OWN
    if name is not None and dated(rows[name]) == target.prices:
        by = name
    price = price_on(target.prices, at)
    return PriceLine(
        provider=provider, upstream=target.upstream.name, model=target.model, by=by, price=price
    )


def _of_table(loaded: Loaded, model: str, at: date) -> Iterator[PriceLine]:
    for provider, names in loaded.priced.prices.items():
        for name, rows in names.items():
            if fnmatchcase(name, model):
                yield PriceLine(
                    provider=provider,
                    upstream=None,
                    model=name,
                    by=name,
                    price=price_on(dated(rows), at),
                )


def dated(rows: Any) -> tuple[Price, ...]:
    """Return the prices of a name in the table, without invalid rows, which ``check`` reports."""
    prices = []
    for row in rows if isinstance(rows, list) else [rows]:
        with suppress(ValidationError):
            prices.append(price_of(schema.PriceConfig.model_validate(row)))
    return tuple(prices)


def as_table(found: Listing) -> str:
    """Return aligned columns. An unknown value is a dash."""
    heads = ["upstream", "provider", "model", "source", "from"]
    heads += [name.replace("_", " ") for name in TYPES]
    rows = [heads, *(_cells(line) for line in found.lines)]
    used = [n for n in range(len(heads)) if n < 5 or any(row[n] != "-" for row in rows[1:])]
    widths = {n: max(len(row[n]) for row in rows) for n in used}
    lines = ("  ".join(row[n].ljust(widths[n]) for n in used).rstrip() for row in rows)
    known = f"of {found.as_of}" if found.as_of else "of unknown age"
    return "\n".join([f"USD per million tokens on {found.at}; price table {known}", *lines])


def _cells(line: PriceLine) -> list[str]:
    price = line.price
    since = "-" if price is None or price.since is None else str(price.since)
    cells = [line.upstream or "-", line.provider or "-", line.model, line.by or "-", since]
    return cells + [_cell(price, name) for name in TYPES]


def _cell(price: Price | None, name: str) -> str:
    """Return the price of a token type, with its tiers."""
    base = None if price is None else getattr(price, name)
    if price is None or base is None:
        return "-"
    tiers = ((tier.above, getattr(tier, name, None)) for tier in price.tiers)
    return " ".join([f"{base:f}", *(f"({usd:f} above {n})" for n, usd in tiers if usd is not None)])


def as_json(found: Listing) -> str:
    """Return one object. Unknown values are null, and USD are exact text."""
    data = {
        "at": str(found.at),
        "as_of": str(found.as_of) if found.as_of else None,
        "prices": [_data(line) for line in found.lines],
    }
    return orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()


def _data(line: PriceLine) -> Mapping[str, Any]:
    price = line.price
    data = {"upstream": line.upstream, "provider": line.provider, "model": line.model}
    data["by"] = line.by
    if price is None:
        return {**data, "price": None}
    tiers = [{"above": tier.above, **_usd(tier)} for tier in price.tiers]
    since = str(price.since) if price.since else None
    return {**data, "price": {"from": since, **_usd(price), "tiers": tiers}}


def _usd(part: object) -> dict[str, str]:
    prices = ((name, getattr(part, name, None)) for name in TYPES)
    return {name: f"{usd:f}" for name, usd in prices if usd is not None}


FORMS = {"table": as_table, "json": as_json}
