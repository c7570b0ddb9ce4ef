"""The committed prices are what a refresh writes, and what their source would charge."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib import metadata

import pytest

from proxy.money.usage import Price, Tier, Tokens
from proxy.policy import schema
from proxy.policy.files import load

if not os.environ.get("CI"):
    pytest.importorskip("genai_prices")
from genai_prices import data, types  # only a missing package in CI is a failure

from proxy.prices import refresh, source
from tests.doubles import PriceBook
from tests.for_each import for_each

FOLDER = load.PRICE_TABLE.parent
TAKEN = date(2026, 11, 21)
SMALL = Tokens(input=200, cached_input=1000, cache_write=70, output=300)
LARGE = Tokens(input=300_000, cached_input=1000, output=300)
HEARD = Tokens(input=200, output=300, audio_input=40, audio_output=50)
DAYS = (date(2025, 1, 1), date(2026, 7, 30), TAKEN, date(2027, 6, 1))
SOURCE = {provider.id: provider for provider in data.providers if provider.id in source.PRICED}


@pytest.fixture(scope="module")
def book() -> PriceBook:
    loaded = load.load(FOLDER).policies.prices
    return PriceBook(
        {
            provider: {
                name: [_price(row) for row in (rows if isinstance(rows, list) else [rows])]
                for name, rows in models.items()
            }
            for provider, models in loaded.items()
        }
    )


def _price(row: object) -> Price:
    text = schema.PriceConfig.model_validate(row)
    tiers = tuple(Tier(**tier.model_dump()) for tier in text.tiers)
    return Price(**text.model_dump(exclude={"tiers"}), tiers=tiers)


def _charged(provider: str, name: str, tokens: Tokens, day: date) -> Decimal | None:
    """What the source charges in nano-USD, in the dearest hour; None when it knows no model."""
    model = SOURCE[provider].find_model(name, all_providers=data.providers)
    if model is None:
        return None
    usage = types.Usage(
        input_tokens=tokens.prompt_total,
        cache_read_tokens=tokens.cached_input or None,
        cache_write_tokens=tokens.cache_write or None,
        input_audio_tokens=tokens.audio_input or None,
        output_tokens=tokens.completion_total,
        output_audio_tokens=tokens.audio_output or None,
    )
    moments = (datetime(day.year, day.month, day.day, hour, tzinfo=UTC) for hour in _hours(model))
    priced = (
        model.calc_price(usage, SOURCE[provider], genai_request_timestamp=moment)
        for moment in moments
    )
    return max(item.total_price for item in priced) * 10**9


def _sold(price: Price, tokens: Tokens) -> Tokens:
    """Leave out the answer of a model that gives none, such as one for embeddings."""
    return tokens if price.output is not None else replace(tokens, output=0, audio_output=0)


def _hours(model: types.ModelInfo) -> Sequence[int]:
    """Noon stands for the day where the source says no hours."""
    dated = model.prices if isinstance(model.prices, list) else []
    hourly = any(isinstance(item.constraint, types.TimeOfDateConstraint) for item in dated)
    return range(24) if hourly else (12,)


def test_a_refresh_changes_nothing_of_the_committed_prices() -> None:
    renewed = refresh.prepare_refresh(FOLDER, TAKEN)

    assert renewed.is_current
    assert (FOLDER / refresh.FILE).read_text("utf-8") == renewed.text


def test_the_licence_of_the_prices_lies_beside_them() -> None:
    notice = metadata.distribution("genai-prices").read_text("licenses/LICENSE")

    assert (FOLDER / refresh.LICENCE).read_text("utf-8") == notice


@pytest.mark.parametrize("model", ["gpt-4o-mini", "gpt-4o-mini-2024-07-18"])
def test_a_model_is_priced_by_its_short_and_its_dated_name(book: PriceBook, model: str) -> None:
    price = book.find("openai", model, TAKEN)

    assert price is not None
    assert price.cost(Tokens(input=200, cached_input=1000, output=300)) == 285_000


@for_each("provider", source.PRICED)
def test_each_name_costs_what_the_source_charges(book: PriceBook, provider: str) -> None:
    for entry in book.rows[provider]:
        name = entry.removesuffix("*")
        for day in DAYS:
            price = book.find(provider, name, day)
            assert price is not None, name
            for used in (SMALL, LARGE, HEARD):
                tokens = _sold(price, used)
                charged = _charged(provider, name, tokens, day)
                assert price.cost(tokens) == charged, (name, day, tokens)


@for_each("provider", source.PRICED)
def test_no_other_model_falls_to_a_wrong_price(book: PriceBook, provider: str) -> None:
    ids = {model.id for item in data.providers for model in item.models}
    names = ids | {name.rpartition("/")[2] for name in ids}

    for name in names:
        price = book.find(provider, name, TAKEN)
        if price is not None:
            tokens = _sold(price, SMALL)
            assert price.cost(tokens) == _charged(provider, name, tokens, TAKEN), name


@for_each(
    ("provider", "model"),
    [
        pytest.param("perplexity", "sonar", id="by-the-request"),
        pytest.param("openai", "whisper-1", id="by-the-minute"),
        pytest.param("google", "gemini-2.5-flash-image", id="by-the-picture"),
        pytest.param("mistral", "mistral-ocr-latest", id="by-the-page"),
        pytest.param("google", "gemma-3", id="said-to-be-free"),
        pytest.param("openai", "smol", id="never-heard-of"),
    ],
)
def test_what_the_token_does_not_pay_has_no_price(
    book: PriceBook, provider: str, model: str
) -> None:
    assert book.find(provider, model, TAKEN) is None


def test_what_is_kept_for_an_hour_and_searches_have_their_prices(book: PriceBook) -> None:
    price = book.find("anthropic", "claude-opus-4-5", TAKEN)

    assert price is not None
    used = Tokens(cache_write=300, cache_write_1h=100, web_searches=1)
    assert price.cost(used) == (200 * 6_250) + (100 * 10_000) + 10_000_000


def test_a_price_waits_for_its_day(book: PriceBook) -> None:
    initial = book.find("openai", "o3", date(2025, 6, 9))
    final = book.find("openai", "o3", date(2025, 6, 10))

    assert initial is not None
    assert final is not None
    assert (initial.output, final.output) == (Decimal(40), Decimal(8))


def test_where_the_hours_differ_the_dearest_counts(book: PriceBook) -> None:
    price = book.find("deepseek", "deepseek-chat", TAKEN)

    assert price is not None
    assert price.output == Decimal("1.1")
