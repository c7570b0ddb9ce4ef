"""Bounds, numbers, models, addresses and keys in requests never exceed the policy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.adversary.fields import POLICY, ROUTES, Start, ask, refusal
from tests.conftest import policies_for, running_proxy
from tests.doubles import ScriptedUpstream, answer, chat, legacy, usage
from tests.for_each import for_each
from tests.test_pipeline import BEARER

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


@pytest.mark.parametrize("route", ["openai", "multimodel"])
@pytest.mark.parametrize("name", ["max_completion_tokens", "n_predict", "max_new_tokens"])
async def test_negative_bound_is_refused(
    route: str, name: str, start: Start, upstream: ScriptedUpstream
) -> None:
    proxy = await start()

    refused = await ask(proxy, route, {name: -1_000_000_000})
    accepted = await ask(proxy, "openai", {"max_tokens": 5})

    [record, _] = await proxy.sink.wait(2)
    assert (refused.status, refused.error["param"]) == (400, name)
    assert record.limit_decision is None
    assert accepted.status == 200
    assert len(upstream.requests) == 1


async def test_claim_uses_larger_of_two_bounds(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    """900 tokens at a thousand USD per million are 0.9 USD: one call fits a budget of 1, not 30."""
    upstream.answer_with(answer(chat("Hi", usage=usage(2, 900))))
    policy = "\npolicies: {default: {limits: [{name: month, usd: 1 per month, unpriced: allow}]}}\n"
    dear = policies_for(upstream.url).replace("output: 0.6", "output: 1000")
    async with running_proxy(tmp_path / "policies", dear + policy) as proxy:
        asking = [ask(proxy, "openai-chat", CONDEMNED) for _ in range(30)]
        replies = await asyncio.gather(*asking)
        records = await proxy.sink.wait(30)

    assert [reply.status for reply in replies].count(200) == 1
    assert sum(record.billing.cost or 0 for record in records) < 1_000_000_000


async def test_economics_guard_uses_larger_bound(start: Start, upstream: ScriptedUpstream) -> None:
    proxy = await start(
        "\npolicies: {default: {input: [{guard: economics, max_cost_usd: 0.0001}]}}\n"
    )

    assert (await ask(proxy, "openai-chat", CONDEMNED)).status == 400
    assert upstream.requests == []


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
async def test_cap_holds_under_any_name(
    fields: dict[str, Any], path: tuple[str, ...], start: Start, upstream: ScriptedUpstream
) -> None:
    proxy = await start("\npolicies: {default: {rules: [{name: short, cap: {max_tokens: 8}}]}}\n")

    await ask(proxy, "openai", fields)

    [request] = upstream.requests
    value = request.json
    for name in path:
        value = value[name]
    assert (value, request.json["max_tokens"]) == (8, 8)


@for_each(
    ("model", "route", "bounds"),
    [
        ("gpt-4o-mini", "openai", {"max_tokens": 16}),
        ("gpt-4o-mini", "openai-chat", {"max_tokens": 4096}),
        ("o3-mini", "openai-chat", {"max_completion_tokens": 4096}),
    ],
)
async def test_cap_bounds_a_call_without_a_bound(
    model: str, route: str, bounds: dict[str, int], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """The default of legacy completions is smaller than the cap, and stays."""
    text = policies_for(upstream.url).replace("gpt-4o-mini", model)
    async with running_proxy(tmp_path / "policies", text + POLICY) as proxy:
        await ask(proxy, route, {})

    [request] = upstream.requests
    names = ("max_tokens", "max_completion_tokens")
    assert {name: request.json[name] for name in names if name in request.json} == bounds


@pytest.mark.parametrize("route", ROUTES)
async def test_type_of_a_field_is_no_internal_error(
    route: str, start: Start, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(legacy()))
    proxy = await start()

    cases = [(name, value) for name in READ for value in ODD]
    failed = [case for case in cases if (await ask(proxy, route, dict([case]))).status == 500]

    assert failed == []
    assert not any(record.is_internal_error for record in await proxy.sink.wait(len(cases)))


@for_each(
    ("route", "fields", "param"),
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
        ("portkey", {"stop": ["a"] * 5}, "stop"),
        ("portkey", {"logprobs": 6}, "logprobs"),
        ("fireworks", {"max_tokens": -1}, "max_tokens"),
        ("enkrypt", {"logprobs": 6}, "logprobs"),
        ("multimodel", {"temperature": 1.5}, "temperature"),
        ("scale", {"stop": ["a"] * 5}, "stop"),
        ("scale", {"model": "portkey-model", "logprobs": True, "top_logprobs": 20}, "top_logprobs"),
    ],
)  # fmt: skip
async def test_refused_field_is_named(
    route: str, fields: dict[str, Any], param: str, start: Start, upstream: ScriptedUpstream
) -> None:
    reply = await ask(await start(""), route, fields)

    assert (reply.status, reply.error["param"]) == (refusal(route), param)
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
async def test_fields_that_choose_a_route_are_refused(
    route: str, start: Start, upstream: ScriptedUpstream
) -> None:
    proxy = await start()
    for name in CHOOSING:
        replies = [
            await ask(proxy, route, fields)
            for fields in (
                {name: "http://127.0.0.1:9/"},
                {"extra_body": {name: "x"}},
                {name.upper(): ["x"]},
            )
        ]
        records = await proxy.sink.wait(3)

        assert [reply.status for reply in replies] == [refusal(route)] * 3, name
        params = [reply.error["param"] for reply in replies[:2]]
        assert params == [name, f"extra_body.{name}"]
        ends = [(record.outcome, record.billing.bills) for record in records]
        assert ends == [("client_error", [])] * 3, name
        proxy.sink.forget()
    assert upstream.requests == []


async def test_unknown_fields_are_forwarded(start: Start, upstream: ScriptedUpstream) -> None:
    fields = {"chat_template_kwargs": {"enable_thinking": False}, "documents": [{"text": "a"}]}

    await ask(await start(), "openai-chat", fields)

    [request] = upstream.requests
    assert {name: request.json[name] for name in fields} == fields


@for_each("route", ROUTES)
async def test_misspelled_field_is_warned_of(route: str, start: Start) -> None:
    reply = await ask(await start(), route, {"max_tokns": 5})

    warning = "max_tokns unknown, did you mean max_tokens?"
    assert warning in reply.headers["x-headrace-warning"]


async def test_upstream_settings_decide_fields(start: Start, upstream: ScriptedUpstream) -> None:
    proxy = await start(extra="drop: [provider, documents], refuse: [seed], accepts: [models],")

    fields = {"provider": {"order": ["x"]}, "documents": ["d"], "models": ["m"]}
    accepted = await ask(proxy, "openai-chat", fields)
    refused = await ask(proxy, "openai-chat", {"seed": 1})

    [request] = upstream.requests
    assert accepted.status == 200
    assert request.json["models"] == ["m"]
    assert not {"provider", "documents"} & request.json.keys()
    assert "provider dropped" in accepted.headers["x-headrace-warning"]
    assert (refused.status, refused.error["param"]) == (400, "seed")


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
async def test_ranges_are_those_of_the_upstream(
    route: str, fields: dict[str, Any], start: Start, upstream: ScriptedUpstream
) -> None:
    proxy = await start("")

    accepted = await ask(proxy, route, fields)
    refused = await ask(proxy, route, {**fields, "model": "fireworks-model"})

    [request] = upstream.requests
    assert accepted.status == 200
    assert {name: request.json[name] for name in fields} == fields
    assert refused.status == 400
    assert refused.error["param"] in fields


async def test_stop_sequences_are_sent_only_where_allowed(
    start: Start, upstream: ScriptedUpstream
) -> None:
    proxy = await start("")
    fields = {"stop_sequences": ["a", "b", "c", "d", "e"]}

    accepted = await ask(proxy, "scale", {"model": "scale-model", **fields})
    refused = await ask(proxy, "scale", {"model": "fireworks-model", **fields})

    [request] = upstream.requests
    assert accepted.status == 200
    assert request.json["stop_sequences"] == fields["stop_sequences"]
    assert "stop" not in request.json  # not even as null
    assert (refused.status, refused.error["param"]) == (422, "stop_sequences")


DEFAULTS: tuple[dict[str, Any], ...] = (
    {"modalities": ["text"]}, {"tool_choice": "none"}, {"tool_choice": "auto", "tools": []},
    {"tools": []}, {"functions": []}, {"response_format": {"type": "text"}}, {"top_k": -1},
    {"stop": []}, {"suffix": ""},
)  # fmt: skip


@pytest.mark.parametrize("target", ["fireworks-model", "portkey-model", "multimodel-model"])
@pytest.mark.parametrize("route", ["scale", "openai"])
async def test_written_defaults_are_accepted(route: str, target: str, start: Start) -> None:
    proxy = await start("")
    for fields in DEFAULTS:
        reply = await ask(proxy, route, {"model": target, **fields})

        assert reply.status == 200, (fields, reply.raw)


@pytest.mark.parametrize(
    ("route", "status"),
    [("openai", 200), ("portkey", 200), ("enkrypt", 200), ("scale", 422), ("fireworks", 400)],
)
async def test_absent_prompt_equals_a_null_prompt(
    route: str, status: int, start: Start, upstream: ScriptedUpstream
) -> None:
    """If a null prompt is allowed, both mean the start of a document."""
    path, headers, _ = ROUTES[route]
    proxy = await start("")

    bodies: tuple[dict[str, Any], ...] = ({}, {"prompt": None})
    replies = [
        await proxy.send(path, {"model": "support-chat", **body}, headers) for body in bodies
    ]

    assert [reply.status for reply in replies] == [status, status]
    assert {request.json["prompt"] for request in upstream.requests} <= {"<|endoftext|>"}


@for_each(("count", "status"), [(20, 200), (32, 200), (33, 400)])
async def test_list_of_models_is_bounded(count: int, status: int, start: Start) -> None:
    """The API document lists twenty models and no bound."""
    proxy = await start("")
    body = {"model": [f"model-{number}" for number in range(count)], "prompt": "Hi"}

    headers = {**BEARER, "x-headrace-deployment": "compare"}
    reply = await proxy.send("/v1/completion", body, headers)

    assert reply.status == status
    if status == 400:
        assert reply.error["param"] == "model"
        assert "at most 32 models" in reply.error["message"]
