"""The multi-model ``POST /v1/completion``, parameter by parameter and field by field."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.conformance.checking import (
    BEARER,
    Document,
    Parameter,
    integer,
    is_count,
    number,
    texts,
    whole_answer,
    wrong_fields,
)
from tests.conftest import Proxy
from tests.doubles import ScriptedUpstream, answer, legacy, usage

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


DOCUMENT = Document(
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
async def test_each_field_of_an_answer(
    models: Any, client: ClientSession, upstream: ScriptedUpstream
) -> None:
    document = replace(DOCUMENT, required={"model": models, "prompt": "p"})

    fields = await whole_answer(document, client, upstream)

    assert wrong_fields(DOCUMENT, fields) == []
    assert fields.keys() == DOCUMENT.answer.keys()
    assert [choice["model"] for choice in fields["choices"]] == ["m"]


async def test_own_response_fields(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer(OWN_RESPONSE))

    fields = (await proxy.send(DOCUMENT.path, DOCUMENT.required, DOCUMENT.headers)).json

    assert wrong_fields(DOCUMENT, fields) == []
    assert fields["choices"] == OWN_RESPONSE["choices"]
    assert fields["usage"] == OWN_RESPONSE["usage"]


async def test_choice_per_model(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {"first": answer(legacy(" Paris.", usage=usage(7, 2)))}
    headers = {**BEARER, "x-headrace-deployment": "compare"}
    body = {"model": ["second", "first"], "prompt": "p"}

    fields = (await proxy.send(DOCUMENT.path, body, headers)).json

    assert wrong_fields(DOCUMENT, fields) == []
    assert [choice["model"] for choice in fields["choices"]] == ["second", "first"]
    assert fields["usage"]["prompt_tokens"] == 12


@pytest.mark.parametrize("count", [1000, 1001, 5000])
async def test_refuses_too_many_models_briefly(count: int, proxy: Proxy) -> None:
    body = {"model": [f"{number}" + "m" * 100 for number in range(count)], "prompt": "p"}

    response = await proxy.send(DOCUMENT.path, body, BEARER)
    text, fields = response.raw, response.json

    assert (response.status, fields["error"]["param"]) == (404 if count == 1000 else 400, "model")
    assert len(text) < 2000


@pytest.mark.parametrize("field", [{"stream": True}, {"n": 2}])
async def test_refuses_undocumented_field(field: dict[str, Any], proxy: Proxy) -> None:
    body = {**DOCUMENT.required, **field}

    response = await proxy.send(DOCUMENT.path, body, DOCUMENT.headers)

    assert (response.status, response.json["error"]["param"]) == (400, next(iter(field)))
