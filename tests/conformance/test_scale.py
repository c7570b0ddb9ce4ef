"""Scale's ``POST /v4/beta/completions``, parameter by parameter and field by field."""

from __future__ import annotations

from dataclasses import replace

import pytest
from aiohttp import ClientSession

from tests.conformance.checking import (
    COMPLETION,
    FINGERPRINT,
    Document,
    Parameter,
    biases,
    boolean,
    integer,
    mapping,
    number,
    stops,
    text,
    texts,
    wrong_parameters,
)
from tests.conftest import KEY
from tests.doubles import ScriptedUpstream

DOCUMENT = Document(
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


async def test_logprobs_rule(client: ClientSession, upstream: ScriptedUpstream) -> None:
    alone = [
        Parameter("top_logprobs", [], [2], beside=extra)
        for extra in ({}, {"logprobs": False}, {"logprobs": 3})
    ]
    document = replace(DOCUMENT, parameters=alone)

    problems = await wrong_parameters(document, client, upstream)

    assert problems == []


@pytest.mark.parametrize("model", ["vendor/m", "vendor/m/via-scale"])
async def test_a_model_may_name_its_deployment(model: str, client: ClientSession) -> None:
    headers = dict(DOCUMENT.headers)
    if model.count("/") == 2:
        del headers["x-headrace-deployment"]
    body = {**DOCUMENT.required, "model": model}

    async with client.post(DOCUMENT.path, headers=headers, json=body) as response:
        assert response.status == 200
        assert response.headers["x-headrace-deployment"] == "via-scale"
