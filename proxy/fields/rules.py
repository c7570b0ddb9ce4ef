"""Rules for request fields, and the fields that only the policy may set.

A rule names the last steps of a path and applies to every path that ends with them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from proxy.fields.spelling import normalize_name

ANY_PATH = "**."
ID_OR_OBJECT = "container.id"
"""Servers also take the id in place of this object."""
Verdict = Literal["drop", "accept", "refuse", "limit"]
"""Effects of a rule. Among rules of equal length the first effect wins; ``limit`` refuses costly
values."""
VERDICTS: tuple[Verdict, ...] = ("drop", "accept", "refuse", "limit")


class FieldRule(NamedTuple):
    """Rule for the fields of one name.

    ``steps`` are the normalized names of its path, innermost first. An anchored rule applies at the
    top level of a request and in groups of options. With ``is_text`` only texts match.
    """

    name: str
    steps: tuple[str, ...]
    verdict: Verdict
    is_anchored: bool = False
    is_text: bool = False


FieldRules = Mapping[str, tuple[FieldRule, ...]]
"""Rules by their innermost step, in order of precedence."""


def compile_field_rules(
    names: Mapping[Verdict, Collection[str]], anywhere: Collection[str]
) -> FieldRules:
    """Return the rules for names such as ``stop`` or ``tools[].headers``.

    A name without a dot is anchored unless it is one of ``anywhere`` or begins with ``**.``.
    """
    rules_by_step: dict[str, list[FieldRule]] = {}
    for verdict in VERDICTS:
        for name in names.get(verdict, ()):
            is_anchored = "." not in name and name not in anywhere
            path = name.removeprefix(ANY_PATH)
            steps = tuple(map(normalize_name, reversed(path.replace("[]", "").split("."))))
            rules = [FieldRule(name=path, steps=steps, verdict=verdict, is_anchored=is_anchored)]
            if f".{path}".endswith(f".{ID_OR_OBJECT}"):
                rules.append(rules[0]._replace(steps=steps[1:], is_text=True))
            for rule in rules:
                rules_by_step.setdefault(rule.steps[0], []).append(rule)
    for rules in rules_by_step.values():
        rules.sort(key=lambda rule: -len(rule.steps))  # stable: verdicts keep their order
    return {step: tuple(rules) for step, rules in rules_by_step.items()}


POLICY_FIELDS = frozenset(
    # They choose a model or its provider: LiteLLM, OpenRouter, SGLang, LoRAX, llama.cpp, Portkey,
    # Groq, Together.
    {"adapter_id", "adapter_source", "adapters", "compound_custom", "content_policy_fallbacks"}
    | {"context_window_fallback_dict", "context_window_fallbacks", "custom_llm_provider"}
    | {"default_fallbacks", "deployment", "deployment_id", "engine", "hf_model_name"}
    | {"fallback_models", "fallbacks", "kv_transfer_params", "litellm_params", "lora"}
    | {"lora_adapter", "lora_adapters", "lora_id", "lora_name", "lora_path", "lora_request"}
    | {"merged_adapters", "model_id", "model_list", "model_name", "models", "plugins", "preset"}
    | {"provider", "region_name", "route", "safety_model", "specific_deployment", "user_config"}
    # They choose an address for a request, its texts or its response, or headers sent to it.
    | {"api_base", "api_type", "api_version", "aws_bedrock_runtime_endpoint", "aws_region_name"}
    | {"aws_sts_endpoint", "azure_endpoint", "base_url", "bootstrap_host", "bootstrap_port"}
    | {"bootstrap_room", "callback", "callbacks", "connectors", "data_sources", "extra_headers"}
    | {"extra_query", "failure_callback", "gcs_bucket_name", "headers", "langfuse_host"}
    | {"langsmith_base_url", "mcp_servers", "posthog_host", "success_callback", "vertex_location"}
    | {"vertex_ai_location", "vertex_ai_project", "vertex_project", "webhook_url"}
    # They choose the key for the model's server or for a server of logs.
    | {"access_token", "api_key", "api_token", "arize_api_key", "aws_access_key_id"}
    | {"aws_external_id", "aws_profile_name", "aws_role_name", "aws_secret_access_key"}
    | {"aws_session_name", "aws_session_token", "aws_web_identity_token", "azure_ad_token"}
    | {"azure_password", "azure_username", "client_secret", "gcs_path_service_account"}
    | {"humanloop_api_key", "langfuse_public_key", "langfuse_secret", "langfuse_secret_key"}
    | {"langsmith_api_key", "litellm_credential_name", "organization", "posthog_api_key"}
    | {"vertex_ai_credentials", "vertex_credentials"}
    # They add text that no guard reads, run code of the client, or disable a guard.
    | {"cached_content", "chat_template", "config_id", "config_ids", "conversation"}
    | {"custom_logit_processor", "custom_prompt_dict", "guardrail_config", "guardrail_identifier"}
    | {"guardrails", "input_embeds", "inputs_embeds", "logits_processors", "mock_response"}
    | {"mock_timeout", "mock_tool_calls", "previous_response_id", "prompt_embeds", "prompt_id"}
    | {"session_params", "thread"}
    # Ids of data and of credits that belong to the account of the upstream's key.
    | {"audio.id", "comparison_response_id", "container.id", "container_id", "file_id", "file_ids"}
    | {"previous_message_id", "prompt.id", "skill_id", "vector_store_id", "vector_store_ids"}
    | {"fallback_credit_token", "user_profile_id", "voice.id", "workspace_id"}
    # Fields of tools, items and searches that choose an address, a secret, a model or a text that
    # no guard reads: OpenAI, Anthropic, xAI, Mistral, Z.AI, Gemini, OpenRouter. The proxy replaces
    # ``model`` at the top of a request by the target's.
    | {"authorization", "connector_id", "domain_secrets", "model", "network_policy.allowed_domains"}
    | {"search_parameters.sources[].links", "server_url", "skills[].source", "tools[].retrieval"}
    | {"tunnel_id"}
    # It makes text-generation-webui ignore output limits.
    | {"auto_max_new_tokens"}
)
"""Fields that only the policy may set, at any depth."""
