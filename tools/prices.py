"""Writes ``policies/prices.yaml`` from the installed genai-prices, without the network.

    python -m tools.prices > policies/prices.yaml
    python -m tools.prices --check

What a price row cannot say is left out and told on stderr: an unknown price is better than a
wrong one.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from importlib import metadata
from pathlib import Path

from genai_prices import data, types

FILE = Path(__file__).parent.parent / "policies" / "prices.yaml"
VERSION = "0.2.3"  # of genai-prices, and the day its prices were taken: change both together
TAKEN = date(2026, 11, 21)
# OpenRouter's thousand models would take the file past 250 kB; a target can say its own price.
PROVIDERS = (
    "anthropic",
    "aws",
    "azure",
    "cerebras",
    "cohere",
    "deepseek",
    "fireworks",
    "google",
    "groq",
    "mistral",
    "openai",
    "perplexity",
    "together",
    "x-ai",
)
UNITS = {
    "input": "input_mtok",
    "cached_input": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "output": "output_mtok",
    "reasoning": "output_reasoning_mtok",
    "audio_input": "input_audio_mtok",
    "audio_output": "output_audio_mtok",
}
TIERED = {"input", "cached_input", "cache_write", "output"}
# What costs beside the text, but only a caller who asks for it: tools, an hour's cache, old audio.
ASKED_FOR = {
    "cache_audio_read_mtok",
    "cache_write_1h_mtok",
    "storage_searches_kcount",
    "web_searches_kcount",
}
BEFORE_ALL = date(2000, 1, 1)
HEADER = f"""\
# yaml-language-server: $schema=schema.json
# Prices in USD per million tokens, by provider (an upstream's `provider:`) and model.
# Written by `python -m tools.prices`: do not edit, say a price of your own at the target instead.
# From genai-prices {VERSION} as of {TAKEN}, under the MIT licence: see prices.LICENSE.
# `name*` stands for all models that begin so. Of dated rows the latest that has begun counts; a row
# without `from` counts before them. These are the prices of the standard service tier; where they
# change with the hour, those of the dearest hour. What is also charged by other measures (pictures,
# minutes, requests) or said to be free is not here: its price is unknown, not 0.
price_table: {{as_of: {TAKEN}}}
prices:
"""

Amount = Decimal | types.TieredPrices
Amounts = dict[str, Amount]
Table = dict[str, str]


def render() -> str:
    """Give the whole file. Raises ``SystemExit`` when another version is installed."""
    installed = metadata.version("genai-prices")
    if installed != VERSION:
        raise SystemExit(f"genai-prices {installed} is installed: set VERSION and TAKEN anew")
    known = {provider.id: provider for provider in data.providers}
    return HEADER + "".join(map(_section, (known[name] for name in PROVIDERS)))


def _section(provider: types.Provider) -> str:
    """Give a provider's part, with the models of others that it sells at their price."""
    others = set(provider.fallback_model_providers or ())
    sold = [model for other in data.providers if other.id in others for model in other.models]
    table: Table = {}
    unpriced = []
    for model in (*provider.models, *sold):
        price = _price(model)
        if price is None:
            unpriced.append(model.id)
            continue
        table |= {name: price for name in _names(model) if _finds(provider, name) is model}
    print(f"{provider.id}: {len(table)} names; left out: {unpriced}", file=sys.stderr)
    lines = (f"    {_key(name)}:{table[name]}\n" for name in sorted(table))
    return f"  {provider.id}:\n" + "".join(lines)


def _finds(provider: types.Provider, name: str) -> types.ModelInfo | None:
    """Ask the source, where the first match wins, so that no name or prefix here says otherwise."""
    return provider.find_model(name.removesuffix("*"), all_providers=data.providers)


def _names(model: types.ModelInfo) -> set[str]:
    """Give the exact names and the prefixes by which a model is known."""
    return {name for name in (model.id, *_said(model.match)) if name[0].isalnum()}


def _said(match: types.MatchLogic) -> list[str]:
    """Give names and prefixes that a clause surely matches; ``contains`` matches yet more."""
    if isinstance(match, types.ClauseOr):
        return [name for each in match.or_ for name in _said(each)]
    if isinstance(match, types.ClauseAnd):  # a prefix with exceptions is only good for itself
        return [name.removesuffix("*") for each in match.and_ for name in _said(each)]
    if isinstance(match, types.ClauseRegex):
        return []
    (text,) = vars(match).values()
    begins = isinstance(match, types.ClauseStartsWith | types.ClauseContains)
    return [text + "*" if begins else text]


