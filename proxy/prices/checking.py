"""Checks the prices of a folder: targets without a price, old prices and implausible rows.

Rows of models that no target uses are checked too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from proxy.errors.words import counted, quoted
from proxy.money.usage import price_on
from proxy.policy import schema
from proxy.policy.compile.compiler import compile_policies
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import Loaded, note, read
from proxy.policy.files.source import Finding, KeyPath, PolicyError, Problem
from proxy.policy.review.check_report import CheckReport, invalid
from proxy.types import Target

MAX_PLAUSIBLE_USD = 1_000  # per million tokens; the dearest models cost a few hundred


def check(folder: Path, at: date, oldest_days: int | None) -> CheckReport:
    """Return all findings as errors. Prices are old after ``oldest_days``; None means never.

    A folder that does not compile gives the errors of ``headrace check``.
    """
    loaded = read(folder)
    try:
        snapshot = compile_policies(loaded, None)
    except PolicyError as error:
        return invalid(folder, error)
    found = [*_unpriced(snapshot, at), *_table(loaded)]
    if oldest_days is not None:
        found += _old(loaded, snapshot, at, oldest_days)
    for path, message in found:
        loaded.document.complain(path, message)
    problems: Sequence[Problem] = sorted(set(loaded.document.problems))
    names = sum(len(names) for names in loaded.priced.prices.values())
    state = f"invalid prices, {counted(len(problems), 'error')}" if problems else "valid prices"
    summary = f"{state} ({counted(names, 'model')} in the price table)"
    return CheckReport(folder=folder, summary=summary, errors=tuple(problems))


def _targets(snapshot: Snapshot) -> Iterator[tuple[KeyPath, Target]]:
    for deployment in snapshot.deployments.values():
        yield from deployment.targets


def _unpriced(snapshot: Snapshot, at: date) -> Iterator[Finding]:
    for path, target in _targets(snapshot):
        lack = target.missing_price(at)
        if lack is not None:
            message = f'model {quoted(target.model)} has {lack}. Add "price:" to this target.'
            yield path, message


def _old(loaded: Loaded, snapshot: Snapshot, at: date, days: int) -> Iterator[Finding]:
    """Yield an old price table, and old dated prices of targets."""
    as_of = loaded.priced.price_table.as_of
    if loaded.priced.prices and as_of is None:
        message = 'the age of these prices is unknown. Add "price_table: {as_of: YYYY-MM-DD}".'
        yield ("prices",), message
    elif as_of is not None and (at - as_of).days > days:
        age = counted((at - as_of).days, "day")
        source, fix = "", "Run `headrace prices refresh`"
        if not loaded.brings_prices:
            source, fix = " of this Headrace release", f"{fix} or update Headrace"
        yield ("price_table", "as_of"), f"the prices{source} are {age} old. {fix}."
    for path, target in _targets(snapshot):
        price = price_on(target.prices, at)
        is_own = loaded.document.written((*path, "price")) == (*path, "price")
        if is_own and price is not None and price.since is not None:
            age_days = (at - price.since).days
            if age_days > days:
                age = counted(age_days, "day")
                message = f"the price of model {quoted(target.model)} is {age} old. Check it."
                yield (*path, "price"), message


def _table(loaded: Loaded) -> Iterator[Finding]:
    for provider, names in loaded.priced.prices.items():
        for name, rows_of_name in names.items():
            path: KeyPath = ("prices", provider, name)
            given = rows_of_name if isinstance(rows_of_name, list) else [rows_of_name]
            parsed = [(index, _row(loaded, (*path, index), row)) for index, row in enumerate(given)]
            rows = [(index, row) for index, row in parsed if row is not None]
            yield from _clashing(path, rows)
            for index, row in rows:
                written = loaded.document.written((*path, index))
                yield from ((written, problem) for problem in _implausible(row))


def _row(loaded: Loaded, path: KeyPath, row: Any) -> schema.PriceConfig | None:
    try:
        return schema.PriceConfig.model_validate(row)
    except ValidationError as error:
        note(loaded.document, error, schema.PriceConfig, path)
        return None


def _clashing(path: KeyPath, rows: list[tuple[int, schema.PriceConfig]]) -> Iterator[Finding]:
    """Yield rows that start on the same day, so that it is undefined which one applies."""
    for (_, one), (index, other) in combinations(rows, 2):
        if one.since == other.since:
            day = "also has no start day" if one.since is None else f"also starts on {one.since}"
            what = "repeats" if one == other else "contradicts"
            yield (*path, index), f"{what} another row, which {day}. Remove one of them."


def _implausible(row: schema.PriceConfig) -> Iterator[str]:
    parts: list[Any] = [row, *row.tiers]
    for part in parts:
        for name, usd in part:
            if isinstance(usd, Decimal) and usd > MAX_PLAUSIBLE_USD:
                yield f"{name} is implausible: {usd:f} USD per million tokens. Check the unit."
    if row.input is not None and row.cached_input is not None and row.cached_input > row.input:
        yield "cached_input costs more than input. Check both prices."
    above = [tier.above for tier in row.tiers]
    if len(set(above)) < len(above):
        yield "two tiers start above the same number of tokens. Remove one of them."
