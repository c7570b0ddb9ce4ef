"""Enkrypt's ``POST /ai-proxy/completions``, parameter by parameter and field by field."""

from __future__ import annotations

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
    prompts,
    stops,
    streamed_answer,
    text,
    whole_answer,
)
from tests.conftest import KEY
from tests.doubles import ScriptedUpstream

DOCUMENT = Document(
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


async def test_header_picks_deployment(client: ClientSession, upstream: ScriptedUpstream) -> None:
    headers = {
        **DOCUMENT.credential,
        "x-enkrypt-deployment": "via-enkrypt",
        "x-enkrypt-tags": "beta,feature=chat",
        "x-enkrypt-refresh-cache": "true",
    }
    body = DOCUMENT.required

    async with client.post(DOCUMENT.path, headers=headers, json=body) as response:
        assert response.status == 200
        assert response.headers["x-headrace-deployment"] == "via-enkrypt"


async def test_each_field_of_an_answer(client: ClientSession, upstream: ScriptedUpstream) -> None:
    fields = await whole_answer(DOCUMENT, client, upstream)

    assert fields["prompt"] == []
    assert set(fields["enkrypt_policy_detections"]) == {"input_guardrails", "output_guardrails"}


async def test_stream_fields(client: ClientSession, upstream: ScriptedUpstream) -> None:
    events, _ = await streamed_answer(DOCUMENT, client, upstream)

    assert "enkrypt_policy_detections" in events[-1]
