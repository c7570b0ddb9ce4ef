"""Committed prices, compared with their source."""

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
from tests.fakes import PriceBook
from tests.for_each import for_each

FOLDER = load.PRICE_TABLE.parent
REFRESHED = date(2026, 11, 21)
SMALL = Tokens(input=200, cached_input=1000, cache_write=70, output=300)
LARGE = Tokens(input=300_000, cached_input=1000, output=300)
AUDIO = Tokens(input=200, output=300, audio_input=40, audio_output=50)
DAYS = (date(2025, 1, 1), date(2026, 7, 30), REFRESHED, date(2027, 6, 1))
SOURCE = {
    provider.id: provider for provider in data.providers if provider.id in source.PRICED_PROVIDERS
}


@pytest.fixture(scope="module")
def book() -> PriceBook:
    loaded = load.load_policies(FOLDER).policies.prices
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
    """Return the highest charge of a day in nano-USD, or None for an unknown model."""
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


def _without_output(price: Price, tokens: Tokens) -> Tokens:
    """Remove the output of models without output, such as embeddings."""
    return tokens if price.output is not None else replace(tokens, output=0, audio_output=0)


def _hours(model: types.ModelInfo) -> Sequence[int]:
    """Return noon, or all hours if the source has prices by hour."""
    dated = model.prices if isinstance(model.prices, list) else []
    hourly = any(isinstance(item.constraint, types.TimeOfDateConstraint) for item in dated)
    return range(24) if hourly else (12,)


def test_committed_prices_are_current() -> None:
    renewed = refresh.prepare_refresh(FOLDER, REFRESHED)

    assert renewed.is_current
    assert (FOLDER / refresh.PRICES_FILE).read_text("utf-8") == renewed.text


def test_license_is_committed() -> None:
    notice = metadata.distribution("genai-prices").read_text("licenses/LICENSE")

    assert (FOLDER / refresh.LICENSE_FILE).read_text("utf-8") == notice


@for_each(
    ("provider", "model", "day", "output"),
    [
        pytest.param("openai", "gpt-4o-mini", REFRESHED, "0.6", id="short-name"),
        pytest.param("openai", "gpt-4o-mini-2024-07-18", REFRESHED, "0.6", id="dated-name"),
        pytest.param("openai", "o3", date(2025, 6, 9), "40", id="before-a-change"),
        pytest.param("openai", "o3", date(2025, 6, 10), "8", id="after-a-change"),
        pytest.param("deepseek", "deepseek-chat", REFRESHED, "1.1", id="highest-of-a-day"),
    ],
)
def test_price_depends_on_name_and_day(
    book: PriceBook, provider: str, model: str, day: date, output: str
) -> None:
    price = book.find(provider, model, day)

    assert price is not None
    assert price.output == Decimal(output)


@for_each("provider", source.PRICED_PROVIDERS)
def test_prices_equal_the_source(book: PriceBook, provider: str) -> None:
    for entry in book.rows[provider]:
        name = entry.removesuffix("*")
        for day in DAYS:
            price = book.find(provider, name, day)
            assert price is not None, name
            for used in (SMALL, LARGE, AUDIO):
                tokens = _without_output(price, used)
                charged = _charged(provider, name, tokens, day)
                assert price.compute_cost(tokens) == charged, (name, day, tokens)


@for_each("provider", source.PRICED_PROVIDERS)
def test_unknown_models_have_no_price(book: PriceBook, provider: str) -> None:
    ids = {model.id for item in data.providers for model in item.models}
    names = ids | {name.rpartition("/")[2] for name in ids}

    for name in names:
        price = book.find(provider, name, REFRESHED)
        if price is not None:
            tokens = _without_output(price, SMALL)
            assert price.compute_cost(tokens) == _charged(provider, name, tokens, REFRESHED), name


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
def test_models_not_priced_by_token_have_none(book: PriceBook, provider: str, model: str) -> None:
    assert book.find(provider, model, REFRESHED) is None


def test_cache_writes_and_searches_have_prices(book: PriceBook) -> None:
    price = book.find("anthropic", "claude-opus-4-5", REFRESHED)

    assert price is not None
    used = Tokens(cache_write=300, cache_write_1h=100, web_searches=1)
    assert price.compute_cost(used) == (200 * 6_250) + (100 * 10_000) + 10_000_000
