"""Searches for calls of agent frameworks that fail or lose data before an upstream of some API."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.conftest import Proxy
from tests.dialects.test_responses import FULL_RESPONSE
from tests.doubles import PATIENCE_S, ScriptedUpstream, respond
from tests.sdks.conftest import Drive
from tests.sdks.frameworks import PICTURE, TOOL_RESULT
from tests.sdks.upstream_scripts import (
    APIS,
    ARGUMENTS,
    SIGNATURE,
    THOUGHT,
    respond_call,
    respond_text,
    stall,
)

CLIENTS = {
    "openai-agents": "responses",
    "pydantic-openai": "responses",
    "pydantic-anthropic": "messages",
    "litellm-chat": "chat",
    "litellm-anthropic": "messages",
    "node-openai-chat": "chat",
    "node-openai-responses": "responses",
    "node-azure-chat": "chat",
    "node-azure-responses": "responses",
    "node-anthropic": "messages",
    "ai-sdk-openai": "responses",
    "ai-sdk-anthropic": "messages",
}
"""The API of each client."""
REFUSED = ["BadRequestError", "NotFoundError", "AuthenticationError"]
OPENAI = ["RateLimitError", "InternalServerError", *REFUSED]
LITELLM = ["RateLimitError", "BadGatewayError", *REFUSED]
PYDANTIC = [
    f"Model{name}Error"
    for name in ("RateLimit", "Server", "RequestRejected", "NotFound", "Authentication")
]
ERRORS = {
    "openai-agents": OPENAI,
    "pydantic-openai": PYDANTIC,
    "pydantic-anthropic": PYDANTIC,
    "litellm-chat": LITELLM,
    "litellm-anthropic": LITELLM,
    "node-openai-chat": OPENAI,
    "node-openai-responses": OPENAI,
    "node-azure-chat": OPENAI,
    "node-azure-responses": OPENAI,
    "node-anthropic": OPENAI,
    "ai-sdk-openai": ["APICallError"] * 5,
    "ai-sdk-anthropic": ["APICallError"] * 5,
}
"""The exceptions for 429, 502, 400, 404 and 401."""
DEPLOYMENTS = {api: deployment for deployment, api in APIS.items()}
every_client = pytest.mark.parametrize("client", CLIENTS)
every_upstream = pytest.mark.parametrize("to", APIS)


def require_success(result: dict[str, Any]) -> dict[str, Any]:
    assert result["ok"], (result["exception"], result["message"])
    return result


def step(do: str, to: str, **options: Any) -> dict[str, Any]:
    return {"do": do, "to": to, **options}


@every_upstream
@every_client
async def test_reads_whole_and_streamed_responses(
    client: str, to: str, drive: Drive, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.then(
        respond_text(APIS[to], " Paris."), respond_text(APIS[to], " Paris.", streamed=True)
    )

    full_value, streamed = await drive(client, step("ask", to), step("ask", to, stream=True))

    for document in map(require_success, (full_value, streamed)):
        assert (document["text"], document["usage"]) == (" Paris.", [5, 3])
    records = await proxy.sink.wait(2)
    assert [record.outcome for record in records] == ["success"] * 2
    assert [record.billing.tokens.total for record in records] == [8, 8]


@every_upstream
@pytest.mark.parametrize("client", [*CLIENTS, "anthropic-runner"])
async def test_tool_loop_ends_with_its_result(
    client: str, to: str, drive: Drive, upstream: ScriptedUpstream
) -> None:
    for streamed in (False, True):
        upstream.then(respond_call(APIS[to], streamed=streamed))
        upstream.then(respond_text(APIS[to], " Paris.", streamed=streamed))

    observed = await drive(client, step("loop", to), step("loop", to, stream=True))

    for document in map(require_success, observed):
        assert (document["text"], document["usage"]) == (" Paris.", [10, 6])
    for request in upstream.requests[1::2]:
        sent_data = request.body.replace(b"\\", b"").replace(b" ", b"")
        assert ARGUMENTS.replace(" ", "").encode() in sent_data
        assert TOOL_RESULT.replace(" ", "").encode() in sent_data
    assert len(upstream.requests) == 4


@every_upstream
@every_client
async def test_structured_output_and_image_input_work(
    client: str, to: str, drive: Drive, upstream: ScriptedUpstream
) -> None:
    upstream.then(respond_text(APIS[to], '{"city": "Paris"}'), respond_text(APIS[to], " Paris."))

    typed, inspection = await drive(client, step("typed", to), step("look", to))

    assert require_success(typed)["typed"] == {"city": "Paris"}
    assert require_success(inspection)["text"] == " Paris."
    schema, picture = upstream.requests
    assert b'"additionalProperties"' in schema.body
    assert PICTURE.encode() in picture.body


@pytest.mark.parametrize("client", [name for name, api in CLIENTS.items() if api != "chat"])
async def test_reasoning_is_returned(client: str, drive: Drive, upstream: ScriptedUpstream) -> None:
    to = DEPLOYMENTS[CLIENTS[client]]
    for streamed in (False, True):
        upstream.then(respond_call(APIS[to], streamed=streamed, thinking=True))
        upstream.then(respond_text(APIS[to], " Paris.", streamed=streamed))

    observed = await drive(client, step("think", to), step("think", to, stream=True))

    for document in map(require_success, observed):
        assert document["text"] == " Paris."
        assert document.get("thought", THOUGHT) == THOUGHT
    for request in upstream.requests[1::2]:
        assert SIGNATURE.encode() in request.body
        assert THOUGHT.encode() in request.body


async def test_ai_sdk_resends_when_not_stored(drive: Drive, upstream: ScriptedUpstream) -> None:
    for _ in range(2):
        upstream.then(respond(FULL_RESPONSE))
    upstream.then(respond_text("responses", " Paris."))
    to = "responses-only"

    by_id, document = await drive(
        "ai-sdk-openai", step("loop", to, retries=0), step("loop", to, store=False)
    )

    assert (by_id["exception"], by_id["status"]) == ("APICallError", 400)
    assert "Send the item itself" in by_id["message"]
    assert require_success(document)["text"] == " Paris."
    sent_value = upstream.requests[-1].json["input"]
    assert [item.get("type") for item in sent_value[-2:]] == [
        "function_call",
        "function_call_output",
    ]
    assert "Let me see." in str(sent_value[:-2])


@every_client
async def test_errors_are_raised(client: str, drive: Drive, upstream: ScriptedUpstream) -> None:
    to = DEPLOYMENTS[CLIENTS[client]]
    upstream.then(respond({"error": {"message": "slow down"}}, 429), respond({}, 500))
    wrong = {"error": {"message": "No such place.", "type": "invalid_request_error"}}
    upstream.then(respond(wrong, 400))
    request = step("ask", to, retries=0)

    observed = await drive(client, request, request, request, {**request, "to": "nobody-has-it"})
    observed += await drive(client, request, key="hr-wrong")

    statuses = [document["status"] for document in observed]
    assert statuses == [429, 502, 400, 404, 401], [document["message"] for document in observed]
    kinds = zip(observed, ERRORS[client], strict=True)
    assert [kind in document["mro"] for document, kind in kinds] == [True] * 5, [
        document["mro"] for document in observed
    ]


@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "litellm-anthropic"])
async def test_retry_waits_as_requested(
    client: str, drive: Drive, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    to = DEPLOYMENTS[CLIENTS[client]]
    upstream.then(respond({"error": {"message": "slow down"}}, 429, "retry-after: 2"))
    upstream.then(respond_text(APIS[to], " Paris."))

    started_at = time.monotonic()
    [result] = await drive(client, step("ask", to, retries=1))

    assert require_success(result)["text"] == " Paris."
    assert time.monotonic() - started_at >= 2
    outcomes = [record.outcome for record in await proxy.sink.wait(2)]
    assert outcomes == ["upstream_error", "success"]


@every_client
async def test_disconnect_closes_the_upstream(
    client: str, drive: Drive, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    to = DEPLOYMENTS[CLIENTS[client]]
    upstream.then(stall(APIS[to]))

    [remaining] = await drive(client, step("ask", to, stream=True, leave=5))

    require_success(remaining)
    [record] = await proxy.sink.wait()
    assert record.outcome == "client_abort"
    async with asyncio.timeout(PATIENCE_S):
        await upstream.requests[0].closed.wait()
