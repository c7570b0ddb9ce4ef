"""Bounds, numbers, models, addresses and keys in requests never exceed the policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.conftest import KEY, Proxy, running_proxy, world
from tests.doubles import ScriptedUpstream, answer, chat, legacy, usage
from tests.for_each import for_each
from tests.test_pipeline import BEARER

ROUTES: dict[str, tuple[str, dict[str, str], str]] = {
    "openai": ("/v1/completions", BEARER, "prompt"),
    "openai-chat": ("/v1/chat/completions", BEARER, "messages"),
    "openai-embeddings": ("/v1/embeddings", BEARER, "input"),
    "portkey": ("/v1/completions", {"x-portkey-api-key": KEY}, "prompt"),
    "fireworks": ("/inference/v1/completions", BEARER, "prompt"),
    "fireworks-chat": ("/inference/v1/chat/completions", BEARER, "messages"),
    "scale": ("/v5/completions", {"x-api-key": KEY}, "prompt"),
    "scale-chat": ("/v5/chat/completions", {"x-api-key": KEY}, "messages"),
    "multimodel": ("/v1/completion", BEARER, "prompt"),
    "enkrypt": ("/ai-proxy/completions", {"apikey": KEY}, "prompt"),
}
TEXTS: dict[str, Any] = {
    "prompt": "Hi there",
    "input": "Hi there",
    "messages": [{"role": "user", "content": "Hi there"}],
}
POLICY = """
policies:
  default:
    match: all
    limits:
      - {name: month, usd: 1 per month, unpriced: allow}
      - {name: rate, tokens: 100k per minute}
    input:
      - {guard: economics, max_cost_usd: 1}
      - {guard: secrets, action: block}
      - {guard: length, tokens: 100000, action: flag}
    opaque: allow
    cache: {ttl: 1h}
    rules:
      - {name: capped, cap: {max_tokens: 4096, n: 4, best_of: 4, temperature: 1, top_p: 1}}
      - {name: set, when: {tag: {beta: 'true'}}, set: {max_tokens: 5, n: 1}}
