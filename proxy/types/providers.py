"""Providers with OpenAI's API, and models that reason, whose hidden tokens are billed.

Policies name a row by the ``provider`` of an upstream. Sources: the API references of the
providers, and the errors that they return for what they do not support.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from proxy.runtime.frozen import frozen
from proxy.types.endpoints import Endpoint

Thoughts = Literal["optional", "required", "refused"]

COMPLETIONS: Final = "completions"
CHAT: Final = "chat"
RESPONSES: Final = "responses"
EMBEDDINGS: Final = "embeddings"
ENDPOINTS: frozenset[Endpoint] = frozenset({COMPLETIONS, CHAT, RESPONSES, EMBEDDINGS})
COMMON_FIELDS = frozenset(
    {"max_tokens", "messages", "model", "response_format", "stop", "stream", "temperature"}
    | {"tool_choice", "tools", "top_p"}
)
"""Fields of a chat request that all providers accept."""
SAMPLING_FIELDS = frozenset({"frequency_penalty", "n", "presence_penalty", "seed"})
LOGPROBS_FIELDS = frozenset({"logprobs", "top_logprobs"})
MAX_TOKENS = ("max_completion_tokens", "max_tokens")


@frozen
class Provider:
    """A provider. The defaults of ``endpoints`` and all below it are OpenAI's.

    - ``base_url``: public address. None if each customer has a separate address.
    - ``key_variable``: environment variable of its key in LiteLLM. Empty if no key is needed.
    - ``litellm_names``: names of the provider in LiteLLM's models.
    - ``is_priced``: the price table has its models.
    - ``fields``: accepted fields of OpenAI's chat. None for all of them, and for the role
      ``developer``.
    - ``renamed``: its names for fields of OpenAI's chat.
    - ``thoughts``: ``required`` if an assistant message with tool calls must have
      ``reasoning_content``, ``refused`` if no message may have it.
    - ``signs_calls``: tool calls have a thought signature that must be sent back.
    - ``has_short_ids``: ids of tool calls must be nine letters and digits.
    - ``is_gateway``: forwards calls to other providers, named by fields of a request.
    """

    name: str
    base_url: str | None = None
    key_variable: str = ""
    litellm_names: tuple[str, ...] = ()
    dialect: str = "openai"
    is_priced: bool = False
    endpoints: frozenset[Endpoint] = ENDPOINTS
    fields: frozenset[str] | None = None
    renamed: tuple[tuple[str, str], ...] = ()
    thoughts: Thoughts = "optional"
    signs_calls: bool = False
    has_short_ids: bool = False
    is_gateway: bool = False

    def accepts_field(self, name: str) -> bool:
        """Return True if the provider accepts a field of OpenAI's chat."""
        return self.fields is None or name in self.fields

    @property
    def is_openai_compatible(self) -> bool:
        """True if the provider accepts every chat request that OpenAI accepts, unchanged."""
        changes = self.renamed or self.signs_calls or self.has_short_ids
        return self.fields is None and self.thoughts == "optional" and not changes


ENDPOINTS_WITHOUT_RESPONSES = ENDPOINTS - {RESPONSES}

