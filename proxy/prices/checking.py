"""What is doubtful about the prices of a folder: targets without one, old ones, impossible rows.

All rows are looked at, those of models that nobody uses too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from proxy.plural import counted
from proxy.policy import schema
from proxy.policy.compile.compiler import compile_policies
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import Loaded, note, read
from proxy.policy.files.source import Finding, Path_, PolicyError, Problem
from proxy.policy.review.check_report import CheckReport, refused
from proxy.types import Target
from proxy.usage import in_force

ABSURD_USD = 1_000  # per million tokens; the dearest models cost a few hundred


def check(folder: Path, at: date, oldest_days: int | None) -> CheckReport:
    """Return all that is doubtful as errors. Prices are old after ``oldest_days``; None: never.

    Of a folder that cannot be compiled it is what ``headrace check`` finds.
    """
    loaded = read(folder)
    try:
        snapshot = compile_policies(loaded, None)
    except PolicyError as error:
        return refused(folder, error)
    found = [*_unpriced(snapshot, at), *_table(loaded)]
    if oldest_days is not None:
        found += _old(loaded, snapshot, at, oldest_days)
    for path, message in found:
        loaded.document.complain(path, message)
    problems: Sequence[Problem] = sorted(set(loaded.document.problems))
    names = sum(len(names) for names in loaded.priced.prices.values())
    state = f"{len(problems)} doubtful" if problems else "good"
    summary = f"{state}, names with a price: {names}"
    return CheckReport(folder=folder, summary=summary, errors=tuple(problems))


def _targets(snapshot: Snapshot) -> Iterator[tuple[Path_, Target]]:
    for deployment in snapshot.deployments.values():
        yield from deployment.targets


def _unpriced(snapshot: Snapshot, at: date) -> Iterator[Finding]:
    for path, target in _targets(snapshot):
        lack = target.lack_of_price(at)
        if lack is not None:
            yield path, f"{target.model} has {lack}"


def _old(loaded: Loaded, snapshot: Snapshot, at: date, days: int) -> Iterator[Finding]:
    """Return an old table, and old prices that targets have of their own with a date."""
    as_of = loaded.priced.price_table.as_of
    if loaded.priced.prices and as_of is None:
        yield ("prices",), "nobody knows how old they are: say price_table: {as_of: DAY}"
    elif as_of is not None and (at - as_of).days > days:
        age = counted((at - as_of).days, "day")
        whose = "" if loaded.brings_prices else " that come with Headrace"
        yield ("price_table", "as_of"), f"the prices{whose} were taken {age} ago"
    for path, target in _targets(snapshot):
        price = in_force(target.prices, at)
        own = loaded.document.written((*path, "price")) == (*path, "price")
        if own and price is not None and price.since is not None:
            old = (at - price.since).days
            if old > days:
                age = counted(old, "day")
                yield (*path, "price"), f"the price of {target.model} is {age} old"


def _table(loaded: Loaded) -> Iterator[Finding]:
    for provider, names in loaded.priced.prices.items():
        for name, rows_of_name in names.items():
            path: Path_ = ("prices", provider, name)
            written = rows_of_name if isinstance(rows_of_name, list) else [rows_of_name]
            rows = [(index, _row(loaded, (*path, index), row)) for index, row in enumerate(written)]
            known = [(index, row) for index, row in rows if row is not None]
            yield from _clashing(path, known)
            for index, row in known:
                yield from ((loaded.document.written((*path, index)), why) for why in _absurd(row))


def _row(loaded: Loaded, path: Path_, row: Any) -> schema.PriceConfig | None:
    try:
        return schema.PriceConfig.model_validate(row)
    except ValidationError as error:
        note(loaded.document, error, schema.PriceConfig, path)
        return None


def _clashing(path: Path_, rows: list[tuple[int, schema.PriceConfig]]) -> Iterator[Finding]:
    """Return rows that begin on the same day: which of them counts is chance."""
    for (_, one), (index, other) in combinations(rows, 2):
        if one.since == other.since:
            day = "before all others" if one.since is None else f"on {one.since}"
            what = "overlaps" if one == other else "contradicts"
            yield (*path, index), f"{what} another row, which begins {day} too"


def _absurd(row: schema.PriceConfig) -> Iterator[str]:
    parts: list[Any] = [row, *row.tiers]
    for part in parts:
        for name, usd in part:
            if isinstance(usd, Decimal) and usd > ABSURD_USD:
                yield f"{name} is absurd: {usd:f} USD per million tokens"
    if row.input is not None and row.cached_input is not None and row.cached_input > row.input:
        yield "cached input is dearer than input"
    above = [tier.above for tier in row.tiers]
    if len(set(above)) < len(above):
        yield "two tiers begin above the same number of tokens"
