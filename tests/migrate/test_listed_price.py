"""A model that is named for its price alone has that of the package's table, of its provider."""

from __future__ import annotations

from typing import Any

from proxy.migrate.listed_price import listed_price
from proxy.policy.files.price_table import packaged
from proxy.policy.schema import TargetConfig
from tests.for_each import for_each

AZURE, GROQ = {"dialect": "azure"}, {"dialect": "openai", "provider": "groq"}
ROWS = packaged().sections.prices


@for_each(
    ("upstream", "model", "provider", "row"),
    [
        (AZURE, "gpt-4o", "azure", "gpt-4o"),
        (AZURE, "openai/gpt-4o", "openai", "gpt-4o"),
        ({"dialect": "openai"}, "azure/gpt-4o", "azure", "gpt-4o"),
        ({"dialect": "anthropic"}, "claude-4-6-opus-x", "anthropic", "claude-4-6-opus*"),
        (GROQ, "xai/grok-3", "x-ai", "grok-3"),
    ],
)
def test_a_price_is_that_of_the_provider_and_may_stand_at_a_target(
    upstream: dict[str, Any], model: str, provider: str, row: str
) -> None:
    found = listed_price(upstream, model)

    assert found is not None
    assert found.price == ROWS[provider][row]
    assert found.price is not ROWS[provider][row]
    assert found.as_of == packaged().sections.price_table.as_of
    target = TargetConfig.model_validate({"upstream": "u", "model": "m", "price": found.price})
    assert target.price


@for_each(
    ("upstream", "model"),
    [
        (GROQ, "gpt-4o-nobody"),
        ({"dialect": "openai_compatible"}, "gpt-4o"),
        (AZURE, ""),
        (AZURE, "/"),
    ],
)
def test_what_no_table_knows_has_no_price(upstream: dict[str, Any], model: str) -> None:
    assert listed_price(upstream, model) is None