_TABLE = (
    Provider(
        name="openai", base_url="https://api.openai.com/v1", key_variable="OPENAI_API_KEY",
        litellm_names=("openai",), is_priced=True,
    ),
    Provider(
        name="anthropic", base_url="https://api.anthropic.com", key_variable="ANTHROPIC_API_KEY",
        litellm_names=("anthropic",), dialect="anthropic", is_priced=True,
    ),
    Provider(name="aws", is_priced=True),
    Provider(
        name="azure", key_variable="AZURE_API_KEY", litellm_names=("azure",), dialect="azure",
        is_priced=True,
    ),
    Provider(
        name="cohere", base_url="https://api.cohere.com/compatibility/v1",
        key_variable="COHERE_API_KEY", litellm_names=("cohere",), is_priced=True,
        endpoints=frozenset({CHAT, EMBEDDINGS}),
    ),
    Provider(
        name="groq", base_url="https://api.groq.com/openai/v1", key_variable="GROQ_API_KEY",
        litellm_names=("groq",), is_priced=True, endpoints=frozenset({CHAT, RESPONSES}),
        fields=COMMON_FIELDS | SAMPLING_FIELDS | {"max_completion_tokens", "metadata",
            "parallel_tool_calls", "reasoning_effort", "service_tier", "stream_options", "user"},
        thoughts="refused",
    ),
    Provider(
        name="mistral", base_url="https://api.mistral.ai/v1", key_variable="MISTRAL_API_KEY",
        litellm_names=("mistral",), is_priced=True, endpoints=frozenset({CHAT, EMBEDDINGS}),
        fields=COMMON_FIELDS | (SAMPLING_FIELDS - {"seed"}) | {"metadata", "parallel_tool_calls",
            "prediction", "reasoning_effort"}, renamed=(MAX_TOKENS, ("seed", "random_seed")),
        thoughts="refused", has_short_ids=True,
    ),
    Provider(
        name="deepseek", base_url="https://api.deepseek.com/v1", key_variable="DEEPSEEK_API_KEY",
        litellm_names=("deepseek",), is_priced=True, endpoints=frozenset({CHAT}),
        fields=COMMON_FIELDS | LOGPROBS_FIELDS | {"frequency_penalty", "presence_penalty",
            "reasoning_effort", "stream_options"}, renamed=(MAX_TOKENS,), thoughts="required",
    ),
    Provider(
        name="moonshotai", base_url="https://api.moonshot.ai/v1", key_variable="MOONSHOT_API_KEY",
        litellm_names=("moonshot",), endpoints=frozenset({CHAT}),
        fields=COMMON_FIELDS | (SAMPLING_FIELDS - {"seed"}) | {"max_completion_tokens",
            "prompt_cache_key", "safety_identifier", "stream_options"}, thoughts="required",
    ),
    Provider(
        name="x-ai", base_url="https://api.x.ai/v1", key_variable="XAI_API_KEY",
        litellm_names=("xai",), is_priced=True,
    ),
    Provider(
        name="openrouter", base_url="https://openrouter.ai/api/v1",
        key_variable="OPENROUTER_API_KEY", litellm_names=("openrouter",), is_gateway=True,
    ),
    Provider(
        name="together", base_url="https://api.together.xyz/v1", key_variable="TOGETHERAI_API_KEY",
        litellm_names=("together_ai",), is_priced=True, endpoints=ENDPOINTS_WITHOUT_RESPONSES,
        fields=COMMON_FIELDS | SAMPLING_FIELDS | LOGPROBS_FIELDS | {"logit_bias",
            "parallel_tool_calls", "reasoning_effort", "stream_options"}, renamed=(MAX_TOKENS,),
    ),
    Provider(
        name="fireworks", base_url="https://api.fireworks.ai/inference/v1",
        key_variable="FIREWORKS_AI_API_KEY", litellm_names=("fireworks_ai",), dialect="fireworks",
        is_priced=True,
    ),
    Provider(
        name="perplexity", base_url="https://api.perplexity.ai",
        key_variable="PERPLEXITYAI_API_KEY", litellm_names=("perplexity",), is_priced=True,
        endpoints=frozenset({CHAT}),
    ),
    Provider(
        name="cerebras", base_url="https://api.cerebras.ai/v1", key_variable="CEREBRAS_API_KEY",
        litellm_names=("cerebras",), is_priced=True, endpoints=frozenset({CHAT, COMPLETIONS}),
        fields=COMMON_FIELDS | LOGPROBS_FIELDS | {"max_completion_tokens", "parallel_tool_calls",
            "reasoning_effort", "seed", "service_tier", "user"}, thoughts="refused",
    ),
    Provider(
        name="deepinfra", base_url="https://api.deepinfra.com/v1/openai",
        key_variable="DEEPINFRA_API_KEY", litellm_names=("deepinfra",),
        endpoints=ENDPOINTS_WITHOUT_RESPONSES,
    ),
    Provider(
        name="nvidia", base_url="https://integrate.api.nvidia.com/v1",
        key_variable="NVIDIA_NIM_API_KEY", litellm_names=("nvidia_nim",),
        endpoints=ENDPOINTS_WITHOUT_RESPONSES,
    ),
    Provider(
        name="google", base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_variable="GEMINI_API_KEY", litellm_names=("gemini",), is_priced=True,
        endpoints=frozenset({CHAT, EMBEDDINGS}),
        fields=COMMON_FIELDS | {"max_completion_tokens", "n", "parallel_tool_calls",
            "reasoning_effort", "stream_options"}, thoughts="refused", signs_calls=True,
    ),
    Provider(
        name="huggingface", base_url="https://router.huggingface.co/v1", key_variable="HF_TOKEN",
        litellm_names=("huggingface",),
    ),
    Provider(
        name="ollama", base_url="http://127.0.0.1:11434/v1",
        litellm_names=("ollama", "ollama_chat"),
    ),
    Provider(name="vllm", litellm_names=("hosted_vllm",)),
    Provider(name="lm-studio", litellm_names=("lm_studio",)),
    Provider(
        name="litellm", key_variable="LITELLM_PROXY_API_KEY", litellm_names=("litellm_proxy",),
        is_gateway=True,
    ),
    Provider(
        name="vercel", base_url="https://ai-gateway.vercel.sh/v1",
        key_variable="AI_GATEWAY_API_KEY", litellm_names=("vercel_ai_gateway",), is_gateway=True,
    ),
)  # fmt: skip

