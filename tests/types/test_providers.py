"""The table of providers: addresses that policies take, by names that prices know."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from proxy.config.scalars import Name
from proxy.dialects import DIALECTS
from proxy.policy.schema.upstreams import AZURE
from proxy.types.providers import BY_WORD, variable_of
from tests.for_each import for_each


@for_each("word", BY_WORD)
def test_a_provider_is_one_that_a_policy_may_name(word: str) -> None:
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
def test_an_account_has_a_variable_of_its_name(word: str, variable: str) -> None:
    assert variable_of(word) == variable
