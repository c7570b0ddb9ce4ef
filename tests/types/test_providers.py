"""Table of providers, and recognition of reasoning models by their names and by requests."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from proxy.config.scalars import Name
from proxy.dialects import DIALECTS
from proxy.policy.schema.upstreams import AZURE
from proxy.types.providers import BY_WORD, is_reasoning_model, variable_of
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


REASONING = (
    "o1", "o3-mini", "o4-mini-2025-04-16", "openai/o1-preview", "gpt-5", "gpt-5.1-mini",
    "gpt-oss-120b", "deepseek-reasoner", "deepseek-ai/DeepSeek-R1", "qwq-32b", "grok-4",
    "gemini-2.5-flash", "Qwen3-4B-Thinking-2507", "accounts/fireworks/models/deepseek-r1",
    "phi-4-reasoning", "magistral-small",
)  # fmt: skip
OTHER_MODELS = (
    "gpt-4o-mini", "gpt-5-chat-latest", "smol", "llama-3.1-8b", "deepseek-chat", "claude-sonnet-4",
    "gpt-4.1", "foo1", "gemini-2.0-flash", "mistral-small", "qwen3-non-thinking",
    "grok-4-fast-non-reasoning", "x-ai/Grok-4-1-Fast-Non-Reasoning", "qwen3-nonthinking",
    "some_non_reasoning_model",
)  # fmt: skip


@for_each("model", [*REASONING, *OTHER_MODELS])
def test_reasoning_models_are_recognized(model: str) -> None:
    assert is_reasoning_model(model, {}) is (model in REASONING)


@for_each(
    ("body", "is_requested"),
    [
        ({"reasoning_effort": "low"}, True),
        ({"reasoning_effort": "none"}, False),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, True),
        ({"thinking": {"type": "disabled"}}, False),
        ({"reasoning": {"effort": "high"}}, True),
        ({"messages": []}, False),
    ],
)
def test_requested_reasoning_counts(body: dict[str, Any], is_requested: bool) -> None:
    assert is_reasoning_model("smol", body) is is_requested