def _price(model: types.ModelInfo) -> str | None:
    """Give a model's price as YAML after its key, None when it cannot be said by the token."""
    rows: list[tuple[date | None, str]] = []
    for day, source in _dated(model):
        amounts = _amounts(source, embeds="embed" in model.id)
        if amounts is None:
            return None
        row = _row(amounts)
        if not rows or rows[-1][1] != row:
            rows.append((day, row))
    if len(rows) == 1:
        return f" {{{rows[0][1]}}}"
    dated = (f"{{from: {day}, {row}}}" if day else f"{{{row}}}" for day, row in reversed(rows))
    return "".join(f"\n      - {row}" for row in dated)


def _dated(model: types.ModelInfo) -> Iterator[tuple[date | None, types.ModelPrice]]:
    """Give the prices from each day on that they change, oldest first; of a day the dearest."""
    days: set[date] = set()
    hours = {time(0)}
    for each in model.prices if isinstance(model.prices, list) else ():
        if isinstance(each.constraint, types.StartDateConstraint):
            days.add(each.constraint.start_date)
        elif each.constraint is not None:
            hours |= {each.constraint.start_time, each.constraint.end_time}
    for day in (BEFORE_ALL, *sorted(days)):
        prices = [model.get_prices(datetime.combine(day, hour)) for hour in hours]
        yield (None if day == BEFORE_ALL else day), max(prices, key=_dearness)


def _dearness(source: types.ModelPrice) -> tuple[Decimal, ...]:
    return tuple(_base(getattr(source, key) or Decimal(0)) for key in UNITS.values())


def _amounts(source: types.ModelPrice, *, embeds: bool) -> Amounts | None:
    """Give the prices under our names; None when a part is missing or is not by the token."""
    charged = {key for key, amount in vars(source).items() if amount is not None}
    needed = {"input_mtok"} if embeds else {"input_mtok", "output_mtok"}
    if charged - ASKED_FOR - set(UNITS.values()) or needed - charged:
        return None
    amounts: Amounts = {ours: getattr(source, key) for ours, key in UNITS.items() if key in charged}
    if amounts.get("reasoning") == amounts.get("output"):
        amounts.pop("reasoning", None)
    tiered = {ours for ours, amount in amounts.items() if isinstance(amount, types.TieredPrices)}
    return None if tiered - TIERED else amounts


def _row(amounts: Amounts) -> str:
    said = _said_as({ours: _base(amount) for ours, amount in amounts.items()})
    starts = sorted({start for amount in amounts.values() for start in _starts(amount)})
    if not starts:
        return said
    tiers = ", ".join(f"{{above: {start}, {_tier(amounts, start)}}}" for start in starts)
    return f"{said}, tiers: [{tiers}]"


def _tier(amounts: Amounts, start: int) -> str:
    """Give what costs otherwise above a number of prompt tokens."""
    above = {ours: _above(amount, start) for ours, amount in amounts.items()}
    return _said_as({o: price for o, price in above.items() if price != _base(amounts[o])})


def _said_as(prices: dict[str, Decimal]) -> str:
    return ", ".join(f"{ours}: {price.normalize():f}" for ours, price in prices.items())


def _base(amount: Amount) -> Decimal:
    return amount.base if isinstance(amount, types.TieredPrices) else amount


def _starts(amount: Amount) -> Iterable[int]:
    return (t.start for t in amount.tiers) if isinstance(amount, types.TieredPrices) else ()


def _above(amount: Amount, start: int) -> Decimal:
    if not isinstance(amount, types.TieredPrices):
        return amount
    reached = [tier.price for tier in amount.tiers if tier.start <= start]
    return reached[-1] if reached else amount.base


def _key(name: str) -> str:
    plain = re.fullmatch(r"[a-zA-Z][a-zA-Z0-9._/-]*\*?", name)
    return name if plain else "'" + name.replace("'", "''") + "'"


def main() -> int:
    parser = argparse.ArgumentParser(description="Write policies/prices.yaml from genai-prices.")
    parser.add_argument("--check", action="store_true", help="only tell whether it is up to date")
    asked = parser.parse_args()
    text = render()
    if not asked.check:
        print(text, end="")
        return 0
    if FILE.read_text("utf-8") == text:
        return 0
    print(f"{FILE.name} is not what `python -m tools.prices` writes", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
