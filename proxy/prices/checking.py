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
from proxy.policy.compile import compile_policies
from proxy.policy.files.load import Loaded, read
from proxy.policy.files.source import Finding, KeyPath, PolicyError, Problem
from proxy.policy.files.validation import report_errors
from proxy.policy.review.check import CheckReport, invalid
from proxy.types import Target

MAX_PLAUSIBLE_USD = 1_000  # per million tokens; the dearest models cost a few hundred


def check_prices(folder: Path, day: date, max_age_days: int | None) -> CheckReport:
    """Return all findings as errors. Prices are old after ``max_age_days``; None means never.

    For a folder that does not compile, return the errors of ``headrace check``.
    """
    loaded = read(folder)
    try:
        snapshot = compile_policies(loaded, None)
    except PolicyError as error:
        return invalid(folder, error)
    targets = [pair for deployment in snapshot.deployments.values() for pair in deployment.targets]
    findings = [*_missing(targets, day), *_table(loaded)]
    if max_age_days is not None:
        findings += _old(loaded, targets, day, max_age_days)
    for path, message in findings:
        loaded.document.report(path, message)
    problems: Sequence[Problem] = sorted(set(loaded.document.problems))
    names = sum(len(names) for names in loaded.priced.prices.values())
    state = f"invalid prices, {counted(len(problems), 'error')}" if problems else "valid prices"
    summary = f"{state} ({counted(names, 'model')} in the price table)"
    return CheckReport(folder=folder, summary=summary, errors=tuple(problems))


def _missing(targets: list[tuple[KeyPath, Target]], day: date) -> Iterator[Finding]:
    for path, target in targets:
        missing = target.missing_price(day)
        if missing is not None:
            message = f'model {quoted(target.model)} has {missing}. Add "price:" to this target.'
            yield path, message


def _old(
    loaded: Loaded, targets: list[tuple[KeyPath, Target]], day: date, max_age_days: int
) -> Iterator[Finding]:
    as_of = loaded.priced.price_table.as_of
    if loaded.priced.prices and as_of is None:
        message = 'the age of these prices is unknown. Add "price_table: {as_of: YYYY-MM-DD}".'
        yield ("prices",), message
    elif as_of is not None and (day - as_of).days > max_age_days:
        age = counted((day - as_of).days, "day")
        source, fix = "", "Run `headrace prices refresh`"
        if not loaded.has_price_table:
            source, fix = " of this Headrace release", f"{fix} or update Headrace"
        yield ("price_table", "as_of"), f"the prices{source} are {age} old. {fix}."
    for path, target in targets:
        price = price_on(target.prices, day)
        is_in_target = loaded.document.path_in_files((*path, "price")) == (*path, "price")
        if is_in_target and price is not None and price.since is not None:
            age_days = (day - price.since).days
            if age_days > max_age_days:
                age = counted(age_days, "day")
                message = f"the price of model {quoted(target.model)} is {age} old. Check it."
                yield (*path, "price"), message


def _table(loaded: Loaded) -> Iterator[Finding]:
    for provider, names in loaded.priced.prices.items():
        for name, value in names.items():
            path: KeyPath = ("prices", provider, name)
            rows: list[tuple[int, schema.PriceConfig]] = []
            for index, row in enumerate(value if isinstance(value, list) else [value]):
                try:
                    rows.append((index, schema.PriceConfig.model_validate(row)))
                except ValidationError as error:
                    report_errors(loaded.document, error, schema.PriceConfig, (*path, index))
            yield from _conflicts(path, rows)
            for index, price in rows:
                row_path = loaded.document.path_in_files((*path, index))
                yield from ((row_path, problem) for problem in _implausible(price))


def _conflicts(path: KeyPath, rows: list[tuple[int, schema.PriceConfig]]) -> Iterator[Finding]:
    """Yield rows that start on the same day, so that it is undefined which one applies."""
    for (_, earlier_row), (index, later_row) in combinations(rows, 2):
        if earlier_row.since == later_row.since:
            start = (
                f"also starts on {earlier_row.since}"
                if earlier_row.since
                else "also has no start day"
            )
            verb = "repeats" if earlier_row == later_row else "contradicts"
            yield (*path, index), f"{verb} another row, which {start}. Remove one of them."


def _implausible(row: schema.PriceConfig) -> Iterator[str]:
    parts: list[Any] = [row, *row.tiers]
    for part in parts:
        for name, usd in part:
            if isinstance(usd, Decimal) and usd > MAX_PLAUSIBLE_USD:
                yield f"{name} is implausible: {usd:f} USD per million tokens. Check the unit."
    if row.input is not None and row.cached_input is not None and row.cached_input > row.input:
        yield "cached_input costs more than input. Check both prices."
    bounds = [tier.above for tier in row.tiers]
    if len(set(bounds)) < len(bounds):
        yield "two tiers start above the same number of tokens. Remove one of them."
