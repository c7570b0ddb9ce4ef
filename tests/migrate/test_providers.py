"""The table of providers: addresses that policies take, by names that prices know."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from proxy.config.scalars import Name
from proxy.dialects import DIALECTS
from proxy.migrate.providers import PROVIDERS


@pytest.mark.parametrize("word", PROVIDERS)
def test_a_provider_is_one_that_a_policy_may_name(word: str) -> None:
    provider = PROVIDERS[word]
    own = DIALECTS[provider.dialect].provider

    assert TypeAdapter(Name).validate_python(provider.provider or own) == provider.provider or own
    if provider.base_url is not None:
        local = provider.base_url.startswith("http://127.0.0.1:")
        assert local or provider.base_url.startswith("https://")
    assert bool(provider.variable) == (not word.startswith("ollama"))
