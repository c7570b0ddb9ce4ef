"""What an upstream answers in its own words, read by the clients of all other dialects."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.conftest import Proxy
from tests.doubles import Asked, ScriptedUpstream, Wire, answer, legacy, stream, usage
from tests.for_each import for_each
from tests.test_pipeline import BEARER, ROUTES

CHOICE = {"text": " Paris.", "created": 1, "model": "m", "finish_reason": ""}
MULTIMODEL: dict[str, Any] = {
    "id": "6f1c",
    "object": "text_completion",
    "created": "2026-01-01T00:00:00Z",
    "choices": [CHOICE],
    "usage": {**usage(), "prediction_time_ms": 7},
}
OWN_VALUE = "multimodel", "anthropic", "openai-responses"  # whose answers have words of their own
OTHER_VALUES = [name for name in ROUTES if "bare" not in name and name not in OWN_VALUE]


@for_each("streamed", [False, True])
@for_each("name", OTHER_VALUES)
@for_each(
    "words",
    [("stop token reached", "stop"), ("timeout", "length"), ("length", "length"), ("stop", "stop")],
)
async def test_the_finish_words_of_a_multimodel_upstream_are_openais_for_all_others(
    name: str, streamed: bool, words: tuple[str, str], proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    route = ROUTES[name]
    word, known_text = words
    upstream.answer_with(answer({**MULTIMODEL, "choices": [{**CHOICE, "finish_reason": word}]}))
    headers = {**route.credential, "x-headrace-deployment": "via-multimodel"}

    body = route.body(streamed=streamed)
    async with proxy.client.post(route.path, headers=headers, json=body) as response:
        raw = await response.text()

    assert f'"finish_reason":"{known_text}"' in raw


async def test_multimodel_finish_reasons(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    ended = {**CHOICE, "finish_reason": "stop token reached"}
    upstream.answer_with(answer({**MULTIMODEL, "choices": [ended]}))
    headers = {**BEARER, "x-headrace-deployment": "via-multimodel"}

    body = {"model": "m", "prompt": "p"}
    async with proxy.client.post("/v1/completion", headers=headers, json=body) as response:
        fields = await response.json()

    assert fields["choices"][0]["finish_reason"] == "stop token reached"
    assert fields["usage"]["prediction_time_ms"] == 7


CONTENT = {
    "content": [
        {
            "token": t,
            "logprob": -0.5,
            "bytes": list(t.encode()),
            "top_logprobs": [{"token": t, "logprob": -0.5}],
        }
        for t in (" Par", "is.")
    ]
}
LEGACY_CLIENTS = [name for name in OTHER_VALUES if "chat" not in name]


@for_each("streamed", [False, True])
@for_each("spoken", ["scale", "openai"])  # llama.cpp's server does as Scale's
@for_each("name", LEGACY_CLIENTS)
async def test_log_probabilities_of_legacy_completions_are_lists_for_all_but_scale(
    name: str, spoken: str, streamed: bool, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    route = ROUTES[name]
    choice = {"index": 0, "text": " Paris.", "logprobs": CONTENT, "finish_reason": "stop"}
    fields = legacy(choices=[choice])
    upstream.answer_with(
        stream([fields, fields], is_done=spoken != "scale") if streamed else answer(fields)
    )
    deployment = "support-chat" if spoken == "openai" else "via-scale"
    headers = {**route.credential, "x-headrace-deployment": deployment}
    if name == "portkey":
        headers.pop("x-portkey-virtual-key")

    request = {"logprobs": True, "top_logprobs": 1} if name.startswith("scale") else {"logprobs": 1}
    body = route.body(streamed=streamed, **request)
    async with proxy.client.post(route.path, headers=headers, json=body) as response:
        raw = await response.text()

    documents = [part.split("\n")[0] for part in raw.split("data: ")[1:3]] if streamed else [raw]
    for number, document in enumerate(documents):
        [event] = json.loads(document)["choices"]
        if name.startswith("scale"):
            assert event["logprobs"] == CONTENT
        else:
            assert event["logprobs"] == {
                "tokens": [" Par", "is."],
                "token_logprobs": [-0.5, -0.5],
                "top_logprobs": [{" Par": -0.5}, {"is.": -0.5}],
                "text_offset": [number * 7, number * 7 + 4],
            }


@pytest.mark.parametrize("models", ["support-chat", ["support-chat"], ["first", "second"]])
async def test_how_long_a_model_took_is_measured(
    models: Any, upstream: ScriptedUpstream, client: ClientSession
) -> None:
    async def slow(request: Asked, wire: Wire) -> None:
        await asyncio.sleep(0.03)
        await answer(legacy())(request, wire)

    upstream.answer_with(slow)

    body = {"model": models, "prompt": "p"}
    async with client.post("/v1/completion", headers=BEARER, json=body) as response:
        fields = await response.json()

    times = [choice["usage"]["prediction_time_ms"] for choice in fields["choices"]]
    assert min(times) >= 29
    assert fields["usage"]["prediction_time_ms"] == max(times)
