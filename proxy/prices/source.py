"""Reads prices from the installed package genai-prices, without the network.

A price that a row cannot express is omitted, because an unknown price is better than a wrong one.
The package is an extra, so this module is imported on demand.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from importlib import metadata

from genai_prices import data, types

from proxy.prices.rows import PriceRow, Rows, Table, format_yaml_members
from proxy.types.providers import PROVIDERS

PACKAGE_NAME = "genai-prices"
# OpenRouter's thousand models would take the file past 250 kB. A target can have its own price.
PRICED_PROVIDERS = tuple(sorted(name for name, p in PROVIDERS.items() if p.is_priced))
PACKAGE_FIELDS = {
    "input": "input_mtok",
    "cached_input": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
    "output": "output_mtok",
    "reasoning": "output_reasoning_mtok",
    "audio_input": "input_audio_mtok",
    "audio_output": "output_audio_mtok",
    "web_search": "web_searches_kcount",
}
TIERED_PRICES = {"input", "cached_input", "cache_write", "cache_write_1h", "output"}
IGNORED_FIELDS = {"cache_audio_read_mtok", "storage_searches_kcount"}
"""Prices that a table may omit: file searches and cached audio, which few calls use."""
FIRST_DAY = date(2000, 1, 1)
Amount = Decimal | types.TieredPrices
Amounts = dict[str, Amount]


def read_licence() -> str:
    """Return the licence of the package, which must accompany its data."""
    return metadata.distribution(PACKAGE_NAME).read_text("licenses/LICENSE") or ""


def build_table() -> Table:
    """Return all prices that a row can express."""
    providers = {provider.id: provider for provider in data.providers}
    return {name: _list_provider_rows(providers[name]) for name in PRICED_PROVIDERS}


def _list_provider_rows(provider: types.Provider) -> dict[str, Rows]:
    """Return a provider's rows, including models of others that it sells at their price.

    The package's search decides which model a name means: its first match wins.
    """
    other_ids = set(provider.fallback_model_providers or ())
    resold = [
        model
        for other_provider in data.providers
        if other_provider.id in other_ids
        for model in other_provider.models
    ]
    section: dict[str, Rows] = {}
    for model in (*provider.models, *resold):
        if rows := _list_model_rows(model):
            names = {model.id, *_list_name_patterns(model.match)}
            for name in [name for name in names if name[0].isalnum()]:
                exact = name.removesuffix("*")
                if provider.find_model(exact, all_providers=data.providers) is model:
                    section[name] = rows
    return dict(sorted(section.items()))


def _list_name_patterns(match: types.MatchLogic) -> list[str]:
    """Return names and prefixes that a clause matches. ``contains`` matches more than these."""
    if isinstance(match, types.ClauseOr):
        return [name for clause in match.or_ for name in _list_name_patterns(clause)]
    if isinstance(match, types.ClauseAnd):  # a prefix with exceptions matches itself only
        return [
            name.removesuffix("*") for clause in match.and_ for name in _list_name_patterns(clause)
        ]
    if isinstance(match, types.ClauseRegex):
        return []
    (text,) = vars(match).values()
    is_prefix = isinstance(match, types.ClauseStartsWith | types.ClauseContains)
    return [text + "*" if is_prefix else text]


def _list_model_rows(model: types.ModelInfo) -> Rows:
    """Return a model's prices by day, none if they are not per token."""
    rows: list[PriceRow] = []
    for day, source in _iter_highest_prices_by_day(model):
        amounts = _read_amounts(source, is_embedding="embed" in model.id)
        if amounts is None:
            return ()
        text = _format_row(amounts)
        if not rows or rows[-1].amounts != text:
            rows.append(PriceRow(day, text))
    return tuple(rows)


def _iter_highest_prices_by_day(
    model: types.ModelInfo,
) -> Iterator[tuple[date | None, types.ModelPrice]]:
    """Yield each day on which prices change, oldest first, with the highest price of that day."""
    days: set[date] = set()
    hours = {time(0)}
    for price in model.prices if isinstance(model.prices, list) else ():
        constraint = price.constraint
        if isinstance(constraint, types.StartDateConstraint):
            days.add(constraint.start_date)
        elif constraint is not None:
            hours |= {constraint.start_time, constraint.end_time}
    for day in (FIRST_DAY, *sorted(days)):
        prices = [model.get_prices(datetime.combine(day, hour)) for hour in hours]
        highest = max(
            prices,
            key=lambda price: [
                _get_base_amount(getattr(price, key) or Decimal(0))
                for key in PACKAGE_FIELDS.values()
            ],
        )
        yield (None if day == FIRST_DAY else day), highest


def _read_amounts(source: types.ModelPrice, *, is_embedding: bool) -> Amounts | None:
    """Return the prices by token type, None if a part is missing or not per token."""
    charged = {key for key, amount in vars(source).items() if amount is not None}
    required = {"input_mtok"} if is_embedding else {"input_mtok", "output_mtok"}
    if charged - IGNORED_FIELDS - set(PACKAGE_FIELDS.values()) or required - charged:
        return None
    amounts: Amounts = {
        name: getattr(source, key) for name, key in PACKAGE_FIELDS.items() if key in charged
    }
    if amounts.get("reasoning") == amounts.get("output"):
        amounts.pop("reasoning", None)
    tiered = {name for name, amount in amounts.items() if isinstance(amount, types.TieredPrices)}
    return None if tiered - TIERED_PRICES else amounts


def _format_row(amounts: Amounts) -> str:
    text = format_yaml_members({name: _get_base_amount(amount) for name, amount in amounts.items()})
    tiered = [amount for amount in amounts.values() if isinstance(amount, types.TieredPrices)]
    tiers = []
    for start in sorted({tier.start for amount in tiered for tier in amount.tiers}):
        prices = {name: _find_amount_above(amount, start) for name, amount in amounts.items()}
        changed = {
            name: usd for name, usd in prices.items() if usd != _get_base_amount(amounts[name])
        }
        tiers.append(f"{{above: {start}, {format_yaml_members(changed)}}}")
    return f"{text}, tiers: [{', '.join(tiers)}]" if tiers else text


def _get_base_amount(amount: Amount) -> Decimal:
    return amount.base if isinstance(amount, types.TieredPrices) else amount


def _find_amount_above(amount: Amount, start: int) -> Decimal:
    if not isinstance(amount, types.TieredPrices):
        return amount
    prices = [tier.price for tier in amount.tiers if tier.start <= start]
    return prices[-1] if prices else amount.base
