"""Table of providers: names that prices have, and valid base URLs."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from proxy.config.scalars import Name
from proxy.dialects import DIALECTS
from proxy.policy.schema.upstreams import AZURE
from proxy.types.providers import BY_WORD, variable_of
from tests.for_each import for_each


@for_each("word", BY_WORD)
def test_providers_are_policy_values(word: str) -> None:
    provider = BY_WORD[word]

    assert TypeAdapter(Name).validate_python(provider.name) == provider.name
    assert provider.dialect in {AZURE, *DIALECTS}
    if provider.base_url is not None:
        local = provider.base_url.startswith("http://127.0.0.1:")
        assert local or provider.base_url.startswith("https://")
    needs_none = {"ollama", "ollama_chat", "hosted_vllm", "lm_studio"}
    assert bool(provider.variable) == (word not in needs_none)


@pytest.mark.parametrize(
    ("word", "variable"),
    [("hosted_vllm", "HOSTED_VLLM_API_KEY"), ("openai-eu.1", "OPENAI_EU_1_API_KEY")],
)
def test_account_has_its_variable(word: str, variable: str) -> None:
    assert variable_of(word) == variable
