"""The status of an upstream means the same to fallback, hedge, breaker, cache and client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession

from tests.conftest import KEY, Proxy, running_proxy, world
from tests.dialects.test_leaning import House, house
from tests.doubles import (
    Asked,
    Json,
    Script,
    ScriptedUpstream,
    Wire,
    answer,
    event,
    hang,
    head,
    legacy,
    legacy_events,
    piece,
    response,
)
from tests.test_pipeline import BEARER, ROUTES, texts

REACH = "deployments: [support-chat, "
TARGETS = (
    "targets: [{upstream: portkey, model: strict}], fallback: [{upstream: openai, model: lax}]"
)
DEPLOYMENTS = f"""
  denying: {{{TARGETS}}}
  hedged: {{{TARGETS}, hedge: {{after: 5s}}}}
  raced: {{{TARGETS}, hedge: {{after: 20ms}}}}
  kept: {{targets: [{{upstream: portkey, model: strict}}], cache: {{ttl: 1h}}}}

"""
REQUESTS_OWN = [406, 409, 412, 413, 414, 422, 424, 431, 446, 451, 501, 505, 508]
DENIAL = {
    "error": {"message": "The checks failed.", "type": "hooks_failed", "param": None, "code": None},
    "hook_results": {"before_request_hooks": [], "after_request_hooks": []},
}
STREAM = head(200, "text/event-stream", "transfer-encoding: chunked")
FIRST_VALUE = piece(event(legacy_events(" Par")[0]))


@pytest.fixture
async def proxy(tmp_path: Path, upstream: ScriptedUpstream) -> AsyncIterator[Proxy]:
    policies = world(upstream.url).replace(REACH, f"{REACH}denying, hedged, raced, kept, ")
    async with running_proxy(tmp_path / "policies", policies + DEPLOYMENTS) as running:
        yield running


async def ask(
    client: ClientSession, model: str = "gpt-4o-mini", **options: Any
) -> tuple[int, dict[str, str], Any]:
    body = {"model": model, "prompt": "Hi", **options}
    async with client.post("/v1/completions", headers=BEARER, json=body) as response:
        return (
            response.status,
            {k.lower(): v for k, v in response.headers.items()},
            (await response.json() if "json" in response.content_type else await response.read()),
        )


async def embed(client: ClientSession) -> int:
    body = {"model": "gpt-4o-mini", "input": "Hi"}
    async with client.post("/v1/embeddings", headers=BEARER, json=body) as response:
        return response.status


def coming(*pieces: bytes, status: bytes = b"200") -> Script:
    async def script(request: Asked, wire: Wire) -> None:
        await wire.send(*(piece.replace(b" 200 ", b" " + status + b" ", 1) for piece in pieces))
        wire.keep = False

    return script


@pytest.mark.parametrize("status", REQUESTS_OWN)
async def test_client_fault(status: int, proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.then(*[answer({"error": {"message": "Not here."}}, status)] * 6)
    for _ in range(6):
        response, headers, fields = await ask(proxy.client)
        assert (response, fields["error"]["message"]) == (status, "Not here.")
        assert headers["x-headrace-error"] == "upstream_refused"
        assert headers.get("x-should-retry") == ("false" if status >= 500 else None)
    response, _, _ = await ask(proxy.client)
    records = await proxy.sink.wait(7)

    assert (response, len(upstream.requests)) == (200, 7)
    assert {record.attempts[0].error for record in records[:6]} == {"upstream_refused"}


async def test_missing_endpoint_opens_nothing(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.then(*[answer({}, 500)] * 5)
    refused = [await embed(proxy.client) for _ in range(6)]
    status, _, _ = await ask(proxy.client)

    assert (refused, status) == ([502] * 5 + [503], 200)


async def test_forbidden_request_opens_nothing(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.then(*[answer({"error": {"message": "key sk-x", "code": "no_access"}}, 403)] * 6)
    for _ in range(6):
        status, headers, fields = await ask(proxy.client)
        assert (status, fields["error"]["code"]) == (403, "no_access")
        assert headers["x-headrace-error"] == "upstream_forbids"
        assert headers["x-should-retry"] == "false"
        assert "sk-x" not in str(fields)
    status, _, _ = await ask(proxy.client)

    assert status == 200


async def test_client_deadline_opens_nothing(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(hang())
    mine = {"x-portkey-api-key": KEY, "x-portkey-virtual-key": "support-chat"}
    hasty = {**mine, "x-portkey-request-timeout": "20"}
    for headers, status in ((hasty, 408),) * 6 + ((mine, 200),):
        body = {"model": "gpt-4o-mini", "prompt": "Hi"}
        if headers is mine:
            upstream.answer_with(answer(legacy()))
        async with proxy.client.post("/v1/completions", headers=headers, json=body) as response:
            assert response.status == status


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
async def test_short_words_of_upstream_errors_are_forwarded(
    status: int, error: Any, kind: str, code: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.then(answer({"error": {"message": "No.", **error}}, status))
    _, headers, fields = await ask(proxy.client)
    [record] = await proxy.sink.wait()

    assert (fields["error"]["type"], fields["error"]["code"]) == (kind, code)
    assert headers["x-headrace-error"] == record.error.code
    assert record.error.code in ("upstream_refused", "upstream_unavailable")


async def test_rejected_key_is_not_clients(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.then(answer({"error": {"message": "sk-x", "code": "invalid_api_key"}}, 401))
    status, headers, fields = await ask(proxy.client)

    assert (status, fields["error"]["code"]) == (403, "upstream_rejected_key")
    assert headers["x-should-retry"] == "false"


@pytest.mark.parametrize("model", ["denying", "hedged", "raced"])
async def test_denial_is_final(model: str, proxy: Proxy, upstream: ScriptedUpstream) -> None:
    async def once_raced(requests: Asked, wire: Wire) -> None:
        while model == "raced" and len(upstream.requests) < 2:
            upstream.came.clear()
            await upstream.came.wait()
        await answer(DENIAL, 446)(requests, wire)

    upstream.by_model = {"strict": once_raced}
    if model == "raced":
        upstream.by_model["lax"] = hang()
    for number in range(1, 7):
        upstream.requests.clear()
        status, headers, fields = await ask(proxy.client, model)
        assert (status, fields["error"]["code"]) == (400, "guardrail_blocked")
        assert fields["error"]["message"] == "The checks failed."
        assert headers["x-headrace-error"] == "guardrail_blocked"
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
    upstream.answer_with(answer(DENIAL, 446))
    route = ROUTES[name]
    headers = {**route.credential, "x-headrace-deployment": "denying"}
    body = route.body(streamed=False)
    async with proxy.client.post(route.path, headers=headers, json=body) as response:
        fields = await response.json()

    assert (response.status, fields["error"]["type"]) == (status, kind)
    assert fields["error"]["code"] == "guardrail_blocked"


@pytest.mark.parametrize(
    "denial",
    [DENIAL, {"error": {"message": "x", "code": "guardrail_blocked"}}],
    ids=["446", "ours"],
)
async def test_streamed_denial(denial: Any, proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.by_model = {"strict": coming(STREAM, piece(event(denial)), b"0\r\n\r\n")}
    status, _, fields = await ask(proxy.client, "denying", stream=True)
    upstream.by_model = {"strict": coming(STREAM, FIRST_VALUE, piece(event(denial)), b"0\r\n\r\n")}
    body = {"model": "denying", "prompt": "Hi", "stream": True}
    async with proxy.client.post("/v1/completions", headers=BEARER, json=body) as response:
        delayed = b""
        try:
            async for part in response.content.iter_any():
                delayed += part
        except aiohttp.ClientPayloadError:
            pass
    records = await proxy.sink.wait(2)

    assert (status, fields["error"]["code"]) == (400, "guardrail_blocked")
    assert b"guardrail_blocked" in delayed
    assert [record.outcome for record in records] == ["blocked", "blocked"]
    assert len(upstream.requests) == 2


async def test_error_event_may_blame_request(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    error = {"error": {"message": "Hi there", "type": "BadRequestError", "code": 400}}
    upstream.then(*[coming(STREAM, piece(event(error)), b"0\r\n\r\n")] * 6)
    for _ in range(6):
        status, _, fields = await ask(proxy.client, stream=True)
        assert (status, fields["error"]["type"]) == (400, "BadRequestError")
        assert fields["error"]["message"] == "Hi there"
    status, _, _ = await ask(proxy.client)

    assert status == 200


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("name", "status"), [("openai", 200), ("portkey", 246), ("scale-5", 200)])
async def test_flag_of_the_upstream_passes_on(
    name: str, status: int, streamed: bool, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    full_value = answer(legacy(), 246)

    async def flagged(request: Asked, wire: Wire) -> None:
        if not streamed:
            return await full_value(request, wire)
        sent_items = [piece(event(legacy_event)) for legacy_event in legacy_events(" Par", "is.")]
        begin = head(246, "text/event-stream", "transfer-encoding: chunked")
        await wire.send(begin, *sent_items, piece(event(b"[DONE]")), b"0\r\n\r\n")

    upstream.answer_with(flagged)
    route = ROUTES[name]
    headers = {**route.credential, "x-headrace-deployment": "denying"}
    headers.pop("x-portkey-virtual-key", None)
    for number in range(1, 7):
        body = route.body(streamed=streamed)
        async with proxy.client.post(route.path, headers=headers, json=body) as response:
            raw = await response.read()
        assert (response.status, texts(route, raw, streamed=streamed)) == (status, " Paris.")
        assert "flagged by a guard of the upstream" in response.headers["x-headrace-warning"]
        await proxy.sink.wait(number)
    records = proxy.records

    assert len(upstream.requests) == 6
    assert {record.outcome for record in records} == {"success"}
    assert {record.attempts[0].status for record in records} == {246}


async def test_flagged_response_is_not_cached(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer(legacy(), 246))
    results = [(await ask(proxy.client, "kept"))[1]["x-headrace-cache"] for _ in range(2)]

    assert results == ["miss", "miss"]


HTML = b"<html><body>default backend</body></html>"
TALK: Json = {"id": "conv_1", "object": "conversation"}


def saying(status: int, message: str, code: str | None = None) -> Script:
    return answer({"error": {"message": message, "type": "bad_request", "code": code}}, status)


OUTAGES: dict[str, tuple[Script, str]] = {
    "a balancer's page": (answer(HTML, 404, media_type="text/html"), "upstream_not_found"),
    "nothing at all": (answer(b"", 404), "upstream_not_found"),
    "no such method": (answer(b"", 405), "upstream_not_found"),
    "a model of the past": (saying(400, "No.", "model_decommissioned"), "upstream_not_found"),
    "no credit": (saying(400, "Your credit balance is too low to access the API."),
        "upstream_forbids"),
    "a bill": (saying(400, "No.", "billing_hard_limit_reached"), "upstream_forbids"),
    "no key": (
        answer([{"error": {"code": 400, "message": "API key not valid. Please pass one."}}], 400),
        "upstream_forbids",
    ),
}  # fmt: skip


@pytest.fixture
async def gateway(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path / "policies", upstream) as running:
        yield running


async def send(house: House, method: str, path: str, body: Json | None = None) -> Json:
    headers = {"authorization": f"Bearer {KEY}", "x-headrace-deployment": "chatting"}
    if "chat/" not in path:
        headers["x-headrace-deployment"] = "guarded"
    async with house.session.request(method, path, headers=headers, json=body) as response:
        document: Json = await response.json()
        return document


@pytest.mark.parametrize(("outage", "code"), [*OUTAGES.values()], ids=[*OUTAGES])
async def test_outage_never_blames_client(outage: Script, code: str, gateway: House) -> None:
    gateway.upstream.then(answer(response()), answer(TALK))
    talk_of: Any = {"model": "watched", "input": "Hi"}
    value = (await send(gateway, "POST", "/v1/responses", talk_of))["id"]
    talk = (await send(gateway, "POST", "/v1/conversations", {}))["id"]
    gateway.upstream.answer_with(outage)
    chat = {"model": "chatter", "messages": [{"role": "user", "content": "Hi"}]}
    requests: list[tuple[str, str, Json | None]] = [
        ("POST", "/v1/responses", talk_of),
        ("POST", "/v1/responses", {**talk_of, "previous_response_id": value}),
        ("POST", "/v1/responses", {**talk_of, "conversation": talk}),
        ("GET", f"/v1/responses/{value}", None),
        ("GET", f"/v1/conversations/{talk}", None),
        ("POST", "/v1/chat/completions", {**chat, "metadata": {"session_id": "s"}}),
    ]

    for item in requests:
        await send(gateway, *item)

    records = (await gateway.proxy.sink.wait(2 + len(requests)))[2:]
    assert [record.outcome for record in records] == ["upstream_error"] * len(requests)
    assert {record.attempts[-1].error for record in records} == {code}
