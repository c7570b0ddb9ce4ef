"""Searches for names, spellings and values of request fields that escape the policy.

Fields that choose a model, an address or a key are refused on each route, also within options.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from proxy.errors.words import MAX_NAME
from proxy.fields.spelling import casefold_name
from proxy.types import Target, Upstream
from tests.adversary.hostile_texts import HOSTILE_TEXTS, repeat_text
from tests.adversary.request_calls import (
    OPEN_TARGET,
    ROUTES,
    Start,
    build_body,
    find_refused_field,
    read_request,
    refusal_status,
    send_fields,
)
from tests.conftest import Proxy
from tests.doubles import Json, ScriptedUpstream
from tests.for_each import for_each
from tests.test_pipeline import BEARER

MAIN_ROUTES = ("openai", "openai-chat", "fireworks", "scale", "multimodel")
CHOOSING = (
    "models", "fallbacks", "route", "provider", "api_base", "base_url", "api_key",
    "custom_llm_provider", "callbacks", "extra_headers", "extra_query", "prompt_embeds",
    "chat_template", "mock_response", "guardrails", "engine", "deployment", "model_id",
    "model_name", "lora_adapter", "lora_request", "lora_path", "lora", "adapter_id",
    "adapter_source", "api_token", "preset", "plugins", "data_sources", "bootstrap_host",
    "cached_content", "session_params", "custom_logit_processor", "langfuse_host",
    "auto_max_new_tokens", "compound_custom", "context_window_fallback_dict",
    "default_fallbacks", "safety_model", "guardrail_config", "guardrail_identifier", "config_id",
    "config_ids", "mock_tool_calls", "inputs_embeds", "previous_response_id", "conversation",
    "thread", "custom_prompt_dict", "hf_model_name",
)  # fmt: skip
"""Fields that LiteLLM, OpenRouter, Groq, Together, NeMo Guardrails, vLLM, SGLang, LoRAX, llama.cpp,
Azure, Gemini and text-generation-webui obey."""


GROUPS = (
    "chat_template_kwargs", "custom_params", "extra_body", "generation_config", "google",
    "inference_config", "inference_extra_params", "model_kwargs", "nvext", "options", "parameters",
    "reasoning", "sampling_params", "thinking", "thinking_config",
)  # fmt: skip


BOUNDED = (
    "max_tokens", "max_output_tokens", "max_new_tokens", "max_gen_len", "best_of", "n",
    "num_predict", "n_cmpl", "num_return_sequences", "candidate_count", "thinking_budget",
    "budget_tokens",
)  # fmt: skip
CHOSEN = (
    "models", "api_base", "api_key", "base_url", "extra_headers", "extra_query", "fallbacks",
    "provider", "webhook_url", "engine", "model_id", "model_name", "lora_adapter", "data_sources",
)  # fmt: skip


@for_each("name", CHOOSING)
@for_each("route", MAIN_ROUTES)
def test_fields_that_choose_a_route_are_refused(route: str, name: str) -> None:
    assert find_refused_field(route, {name: "http://127.0.0.1:9/"}) == name
    assert find_refused_field(route, {"extra_body": {name: "x"}}) == f"extra_body.{name}"
    assert find_refused_field(route, {name.upper(): ["x"]}) is not None


ACCEPTING = Target(
    Upstream("up", "openai", "http://127.0.0.1:9", accepts=frozenset({"model"})), "m"
)


@for_each("group", GROUPS)
@for_each("route", MAIN_ROUTES)
def test_no_group_of_options_chooses_a_model(route: str, group: str) -> None:
    for name in ("model", "MODEL", "model_id", "model_name", "engine", "deployment"):
        fields: Json = {group: {name: "gpt-5-pro"}}
        assert find_refused_field(route, fields, ACCEPTING) == f"{group}.{name.lower()}"
    fields = {group: {"extra_body": {"model": "gpt-5-pro"}}}
    assert find_refused_field(route, fields, ACCEPTING) == f"{group}.extra_body.model"


def list_spellings(name: str) -> set[str]:
    """Return names that servers may read as this one: case, Unicode forms, camel case, hyphens."""
    wide = "".join(chr(ord(item) + 0xFEE0) if item.isalpha() else item for item in name)
    odd = {name.replace("s", "\u017f"), name.replace("k", "\u212a"), wide}
    first, *others = name.split("_")
    camel = first + "".join(map(str.title, others))
    marked = {camel, camel[0].upper() + camel[1:], camel.lower(), name.replace("_", "-")}
    return {name.upper(), name.title(), *odd, *map(str.upper, odd), *marked} - {name}


NAMES = (*BOUNDED, *CHOSEN, *GROUPS)


@for_each("route", ["openai", "openai-chat", "scale", "multimodel"])
@for_each("name", [*NAMES, "stream", "user", "top_p"])
def test_no_spelling_of_a_name_passes(name: str, route: str) -> None:
    for spelled in sorted(list_spellings(name)):
        fields: Json = {spelled: {"num_predict": 900_000}}
        assert find_refused_field(route, fields) == name, spelled
        if name in NAMES:
            refused = find_refused_field(route, {"extra_body": fields})
            assert refused == f"extra_body.{name}", spelled


ODD_VALUES: tuple[Any, ...] = (
    "x",
    [1],
    {},
    {"a": [1]},
    [],
    [[]],
    [{}],
    True,
    -1_000_000_000,
    1.5,
    2**63 - 1,
)
READ_FIELDS = (
    "max_tokens", "max_completion_tokens", "max_new_tokens", "max_output_tokens", "max_length",
    "n_predict", "num_predict", "min_tokens", "n", "best_of", "n_cmpl", "num_return_sequences",
    "options", "parameters", "extra_body", "inference_extra_params", "temperature", "top_p",
    "frequency_penalty", "seed", "stream", "stream_options", "user", "inference_timeout", "stop",
    "stop_sequences", "logprobs", "top_logprobs", "logit_bias", "prompt", "messages", "input",
    "suffix", "tools", "tool_choice", "functions", "response_format", "prediction", "metadata",
    "reasoning_effort", "store", "context", "enkrypt_context", "modalities", "model",
)  # fmt: skip


@pytest.mark.parametrize("route", ["openai-chat", "multimodel", "openai-embeddings", "scale"])
async def test_type_of_a_field_is_no_internal_error(route: str, start: Start) -> None:
    proxy = await start()

    cases = [(name, value) for name in READ_FIELDS for value in ODD_VALUES]
    statuses = [(await send_fields(proxy, route, dict([case]))).status for case in cases]

    assert [case for case, status in zip(cases, statuses, strict=True) if status == 500] == []
    assert not any(record.is_internal_error for record in await proxy.sink.wait(len(cases)))


WRONG_VALUES: Json = {
    **{"best_of": "x", "max_completion_tokens": [1], "n_predict": "9", "n": {}},
    "api_base": "http://127.0.0.1:9/",
}
REFUSED: list[tuple[str, Json, str]] = [
    *(
        (route, {name: value}, name)
        for route in ("openai", "openai-chat", "multimodel")
        for name, value in WRONG_VALUES.items()
    ),
    ("openai", {"options": {"num_predict": "many"}}, "options.num_predict"),
    *(
        ("openai-chat", {name: 900}, name.lower())
        for name in ("Max_Tokens", "N_PREDICT", "Model", "MESSAGES")
    ),
    ("openai-chat", {"tools": [{"type": "mcp", "server_url": "x"}]}, "tools[].server_url"),
    ("portkey", {"stop": ["a"] * 5}, "stop"),
    ("portkey", {"logprobs": 6}, "logprobs"),
    ("fireworks", {"max_tokens": -1}, "max_tokens"),
    ("fireworks", {"models": ["x"]}, "models"),
    ("enkrypt", {"logprobs": 6}, "logprobs"),
    ("multimodel", {"temperature": 1.5}, "temperature"),
    ("scale", {"stop": ["a"] * 5}, "stop"),
    ("scale", {"provider": "x"}, "provider"),
    ("scale", {"model": "portkey-model", "logprobs": True, "top_logprobs": 20}, "top_logprobs"),
]


async def test_refused_field_is_named(start: Start, upstream: ScriptedUpstream) -> None:
    proxy = await start("")
    for route, fields, name in REFUSED:
        reply = await send_fields(proxy, route, fields)

        assert (reply.status, reply.error["param"]) == (refusal_status(route), name), fields
    records = await proxy.sink.wait(len(REFUSED))
    assert upstream.requests == []
    ends = {(record.outcome, len(record.billing.bills)) for record in records}
    assert ends == {("client_error", 0)}


async def test_misspelled_field_is_warned_of(start: Start) -> None:
    proxy = await start()
    for route in ROUTES:
        reply = await send_fields(proxy, route, {"max_tokns": 5})

        warning = "max_tokns unknown, did you mean max_tokens?"
        assert warning in reply.headers["x-headrace-warning"], route


LONG_NAME = 30_000  # characters; combining marks would take seconds
MAX_CPU_S = 0.25  # of all threads for one refused call
NESTED: dict[str, Callable[[str], Json]] = {
    "top": lambda name: {name: 1},
    "group": lambda name: {"options": {name: 1}},
    "group in a group": lambda name: {"extra_body": {"options": {name: 1}}},
}


@for_each("place", NESTED)
@for_each("kind", ["ligatures", "marks out of order", "full width", "letters"])
async def test_long_name_is_refused_quickly(
    kind: str, place: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    name = repeat_text(kind, LONG_NAME)
    await send_fields(proxy, "openai-chat", {})  # fill caches of the process

    started_at = time.process_time()
    reply = await send_fields(proxy, "openai-chat", NESTED[place](name))
    cpu_s = time.process_time() - started_at

    assert reply.status == 400
    assert name[:4] not in reply.error["message"]
    assert len(upstream.requests) == 1
    assert cpu_s < MAX_CPU_S


@for_each("kind", HOSTILE_TEXTS)
def test_normalization_of_a_name_is_fast(kind: str) -> None:
    name = repeat_text(kind, LONG_NAME)
    started_at = time.process_time()
    casefold_name(name)

    assert time.process_time() - started_at < MAX_CPU_S


@for_each("route", ROUTES)
def test_each_dialect_bounds_field_names(route: str) -> None:
    for length, refused in ((MAX_NAME, [None, None]), (MAX_NAME + 1, ["(body)", "options"])):
        bodies: tuple[Json, ...] = ({"x" * length: 1}, {"options": {"x" * length: 1}})
        assert [find_refused_field(route, fields) for fields in bodies] == refused


@for_each("group", GROUPS)
def test_each_option_group_bounds_field_names(group: str) -> None:
    assert find_refused_field("openai-chat", {group: {"é" * 1000: 1}}) == group


FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
ELSEWHERE = "https://evil.example/mcp"
WITHIN_FIELDS: list[tuple[str, dict[str, Any]]] = [
    ("tools[].server_url", {"tools": [FUNCTION, {"type": "mcp", "server_url": ELSEWHERE}]}),
    ("tools[].extra_headers", {"tools": [{"type": "mcp", "extra_headers": {"x-key": "a"}}]}),
    ("tools[].mcp.server_url", {"tools": [{"type": "mcp", "mcp": {"server_url": ELSEWHERE}}]}),
    ("tools[].retrieval", {"tools": [{"retrieval": {"external_api": {"endpoint": ELSEWHERE}}}]}),
    ("tools[].mcp_servers", {"tools": [{"mcp_servers": [{"url": ELSEWHERE}]}]}),
    ("tools[].server_url", {"tools": {"server_url": ELSEWHERE}}),
    ("tools[].server_url", {"tools": [{"serverUrl": ELSEWHERE}]}),
    ("tools[].server_url", {"tools": [{"SERVER_URL": ELSEWHERE}]}),
    ("search_parameters.sources[].links",
        {"search_parameters": {"sources": [{"type": "rss", "links": [ELSEWHERE]}]}}),
    ("container.id", {"container": "container_1"}),
    ("container.id", {"container": {"id": "container_1", "skills": []}}),
    ("container.id", {"Container": ["container_1"]}),
    ("extra_body.container.id", {"extra_body": {"container": "container_1"}}),
    ("tools[].container.id", {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]}),
    ("input[].container_id", {"input": [{"type": "x"}, {"type": "x", "container_id": "cntr_1"}]}),
    ("extra_body.tools[].server_url", {"extra_body": {"tools": [{"server_url": ELSEWHERE}]}}),
    ("mcp_servers", {"mcp_servers": [{"type": "url", "url": ELSEWHERE}]}),
    ("connectors", {"connectors": [{"id": "x", "user_access_token": "a"}]}),
    ("litellm_credential_name", {"litellm_credential_name": "other"}),
]  # fmt: skip


@for_each(("name", "fields"), WITHIN_FIELDS)
@for_each("route", ["openai", "openai-chat", "fireworks", "scale"])
def test_address_within_a_field_is_refused(route: str, name: str, fields: dict[str, Any]) -> None:
    refused = find_refused_field(route, fields)

    is_object = isinstance(fields.get("tools"), dict)  # which is invalid in some dialects
    assert refused in ((name, "tools", "tools.server_url") if is_object else (name,))


PASSING: list[dict[str, Any]] = [
    {"tools": [FUNCTION]},
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"server_url": {"type": "string"}, "headers": {}}}}}]},
    {"tools": [{"type": "web_search", "filters": {"allowed_domains": ["example.com"]}}]},
    {"tools": [{"type": "mcp", "server_label": "a", "server_url": None}]},
    {"tools": [{"type": "function", "parameters": {"properties": {"model": {}}}}]},
    {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]},
    {"tools": [{"type": "shell", "environment": {"type": "container_auto"}}]},
    {"container": {"skills": [{"type": "anthropic", "skill_id": "pdf"}]}},
    {"container": {"id": None}},
    {"container": ""},
    {"input": [{"type": "code_interpreter_call", "code": "1"}, "container_id"]},
    {"web_search_options": {"search_context_size": "low"}},
    {"search_parameters": {"sources": [{"type": "web"}, "news"], "mode": "auto"}},
    {"metadata": {"server_url": "https://example.com", "headers": "none"}},
]  # fmt: skip


CHEAP: list[dict[str, Any]] = [
    *({"service_tier": tier} for tier in ("auto", "default", "flex", "standard_only", None)),
    {"speed": "standard"},
    {"extra_body": {"service_tier": "flex"}},
]


@for_each("fields", [*PASSING, *CHEAP])
def test_other_fields_within_a_field_pass(fields: dict[str, Any]) -> None:
    body = build_body(read_request("openai-chat", fields))

    for name, value in fields.items():
        assert body.get(name) == value


DEARER: list[tuple[str, dict[str, Any]]] = [
    ("service_tier", {"service_tier": "priority"}),
    ("service_tier", {"service_tier": "scale"}),
    ("service_tier", {"service_tier": "performance"}),
    ("service_tier", {"service_tier": "a tier of tomorrow"}),
    ("service_tier", {"serviceTier": "priority"}),
    ("extra_body.service_tier", {"extra_body": {"service_tier": "priority"}}),
    ("speed", {"speed": "fast"}),
    ("inference_geo", {"inference_geo": "us"}),
]


@for_each(("name", "fields"), DEARER)
@for_each("route", ["openai", "openai-chat", "fireworks"])
def test_more_expensive_options_are_refused(route: str, name: str, fields: dict[str, Any]) -> None:
    assert find_refused_field(route, fields) == name


DEFAULTS: tuple[dict[str, Any], ...] = (
    {"modalities": ["text"]}, {"tool_choice": "none"}, {"tool_choice": "auto", "tools": []},
    {"tools": []}, {"functions": []}, {"response_format": {"type": "text"}}, {"top_k": -1},
    {"stop": []}, {"suffix": ""},
)  # fmt: skip


@for_each("dialect", ["fireworks", "portkey", "multimodel"])
@for_each("route", ["scale", "openai"])
@for_each("fields", DEFAULTS)
def test_explicit_defaults_are_accepted(fields: Json, route: str, dialect: str) -> None:
    target = Target(Upstream("up", dialect, "http://127.0.0.1:9"), "m")

    assert find_refused_field(route, fields, target) is None


@for_each(
    ("route", "is_allowed"),
    [
        ("openai", True),
        ("portkey", True),
        ("enkrypt", True),
        ("scale", False),
        ("fireworks", False),
    ],
)
async def test_absent_prompt_equals_a_null_prompt(
    route: str, is_allowed: bool, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    """If a null prompt is allowed, both mean the start of a document."""
    path, headers, _ = ROUTES[route]
    status = 200 if is_allowed else refusal_status(route)
    for fields in ({}, {"prompt": None}):
        reply = await proxy.send(path, {"model": "support-chat", **fields}, headers)
        assert reply.status == status

    assert {request.json["prompt"] for request in upstream.requests} <= {"<|endoftext|>"}


@for_each(("count", "status"), [(32, 200), (33, 400)])
async def test_list_of_models_is_bounded(count: int, status: int, proxy: Proxy) -> None:
    """The API document lists twenty models and no bound."""
    body = {"model": [f"model-{number}" for number in range(count)], "prompt": "Hi"}
    headers = {**BEARER, "x-headrace-deployment": "compare"}
    reply = await proxy.send("/v1/completion", body, headers)

    assert reply.status == status
    if status == 400:
        assert reply.error["param"] == "model"
        assert "at most 32 models" in reply.error["message"]


def test_unknown_fields_are_forwarded() -> None:
    fields = {
        **{"chat_template_kwargs": {"enable_thinking": False}, "documents": [{"text": "a"}]},
        **{"größe": 5, "長さ": 1, "ﬁeld": True, "timeout": 5, "keepAlive": 1, "top-a": 0.1},
    }
    body = build_body(read_request("openai-chat", fields), OPEN_TARGET)

    assert {name: body[name] for name in fields} == fields
