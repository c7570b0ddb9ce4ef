"""Responses for Scale, Enkrypt, Fireworks, Portkey and multimodel clients match their docs."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.conformance.checking import (
    BEARER,
    COMPLETION,
    FINGERPRINT,
    Document,
    Parameter,
    biases,
    boolean,
    integer,
    is_count,
    is_usage,
    mapping,
    number,
    prompts,
    stops,
    streamed_answer,
    text,
    texts,
    texts_of,
    whole_answer,
    wrong_fields,
)
from tests.conftest import KEY, Proxy
from tests.doubles import ScriptedUpstream, legacy_completion, respond, usage

SCALE_DOCUMENT = Document(
    path="/v4/beta/completions",
    credential={"x-api-key": KEY},
    deployment="via-scale",
    required={"model": "vendor/m", "prompt": "p"},
    parameters=[
        Parameter("prompt", ["p", "é ☃"], [1, True, {}], null=False),
        Parameter("model", [], [1, True, ["m"], {}], null=False),
        integer("max_new_tokens", 1, sent=lambda value: {"max_tokens": value}),
        number("temperature", 0),
        texts("stop_sequences", sent=lambda value: {"stop": value}),
        Parameter(
            "return_token_log_probs",
            [True],
            [1, "true", []],
            sent=lambda value: {"logprobs": True, "top_logprobs": 0},
        ),
        number("presence_penalty", -2, 2),
        number("frequency_penalty", -2, 2),
        number("top_p", 0, 1),
        integer("top_k", -1),
        boolean("include_stop_str_in_output"),
        mapping("guided_json"),
        text("guided_regex"),
        texts("guided_choice"),
        text("guided_grammar"),
        Parameter("stream", [False], [1, "true", []]),
        mapping("stream_options", {"include_usage": True}, beside={"stream": True}),
        stops(),
        biases(),
        Parameter(
            "logprobs",
            [True],
            ["true", [], 1.5],
            sent=lambda value: {"logprobs": True, "top_logprobs": 0},
        ),
        integer("top_logprobs", 0, 20, beside={"logprobs": True}),
        integer("max_tokens"),
        integer("n", 1),
        integer("seed"),
        text("suffix"),
        mapping("response_format", {"type": "json_object"}),
        text("user"),
        mapping("audio"),
        Parameter("inference_timeout", [5, 2.5], ["x", True, []]),
        integer("max_completion_tokens", 1, sent=lambda value: {"max_tokens": value}),
        Parameter(
            "modalities", [["text"], ["audio"], ["text", "audio"]], [["video"], "text", [1], 1]
        ),
        mapping("inference_extra_params"),
        Parameter("tools", [[{"type": "function"}]], [1, ["x"], {}]),
        Parameter("tool_choice", ["none", "auto", "required"], ["other", 1, []]),
        boolean("parallel_tool_calls"),
        integer("best_of"),
        mapping("inference_extra_headers", {"x-team": "support"}),
        mapping("prediction"),
    ],
    answer={**COMPLETION, "system_fingerprint": lambda value: value == FINGERPRINT},
    wrong_status=422,
)


@pytest.mark.parametrize("model", ["vendor/m", "vendor/m/via-scale"])
async def test_model_may_name_its_deployment(model: str, client: ClientSession) -> None:
    headers = dict(SCALE_DOCUMENT.headers)
    if model.count("/") == 2:
        del headers["x-headrace-deployment"]
    body = {**SCALE_DOCUMENT.required, "model": model}

    async with client.post(SCALE_DOCUMENT.path, headers=headers, json=body) as response:
        assert response.status == 200
        assert response.headers["x-headrace-deployment"] == "via-scale"


ENKRYPT_DOCUMENT = Document(
    path="/ai-proxy/completions",
    credential={"apikey": KEY},
    deployment="via-enkrypt",
    required={"model": "m", "prompt": "p"},
    parameters=[
        Parameter("model", [], [1, True, ["m"], {}], null=False),
        prompts(means="<|endoftext|>"),
        integer("best_of", 0, 20),
        boolean("echo"),
        text("enkrypt_context"),
        text("context", sent=lambda value: {"enkrypt_context": value}),
        number("frequency_penalty", -2, 2),
        biases(),
        Parameter("logprobs", [0, 5], [6, -1, 1.5, True, "1"]),
        integer("max_tokens", 1),
        integer("n", 1, 128),
        number("presence_penalty", -2, 2),
        Parameter("seed", [-(2**63), 0, 2**63 - 1], [1.5, "1", True]),
        stops(),
        Parameter("stream", [False], [1, "true", []]),
        mapping("stream_options", {"include_usage": True}, beside={"stream": True}),
        text("suffix"),
        number("temperature", 0, 2),
        number("top_p", 0, 1),
        text("user"),
    ],
    answer={**COMPLETION, "system_fingerprint": lambda value: value == FINGERPRINT},
)


FORMAT = {"type": "json_object", "schema": {"type": "object"}}
FIREWORKS_DOCUMENT = Document(
    path="/inference/v1/completions",
    credential=BEARER,
    deployment="via-fireworks",
    required={"model": "m", "prompt": "p"},
    parameters=[
        Parameter("model", [], [1, True, ["m"], {}], null=False),
        prompts(),
        Parameter("context_length_exceeded_behavior", ["truncate", "error"], ["other", 1, True]),
        boolean("echo"),
        number("frequency_penalty", -2, 2),
        boolean("ignore_eos"),
        texts("images"),
        Parameter("logprobs", [0, 1, 5], [-1, 6, 1.5, "1", []]),
        integer("max_tokens", 1),
        number("mirostat_lr"),
        number("mirostat_target"),
        integer("n", 1, 128),
        number("presence_penalty", -2, 2),
        number("repetition_penalty", 0, 2),
        mapping("response_format", {"type": "json_object"}),
        Parameter("response_format", [FORMAT], [1, "json_object", []]),
        stops(),
        Parameter("stream", [False], [1, "true", []]),
        number("temperature", 0, 2),
        integer("top_k", 1, 128),
        number("top_p", 0, 1),
        text("user"),
    ],
    answer=COMPLETION,
)


async def test_fireworks_stream_has_fields_and_usage(
    client: ClientSession, upstream: ScriptedUpstream
) -> None:
    events, ended = await streamed_answer(FIREWORKS_DOCUMENT, client, upstream)

    assert ended
    assert texts_of(events) == " Paris."
    assert is_usage(events[-1]["usage"])
    assert [wrong_fields(FIREWORKS_DOCUMENT, event, absent=["usage"]) for event in events] == [
        []
    ] * len(events)


PORTKEY_DOCUMENT = Document(
    path="/v1/completions",
    credential={"x-portkey-api-key": KEY, "x-portkey-virtual-key": "via-portkey"},
    deployment="via-portkey",
    required={"model": "m", "prompt": "p"},
    parameters=[
        Parameter("model", [], [1, True, ["m"], {}], null=False),
        prompts(means="<|endoftext|>"),
        integer("best_of"),
        boolean("echo"),
        number("frequency_penalty", -2, 2),
        biases(),
        Parameter("logprobs", [0, 5], [6, -1, 1.5, True, "1"]),
        integer("max_tokens"),
        integer("n"),
        number("presence_penalty", -2, 2),
        integer("seed"),
        stops(),
        Parameter("stream", [False], [1, "true", []]),
        mapping("stream_options", {"include_usage": True}, beside={"stream": True}),
        text("suffix"),
        number("temperature", 0, 2),
        number("top_p", 0, 1),
        text("user"),
    ],
    answer={**COMPLETION, "system_fingerprint": lambda value: value == FINGERPRINT},
)


OWN_RESPONSE: dict[str, Any] = {
    "id": "7f4df1e8-93fa-4b7c-a6d3-0fdf9f8c1e52",
    "object": "text_completion",
    "created": "2026-01-01T00:00:00Z",
    "choices": [{"text": " Paris.", "created": 1_700_000_000, "model": "m",
        "finish_reason": "stop token reached", "usage": {**usage(), "prediction_time_ms": 12}}],
    "usage": {**usage(), "prediction_time_ms": 12},
}  # fmt: skip


def is_uuid(value: Any) -> bool:
    return isinstance(value, str) and str(uuid.UUID(value)) == value


def is_moment(value: Any) -> bool:
    return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None


def is_timed_usage(value: Any) -> bool:
    names = {*usage(), "prediction_time_ms"}
    return isinstance(value, dict) and value.keys() == names and all(map(is_count, value.values()))


def are_choices(value: Any) -> bool:
    names = {"text", "created", "model", "finish_reason", "usage"}
    return bool(value) and all(
        choice.keys() == names
        and choice["text"] == " Paris."
        and is_count(choice["created"])
        and isinstance(choice["model"], str)
        and isinstance(choice["finish_reason"], str)
        and is_timed_usage(choice["usage"])
        for choice in value
    )


MULTIMODEL_DOCUMENT = Document(
    path="/v1/completion",
    credential=BEARER,
    deployment="via-multimodel",
    required={"model": "m", "prompt": "p"},
    parameters=[
        Parameter("prompt", ["p", "é ☃"], [1, True, {}, ["p"], [1]], null=False),
        Parameter("model", [], [1, True, {}, [], [1], ["m", "m"]], null=False),
        integer("max_tokens", 1),
        number("temperature", 0, 1),
        number("top_p", 0, 1),
        texts("stop"),
        Parameter("stop", [], ["."]),
        number("presence_penalty", -2, 2),
        number("frequency_penalty", -2, 2),
    ],
    answer={
        "id": is_uuid,
        "object": lambda value: value == "text_completion",
        "created": is_moment,
        "choices": are_choices,
        "usage": is_timed_usage,
    },
)


@pytest.mark.parametrize("models", ["m", ["m"]])
async def test_multimodel_response_has_the_documented_fields(
    models: Any, client: ClientSession, upstream: ScriptedUpstream
) -> None:
    document = replace(MULTIMODEL_DOCUMENT, required={"model": models, "prompt": "p"})

    fields = await whole_answer(document, client, upstream)

    assert wrong_fields(MULTIMODEL_DOCUMENT, fields) == []
    assert fields.keys() == MULTIMODEL_DOCUMENT.answer.keys()
    assert [choice["model"] for choice in fields["choices"]] == ["m"]


async def test_multimodel_response_has_own_fields(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(OWN_RESPONSE))

    fields = (
        await proxy.send(
            MULTIMODEL_DOCUMENT.path, MULTIMODEL_DOCUMENT.required, MULTIMODEL_DOCUMENT.headers
        )
    ).json

    assert wrong_fields(MULTIMODEL_DOCUMENT, fields) == []
    assert fields["choices"] == OWN_RESPONSE["choices"]
    assert fields["usage"] == OWN_RESPONSE["usage"]


async def test_each_model_has_a_choice(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {"first": respond(legacy_completion(" Paris.", usage=usage(7, 2)))}
    headers = {**BEARER, "x-headrace-deployment": "compare"}
    body = {"model": ["second", "first"], "prompt": "p"}

    fields = (await proxy.send(MULTIMODEL_DOCUMENT.path, body, headers)).json

    assert wrong_fields(MULTIMODEL_DOCUMENT, fields) == []
    assert [choice["model"] for choice in fields["choices"]] == ["second", "first"]
    assert fields["usage"]["prompt_tokens"] == 12


@pytest.mark.parametrize("count", [1000, 1001, 5000])
async def test_too_many_models_are_refused_briefly(count: int, proxy: Proxy) -> None:
    body = {"model": [f"{number}" + "m" * 100 for number in range(count)], "prompt": "p"}

    response = await proxy.send(MULTIMODEL_DOCUMENT.path, body, BEARER)
    text, fields = response.raw, response.json

    assert (response.status, fields["error"]["param"]) == (404 if count == 1000 else 400, "model")
    assert len(text) < 2000
