"""Searches for statuses of an upstream that fallback, hedge, circuit, cache or client misread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Proxy, policies_for, running_proxy
from tests.dialects.test_stored_state import StatefulProxy, stateful_proxy
from tests.doubles import (
    Json,
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    Wire,
    closes,
    event,
    hang,
    head,
    http_chunk,
    legacy_completion,
    legacy_events,
    respond,
    response,
    sends,
)
from tests.test_pipeline import MESSAGES, ROUTES, reply_text

TARGETS = (
    "targets: [{upstream: portkey, model: strict}], fallback: [{upstream: openai, model: lax}]"
)
DEPLOYMENTS = f"""
  denying: {{{TARGETS}}}
  hedged: {{{TARGETS}, hedge: {{after: 5s}}}}
  raced: {{{TARGETS}, hedge: {{after: 20ms}}}}
  kept: {{targets: [{{upstream: portkey, model: strict}}], cache: {{ttl: 1h}}}}

"""
CLIENT_ERRORS = [406, 409, 412, 413, 414, 422, 424, 431, 446, 451, 501, 505, 508]
DENIAL = {
    "error": {"message": "The checks failed.", "type": "hooks_failed", "param": None, "code": None},
    "hook_results": {"before_request_hooks": [], "after_request_hooks": []},
}
STREAM = head(200, "text/event-stream", "transfer-encoding: chunked")
BLAMED = {"error": {"message": "Hi there", "type": "BadRequestError", "code": 400}}
FIRST_EVENT = http_chunk(event(legacy_events(" Par")[0]))


@pytest.fixture
async def proxy(tmp_path: Path, upstream: ScriptedUpstream) -> AsyncIterator[Proxy]:
    allowed = "deployments: [support-chat, "
    names = f"{allowed}denying, hedged, raced, kept, "
    policies = policies_for(upstream.url).replace(allowed, names)
    async with running_proxy(tmp_path / "policies", policies + DEPLOYMENTS) as running:
        yield running


FORBIDDEN = {"error": {"message": "key sk-x", "code": "no_access"}}
BLAMELESS: dict[str, tuple[Script, str, str | None, str | None]] = {
    **{
        str(status): (
            respond({"error": {"message": "Not here."}}, status),
            "upstream_refused",
            "false" if status >= 500 else None,
            None,
        )
        for status in CLIENT_ERRORS
    },
    "403": (respond(FORBIDDEN, 403), "upstream_forbids", "false", "no_access"),
    "400 in a stream": (
        closes(STREAM, http_chunk(event(BLAMED)), b"0\r\n\r\n"),
        "upstream_refused",
        None,
        None,
    ),
}
"""Scripts that blame the client, our code, the retry header, and the code in the body if any."""


@pytest.mark.parametrize("name", BLAMELESS)
async def test_client_error_is_returned_and_opens_no_circuit(
    name: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    script, code, retry, error_code = BLAMELESS[name]
    upstream.then(*[script] * 6)
    for _ in range(6):
        reply = await proxy.complete(stream=name.endswith("stream"))
        assert reply.status == int(name[:3])
        assert reply.headers["x-headrace-error"] == code
        assert reply.headers.get("x-should-retry") == retry
        assert error_code in (None, reply.error["code"])
        assert (reply.error["message"] in ("Not here.", "Hi there")) is (error_code is None)
        assert b"sk-x" not in reply.raw
    reply = await proxy.complete()
    records = await proxy.sink.wait(7)

    assert (reply.status, len(upstream.requests)) == (200, 7)
    assert {record.attempts[0].error for record in records[:6]} == {code}


async def test_missing_endpoint_opens_no_other_circuit(
    proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.then(*[respond({}, 500)] * 5)
    body = {"model": "gpt-4o-mini", "input": "Hi"}
    refused = [(await proxy.send("/v1/embeddings", body)).status for _ in range(6)]

    assert refused == [502] * 5 + [503]
    assert (await proxy.complete()).status == 200


WORDS: dict[str, tuple[int, Any, str, str]] = {
    "a context that is too long": (
        400,
        {"type": "invalid_request_error", "code": "context_length_exceeded"},
        "invalid_request_error",
        "context_length_exceeded",
    ),
    "a quota that is used up": (429, {"type": "insufficient_quota", "code": "insufficient_quota"},
        "insufficient_quota", "insufficient_quota"),
    "a filter": (
        400, {"type": None, "code": "content_filter"}, "invalid_request_error", "content_filter",
    ),
    "an overload": (529, {"type": "overloaded_error"}, "overloaded_error", "upstream_unavailable"),
    "a number": (400, {"code": 400, "type": 7}, "invalid_request_error", "upstream_refused"),
    "no word": (400, {"code": "x y\r\n", "type": "a" * 65}, "invalid_request_error",
        "upstream_refused"),
}  # fmt: skip


@pytest.mark.parametrize(("status", "error", "kind", "code"), WORDS.values(), ids=WORDS.keys())
async def test_codes_of_upstream_errors_are_forwarded(
    status: int, error: Any, kind: str, code: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.then(respond({"error": {"message": "No.", **error}}, status))
    reply = await proxy.complete()
    [record] = await proxy.sink.wait()

    assert (reply.error["type"], reply.error["code"]) == (kind, code)
    assert reply.headers["x-headrace-error"] == record.error.code
    assert record.error.code in ("upstream_refused", "upstream_unavailable")


@pytest.mark.parametrize("model", ["denying", "hedged", "raced"])
async def test_denial_is_final(model: str, proxy: Proxy, upstream: ScriptedUpstream) -> None:
    async def once_raced(requests: ReceivedRequest, wire: Wire) -> None:
        while model == "raced" and len(upstream.requests) < 2:
            upstream.arrived.clear()
            await upstream.arrived.wait()
        await respond(DENIAL, 446)(requests, wire)

    upstream.by_model = {"strict": once_raced}
    if model == "raced":
        upstream.by_model["lax"] = hang()
    for number in range(1, 7):
        upstream.requests.clear()
        reply = await proxy.complete(model=model)
        assert (reply.status, reply.error["code"]) == (400, "guardrail_blocked")
        assert reply.error["message"] == "The checks failed."
        assert reply.headers["x-headrace-error"] == "guardrail_blocked"
        await proxy.sink.wait(number)
    records = proxy.records

    assert {record.outcome for record in records} == {"blocked"}
    requests = [request.json["model"] for request in upstream.requests]
    assert requests == (["strict", "lax"] if model == "raced" else ["strict"])
    assert records[-1].skips == []


@pytest.mark.parametrize(
    ("name", "status", "kind"),
    [
        ("portkey", 446, "hooks_failed"),
        ("scale-5", 400, "invalid_request_error"),
        ("enkrypt", 400, "invalid_request_error"),
        ("fireworks", 400, "invalid_request_error"),
        ("multimodel", 400, "invalid_request_error"),
    ],
)
async def test_denial_is_a_block_in_each_dialect(
    name: str, status: int, kind: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(DENIAL, 446))
    route = ROUTES[name]
    headers = {**route.credential, "x-headrace-deployment": "denying"}
    reply = await proxy.send(route.path, route.body(streamed=False), headers)

    assert (reply.status, reply.error["type"]) == (status, kind)
    assert reply.error["code"] == "guardrail_blocked"


@pytest.mark.parametrize(
    "denial",
    [DENIAL, {"error": {"message": "x", "code": "guardrail_blocked"}}],
    ids=["446", "ours"],
)
async def test_denial_in_a_stream_ends_it(
    denial: Any, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.by_model = {"strict": closes(STREAM, http_chunk(event(denial)), b"0\r\n\r\n")}
    reply = await proxy.complete(model="denying", stream=True)
    upstream.by_model = {
        "strict": closes(STREAM, FIRST_EVENT, http_chunk(event(denial)), b"0\r\n\r\n")
    }
    delayed = await proxy.complete(model="denying", stream=True)
    records = await proxy.sink.wait(2)

    assert (reply.status, reply.error["code"]) == (400, "guardrail_blocked")
    assert b"guardrail_blocked" in delayed.raw
    assert [record.outcome for record in records] == ["blocked", "blocked"]
    assert len(upstream.requests) == 2


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("name", "status"), [("openai", 200), ("portkey", 246), ("scale-5", 200)])
async def test_upstream_flag_is_forwarded(
    name: str, status: int, streamed: bool, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    pieces = [http_chunk(event(item)) for item in (*legacy_events(" Par", "is."), b"[DONE]")]
    begin = head(246, "text/event-stream", "transfer-encoding: chunked")
    flagged = sends(begin, *pieces, b"0\r\n\r\n") if streamed else respond(legacy_completion(), 246)
    upstream.answer_with(flagged)
    route = ROUTES[name]
    headers = {**route.credential, "x-headrace-deployment": "denying"}
    headers.pop("x-portkey-virtual-key", None)
    for number in range(1, 7):
        reply = await proxy.send(route.path, route.body(streamed=streamed), headers)
        assert (reply.status, reply_text(route, reply.raw, streamed=streamed)) == (
            status,
            " Paris.",
        )
        assert "flagged by a guard of the upstream" in reply.headers["x-headrace-warning"]
        await proxy.sink.wait(number)
    records = proxy.records

    assert len(upstream.requests) == 6
    assert {record.outcome for record in records} == {"success"}
    assert {record.attempts[0].status for record in records} == {246}


async def test_flagged_response_is_not_cached(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(legacy_completion(), 246))
    replies = [await proxy.complete(model="kept") for _ in range(2)]

    assert [reply.headers["x-headrace-cache"] for reply in replies] == ["miss", "miss"]


HTML_PAGE = b"<html><body>default backend</body></html>"
CONVERSATION: Json = {"id": "conv_1", "object": "conversation"}


def respond_error(status: int, message: str, code: str | None = None) -> Script:
    return respond({"error": {"message": message, "type": "bad_request", "code": code}}, status)


OUTAGES: dict[str, tuple[Script, str]] = {
    "a balancer's page": (respond(HTML_PAGE, 404, media_type="text/html"), "upstream_not_found"),
    "nothing at all": (respond(b"", 404), "upstream_not_found"),
    "no such method": (respond(b"", 405), "upstream_not_found"),
    "an old model": (respond_error(400, "No.", "model_decommissioned"), "upstream_not_found"),
    "no credit": (respond_error(400, "Your credit balance is too low to access the API."),
        "upstream_forbids"),
    "a bill": (respond_error(400, "No.", "billing_hard_limit_reached"), "upstream_forbids"),
    "no key": (
        respond([{"error": {"code": 400, "message": "API key not valid. Please pass one."}}], 400),
        "upstream_forbids",
    ),
}  # fmt: skip


@pytest.fixture
async def gateway(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[StatefulProxy]:
    async with stateful_proxy(tmp_path / "policies", upstream) as running:
        yield running


@pytest.mark.parametrize(("outage", "code"), [*OUTAGES.values()], ids=[*OUTAGES])
async def test_outage_blames_no_client(outage: Script, code: str, gateway: StatefulProxy) -> None:
    async def send(method: str, path: str, body: Json | None = None) -> Json:
        deployment = "chatting" if "chat/" in path else "guarded"
        headers = {"x-headrace-deployment": deployment}
        return (await gateway.send(path, method, body, **headers))[1]

    gateway.upstream.then(respond(response()), respond(CONVERSATION))
    request: Json = {"model": "watched", "input": "Hi"}
    stored_id = (await send("POST", "/v1/responses", request))["id"]
    conversation = (await send("POST", "/v1/conversations", {}))["id"]
    gateway.upstream.answer_with(outage)
    chat = {"model": "chatter", **MESSAGES, "metadata": {"session_id": "s"}}
    requests: list[tuple[str, str, Json | None]] = [
        ("POST", "/v1/responses", request),
        ("POST", "/v1/responses", {**request, "previous_response_id": stored_id}),
        ("POST", "/v1/responses", {**request, "conversation": conversation}),
        ("GET", f"/v1/responses/{stored_id}", None),
        ("GET", f"/v1/conversations/{conversation}", None),
        ("POST", "/v1/chat/completions", chat),
    ]

    for item in requests:
        await send(*item)

    records = (await gateway.proxy.sink.wait(2 + len(requests)))[2:]
    assert [record.outcome for record in records] == ["upstream_error"] * len(requests)
    assert {record.attempts[-1].error for record in records} == {code}
