"""Responses of guard services must have the agreed form."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field, TypeAdapter

from proxy.guards.services.wire import BadAnswer, NoAnswer, ServiceAnswer, parse_answer, post_json
from tests.doubles import ScriptedUpstream, respond
from tests.for_each import for_each
from tests.guards.guard_clients import guard_clients


class Loose(ServiceAnswer):
    score: Annotated[float, Field(ge=0, le=1)]
    number: int = 0


@for_each(
    "raw",
    [
        b"",
        b"no",
        b"[]",
        b"{}",
        b"\xff",
        b'{"score": NaN}',
        b'{"score": 1.5}',
        b'{"score": "1"}',
        b'{"score": true}',
        b'{"score": 1, "number": 1.0}',
        b'{"score": 1, "number": "1"}',
        b"[" * 10_000,
    ],
)
def test_invalid_response_is_not_quoted(raw: bytes) -> None:
    with pytest.raises(BadAnswer) as refused:
        parse_answer(TypeAdapter(Loose), raw)

    assert str(refused.value) == ""
    assert refused.value.__cause__ is None


@pytest.mark.parametrize("status", [201, 301, 500])
async def test_other_status_than_200_is_an_error(status: int, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond({}, status, "location: /elsewhere"))

    async with guard_clients() as client:
        with pytest.raises(NoAnswer):
            await post_json(client, upstream.url, {"text": "é"}, {"x-more": "1"})
    [request] = upstream.requests

    assert (request.path, request.json, request.headers["x-more"]) == ("/", {"text": "é"}, "1")
    assert request.headers["content-type"] == "application/json"