PROVIDERS: Mapping[str, Provider] = {row.name: row for row in _TABLE}
BY_LITELLM_NAME: Mapping[str, Provider] = {
    name: row for row in _TABLE for name in row.litellm_names
}
"""By the text before the ``/`` of a model of LiteLLM."""
OPENAI = PROVIDERS["openai"]
GATEWAY_NAMES = frozenset(row.name for row in _TABLE if row.is_gateway)


def get_key_variable(name: str) -> str:
    """Return the environment variable of a key, by the name of its provider or account."""
    return f"{re.sub('[^A-Z0-9]+', '_', name.upper())}_API_KEY"


_REASONING = re.compile(
    r"""(?:^|[/:._-])(?:
        o[1-9](?![0-9.])                  # OpenAI: o1, o3-mini, o4-mini
      | gpt-(?:[5-9]|oss)(?!.*chat)       # gpt-5 and later, except chat models
      | (?:deepseek-)?(?:r1|reasoner)(?![0-9])
      | qwq | magistral
      | grok-(?:[4-9]|3-mini)
      | gemini-(?:2\.5|[3-9])
    )|thinking|reasoning""",
    re.IGNORECASE | re.VERBOSE,
)
_NOT_REASONING = re.compile("non[-_]?(?:thinking|reasoning)", re.IGNORECASE)
REASONING_FIELDS = frozenset({"reasoning", "reasoning_effort", "thinking"})
_DISABLED_VALUES = (None, False, "none", "disabled", "off", 0)


def is_reasoning_call(model: str, body: Mapping[str, Any]) -> bool:
    """Return True if the model's name is known to reason, or the request enables reasoning."""
    return _requests_reasoning(body) or (
        bool(_REASONING.search(model)) and not _NOT_REASONING.search(model)
    )


def may_reason(model: str, body: Mapping[str, Any]) -> bool:
    """Return True unless the model's name excludes reasoning and the request does not enable it."""
    return _requests_reasoning(body) or not _NOT_REASONING.search(model)


def _requests_reasoning(body: Mapping[str, Any]) -> bool:
    if REASONING_FIELDS.isdisjoint(body):
        return False
    thinking = body.get("thinking")
    if isinstance(thinking, dict):
        thinking = thinking.get("type")
    values = (body.get("reasoning_effort"), body.get("reasoning"), thinking)
    return any(value not in _DISABLED_VALUES for value in values)
