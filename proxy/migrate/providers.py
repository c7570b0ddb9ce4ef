"""Where providers are that other gateways know by name: their public addresses.

Sources: the API references of the providers, as their endpoints that speak OpenAI's API (or the
dialect that is named) say them.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Provider(NamedTuple):
    """One provider. ``base_url`` is None where each customer has an address of its own;
    ``variable`` is the one of its key that LiteLLM reads, empty where most servers need none;
    ``provider`` is its name in the table of prices, None for that of its dialect."""

    base_url: str | None
    variable: str
    dialect: str = "openai"
    provider: str | None = None


PROVIDERS: dict[str, Provider] = {
    "openai": Provider("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "anthropic": Provider("https://api.anthropic.com", "ANTHROPIC_API_KEY", "anthropic"),
    "azure": Provider(None, "AZURE_API_KEY", "azure"),
    "cohere": Provider(
        "https://api.cohere.com/compatibility/v1", "COHERE_API_KEY", provider="cohere"
    ),
    "groq": Provider("https://api.groq.com/openai/v1", "GROQ_API_KEY", provider="groq"),
    "mistral": Provider("https://api.mistral.ai/v1", "MISTRAL_API_KEY", provider="mistral"),
    "deepseek": Provider("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", provider="deepseek"),
    "xai": Provider("https://api.x.ai/v1", "XAI_API_KEY", provider="x-ai"),
    "openrouter": Provider(
        "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", provider="openrouter"
    ),
    "together_ai": Provider(
        "https://api.together.xyz/v1", "TOGETHERAI_API_KEY", provider="together"
    ),
    "fireworks_ai": Provider(
        "https://api.fireworks.ai/inference/v1", "FIREWORKS_AI_API_KEY", "fireworks"
    ),
    "perplexity": Provider(
        "https://api.perplexity.ai", "PERPLEXITYAI_API_KEY", provider="perplexity"
    ),
    "cerebras": Provider("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", provider="cerebras"),
    "deepinfra": Provider(
        "https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY", provider="deepinfra"
    ),
    "nvidia_nim": Provider(
        "https://integrate.api.nvidia.com/v1", "NVIDIA_NIM_API_KEY", provider="nvidia"
    ),
    "gemini": Provider(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        provider="google",
    ),
    "huggingface": Provider("https://router.huggingface.co/v1", "HF_TOKEN", provider="huggingface"),
    "ollama": Provider("http://127.0.0.1:11434/v1", "", provider="ollama"),
    "ollama_chat": Provider("http://127.0.0.1:11434/v1", "", provider="ollama"),
    "hosted_vllm": Provider(None, "", provider="vllm"),
    "lm_studio": Provider(None, "", provider="lm-studio"),
    "litellm_proxy": Provider(None, "LITELLM_PROXY_API_KEY", provider="litellm"),
}
"""By the word before the ``/`` of a model. Others sign requests or speak an API of their own."""


def variable_of(word: str) -> str:
    """Return the variable for a key, by the word of its provider or of the account."""
    return f"{re.sub('[^A-Z0-9]+', '_', word.upper())}_API_KEY"