"""
CONDEMNED = {"max_tokens": 1, "max_completion_tokens": 900}
ODD: tuple[Any, ...] = (
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
READ = (
    "max_tokens", "max_completion_tokens", "max_new_tokens", "max_output_tokens", "max_length",
    "n_predict", "num_predict", "min_tokens", "n", "best_of", "n_cmpl", "num_return_sequences",
    "options", "parameters", "extra_body", "inference_extra_params", "temperature", "top_p",
    "frequency_penalty", "seed", "stream", "stream_options", "user", "inference_timeout", "stop",
    "stop_sequences", "logprobs", "top_logprobs", "logit_bias", "prompt", "messages", "input",
    "suffix", "tools", "tool_choice", "functions", "response_format", "prediction", "metadata",
    "reasoning_effort", "store", "context", "enkrypt_context", "modalities", "model",
)  # fmt: skip


@asynccontextmanager
async def proxied(
    folder: Path, upstream: ScriptedUpstream, policy: str = POLICY, extra: str = ""
) -> AsyncIterator[tuple[Proxy, ClientSession]]:
    text = world(upstream.url).replace(
        "upstreams:\n  openai: {dialect: openai,",
        f"upstreams:\n  openai: {{{extra} dialect: openai,",
    )
    async with running_proxy(folder / "policies", text + policy) as proxy:
        yield proxy, proxy.client


async def ask(
    client: ClientSession, route: str, fields: dict[str, Any]
) -> tuple[int, dict[str, str], Any]:
    path, headers, text = ROUTES[route]
    body = {"model": "support-chat", text: TEXTS[text], **fields}
    async with client.post(path, headers=headers, json=body) as response:
        streamed = "event-stream" in response.content_type
        event = {} if streamed else await response.json()
        return response.status, {k.lower(): v for k, v in response.headers.items()}, event


@pytest.mark.parametrize("route", ["openai", "multimodel"])
@pytest.mark.parametrize("name", ["max_completion_tokens", "n_predict", "max_new_tokens"])
async def test_a_negative_bound_is_refused_and_touches_no_limit(
    route: str, name: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with proxied(tmp_path, upstream) as (proxy, client):
        status, _, fields = await ask(client, route, {name: -1_000_000_000})
        count_after, _, _ = await ask(client, "openai", {"max_tokens": 5})
        [record, _] = await proxy.sink.wait(2)

    assert (status, fields["error"]["param"]) == (400, name)
    assert record.limit_decision is None
    assert count_after == 200
    assert len(upstream.requests) == 1


async def test_claims_larger_of_two_bounds(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    """900 tokens at a thousand USD per million are 0.9 USD: one call fits a budget of 1, not 30."""
    upstream.answer_with(answer(chat("Hi", usage=usage(2, 900))))
    policy = "\npolicies: {default: {limits: [{name: month, usd: 1 per month, unpriced: allow}]}}\n"
    dear = world(upstream.url).replace("output: 0.6", "output: 1000")
    async with running_proxy(tmp_path / "policies", dear + policy) as proxy:
        asking = [ask(proxy.client, "openai-chat", dict(CONDEMNED)) for _ in range(30)]
        statuses = [status for status, _, _ in await asyncio.gather(*asking)]
        records = await proxy.sink.wait(30)

    assert statuses.count(200) == 1
    assert sum(record.billing.cost or 0 for record in records) < 1_000_000_000


async def test_economics_uses_larger_bound(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    policy = "\npolicies: {default: {input: [{guard: economics, max_cost_usd: 0.0001}]}}\n"
    async with proxied(tmp_path, upstream, policy) as (_, client):
        status, _, _ = await ask(client, "openai-chat", dict(CONDEMNED))

    assert (status, upstream.requests) == (400, [])


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"n_predict": 60}, ("n_predict",)),
        ({"n_predict": -1}, ("n_predict",)),
        ({"options": {"num_predict": 60}}, ("options", "num_predict")),
        ({"max_new_tokens": 60}, ("max_new_tokens",)),
    ],
    ids=str,
)
async def test_a_cap_holds_whatever_a_bound_is_called(
    fields: dict[str, Any], path: tuple[str, ...], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    policy = "\npolicies: {default: {rules: [{name: short, cap: {max_tokens: 8}}]}}\n"
    async with proxied(tmp_path, upstream, policy) as (_, client):
        await ask(client, "openai", fields)

    [request] = upstream.requests
    body = request.json
    value = body
    for name in path:
        value = value[name]
    assert (value, body["max_tokens"]) == (8, 8)


async def test_cap_keeps_small_legacy_default(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with proxied(tmp_path, upstream) as (_, client):
        await ask(client, "openai", {})
        await ask(client, "openai-chat", {})

    legacy_, chat_ = (request.json for request in upstream.requests)
    assert (legacy_["max_tokens"], chat_["max_tokens"]) == (16, 4096)


async def test_reasoning_model_gets_its_bound(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    text = world(upstream.url).replace("gpt-4o-mini", "o3-mini")
    async with running_proxy(tmp_path / "policies", text + POLICY) as proxy:
        await ask(proxy.client, "openai-chat", {})

    [request] = upstream.requests
    assert request.json["max_completion_tokens"] == 4096
    assert "max_tokens" not in request.json


@pytest.mark.parametrize("route", ROUTES)
async def test_field_type_fault(route: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer(legacy()))
    wrong = []
    async with proxied(tmp_path, upstream) as (proxy, client):
        for name in READ:
            for value in ODD:
                status, _, _ = await ask(client, route, {name: value})
                if status == 500:
                    wrong.append((name, value))
        records = await proxy.sink.wait(len(READ) * len(ODD))

    assert wrong == []
    assert not any(record.is_internal_error for record in records)


@for_each(
    ("route", "body", "param"),
    [
        *(
            (route, {field: value}, field)
            for route in ("openai", "openai-chat", "multimodel")
            for field, value in (
                *(("best_of", "x"), ("max_completion_tokens", [1]), ("n_predict", "9")),
                ("n", {}),
            )
        ),
        ("openai", {"options": {"num_predict": "many"}}, "options.num_predict"),
        *(
            ("openai-chat", {name: 900}, name.lower())
            for name in ("Max_Tokens", "N_PREDICT", "Model", "MESSAGES")
        ),
    ],
)
async def test_refused_field_is_named(
    route: str, body: dict[str, Any], param: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with proxied(tmp_path, upstream) as (_, client):
        status, _, fields = await ask(client, route, body)

    assert (status, fields["error"]["param"]) == (400, param)
    assert upstream.requests == []


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
"""By hand: what LiteLLM, OpenRouter, Groq, Together, NeMo Guardrails, vLLM, SGLang, LoRAX,
llama.cpp, Azure, Gemini and text-generation-webui obey."""


@pytest.mark.parametrize("route", ["openai", "openai-chat", "fireworks", "scale", "multimodel"])
async def test_refuses_routing(route: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    wrong = 422 if route == "scale" else 400
    async with proxied(tmp_path, upstream) as (proxy, client):
        for name in CHOOSING:
            plain, _, at_top = await ask(client, route, {name: "http://127.0.0.1:9/"})
            other_count, _, _ = await ask(client, route, {name.upper(): ["x"]})
            inner, _, hidden = await ask(client, route, {"extra_body": {name: "x"}})
            records = await proxy.sink.wait(3)

            assert (plain, other_count, inner) == (wrong, wrong, wrong), name
            params = at_top["error"]["param"], hidden["error"]["param"]
            assert params == (name, f"extra_body.{name}")
            assert upstream.requests == [], name
            ends = [(record.outcome, record.billing.bills) for record in records]
            assert ends == [("client_error", [])] * 3, name
            proxy.sink.forget()


async def test_forwards_unknown_fields(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    fields = {"chat_template_kwargs": {"enable_thinking": False}, "documents": [{"text": "a"}]}
    async with proxied(tmp_path, upstream) as (_, client):
        await ask(client, "openai-chat", fields)

    [request] = upstream.requests
    assert {name: request.json[name] for name in fields} == fields


@for_each("route", ROUTES)
async def test_warns_of_typo(route: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with proxied(tmp_path, upstream) as (_, client):
        _, headers, _ = await ask(client, route, {"max_tokns": 5})

    assert "max_tokns unknown, did you mean max_tokens?" in headers["x-headrace-warning"]


async def test_upstream_settings_rule_fields(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    lists = "drop: [provider, documents], refuse: [seed], accepts: [models],"
    async with proxied(tmp_path, upstream, extra=lists) as (_, client):
        body = {"provider": {"order": ["x"]}, "documents": ["d"], "models": ["m"]}
        status, headers, _ = await ask(client, "openai-chat", body)
        refused, _, fields = await ask(client, "openai-chat", {"seed": 1})

    [request] = upstream.requests
    assert status == 200
    assert request.json["models"] == ["m"]
    assert not {"provider", "documents"} & request.json.keys()
    assert "provider dropped" in headers["x-headrace-warning"]
    assert (refused, fields["error"]["param"]) == (400, "seed")


OPEN: list[tuple[str, dict[str, Any]]] = [
    ("openai", {"stop": ["a"] * 6}),
    ("openai", {"logprobs": 10}),
    ("openai", {"max_tokens": -1}),
    ("openai", {"temperature": 3}),
    ("openai-chat", {"stop": ["a"] * 6}),
    ("openai-chat", {"max_tokens": -1}),
    ("openai-chat", {"logprobs": True, "top_logprobs": 50}),
    ("openai-chat", {"n": 200}),
]


@pytest.mark.parametrize(("route", "fields"), OPEN, ids=str)
async def test_ranges_are_the_upstreams_where_it_is_not_openai(
    route: str, fields: dict[str, Any], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with proxied(tmp_path, upstream, "") as (_, client):
        status, _, _ = await ask(client, route, fields)
        context, _, event = await ask(client, route, {**fields, "model": "fireworks-model"})

    [request] = upstream.requests
    assert (status, {name: request.json[name] for name in fields}) == (200, fields)
    assert context == 400
    assert event["error"]["param"] in fields


@pytest.mark.parametrize(
    ("route", "fields"),
    [
        ("portkey", {"stop": ["a"] * 5}),
        ("portkey", {"logprobs": 6}),
        ("fireworks", {"max_tokens": -1}),
        ("enkrypt", {"logprobs": 6}),
        ("multimodel", {"temperature": 1.5}),
        ("scale", {"stop": ["a"] * 5}),
    ],
    ids=str,
)
async def test_ranges_of_documents_stay_for_their_own_routes(
    route: str, fields: dict[str, Any], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with proxied(tmp_path, upstream, "") as (_, client):
        status, _, event = await ask(client, route, fields)

    assert status == (422 if route == "scale" else 400)
    assert event["error"]["param"] in fields


async def test_stop_sequences_go_where_allowed(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    fields = {"stop_sequences": ["a", "b", "c", "d", "e"]}
    async with proxied(tmp_path, upstream, "") as (_, client):
        local_value, _, _ = await ask(client, "scale", {"model": "scale-model", **fields})
        context, _, event = await ask(client, "scale", {"model": "fireworks-model", **fields})

    [request] = upstream.requests
    assert local_value == 200
    assert request.json["stop_sequences"] == fields["stop_sequences"]
    assert "stop" not in request.json  # nor as null, which its document does not have
    assert (context, event["error"]["param"]) == (422, "stop_sequences")


async def test_logprobs_error_names_the_field(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    fields = {"model": "portkey-model", "logprobs": True, "top_logprobs": 20}
    async with proxied(tmp_path, upstream, "") as (_, client):
        status, _, event = await ask(client, "scale", fields)

    assert (status, event["error"]["param"]) == (422, "top_logprobs")


@pytest.mark.parametrize(
    "fields",
    [
        {"modalities": ["text"]},
        {"tool_choice": "none"},
        {"tool_choice": "auto", "tools": []},
        {"tools": []},
        {"functions": []},
        {"response_format": {"type": "text"}},
        {"top_k": -1},
        {"stop": []},
        {"suffix": ""},
    ],
    ids=str,
)
@pytest.mark.parametrize("target", ["fireworks-model", "portkey-model", "multimodel-model"])
@pytest.mark.parametrize("route", ["scale", "openai"])
async def test_defaults_said_outright_are_as_good_as_silence(
    route: str, target: str, fields: dict[str, Any], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with proxied(tmp_path, upstream, "") as (_, client):
        status, _, event = await ask(client, route, {"model": target, **fields})

    assert status == 200, event


@pytest.mark.parametrize(
    ("route", "status"),
    [("openai", 200), ("portkey", 200), ("enkrypt", 200), ("scale", 422), ("fireworks", 400)],
)
async def test_an_absent_prompt_is_the_beginning_of_a_document_where_a_null_one_is(
    route: str, status: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    path, headers, _ = ROUTES[route]
    statuses = []
    async with proxied(tmp_path, upstream, "") as (_, client):
        for options in ({}, {"prompt": None}):
            body = {"model": "support-chat", **options}
            async with client.post(path, headers=headers, json=body) as response:
                statuses.append(response.status)

    assert statuses == [status, status]
    assert {request.json["prompt"] for request in upstream.requests} <= {"<|endoftext|>"}


async def test_bounds_list_of_models(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    """The document of the dialect lists twenty models, and bounds no list."""
    headers = {**BEARER, "x-headrace-deployment": "compare"}
    events = []
    async with proxied(tmp_path, upstream, "") as (_, client):
        for number in (20, 32, 33):
            body = {"model": [f"model-{n}" for n in range(number)], "prompt": "Hi"}
            async with client.post("/v1/completion", headers=headers, json=body) as response:
                events.append((response.status, await response.json()))

    assert [status for status, _ in events] == [200, 200, 400]
    assert events[2][1]["error"]["param"] == "model"
    assert "at most 32 models" in events[2][1]["error"]["message"]
