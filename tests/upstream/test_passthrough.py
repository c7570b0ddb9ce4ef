"""Passthrough calls with JSON bodies, from socket to socket, and the usage that they report."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.money.usage import Tokens
from proxy.upstream.passthrough import find_tokens
from tests.conftest import KEY, Proxy
from tests.doubles import ScriptedUpstream, respond
from tests.for_each import for_each
from tests.passthrough.listed_policies import BEARER, RANKED, RERANK, SEARCH_KEY, running


@pytest.fixture
async def proxy(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    async with running(tmp_path, upstream.url) as proxy:
        yield proxy


async def test_upstream_gets_our_key_and_model(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(RANKED))

    response = await proxy.send("/v1/rerank", {**RERANK, "model": "search-answers"}, BEARER)
    assert response.status == 200
    assert response.json == RANKED
    assert response.headers["x-headrace-deployment"] == "search-answers"
    assert response.headers["x-headrace-cost-usd"] == "0.000021"
    assert response.headers["x-content-type-options"] == "nosniff"

    [request] = upstream.requests
    assert (request.method, request.path) == ("POST", "/v1/rerank")
    assert request.json == RERANK
    assert request.headers["authorization"] == "Bearer sk-upstream-secret"
    [record] = await proxy.sink.wait()
    assert record.outcome == "success"
    assert record.head.route == "/v1/rerank"
    assert record.head.endpoint == "passthrough"
    assert record.billing.tokens.input == 7
    assert record.billing.cost == 21_000


GEMINI = "/v1/models/gemini-2.5-flash:generateContent"


async def test_gemini_key_header_works(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond({"candidates": [], "usageMetadata": {"promptTokenCount": 7}}))
    body = {"contents": [{"parts": [{"text": "capital of France"}]}]}

    response = await proxy.send(GEMINI, body, {"x-goog-api-key": KEY})
    assert response.status == 200
    response = await proxy.send(GEMINI, headers=BEARER, method="GET")
    assert response.status == 404  # read as a model name by the proxy's own route

    [events] = upstream.requests
    assert (events.path, events.json) == (GEMINI, body)
    assert events.headers["authorization"] == "Bearer sk-upstream-secret"
    assert "x-goog-api-key" not in events.headers
    record, _ = await proxy.sink.wait(2)
    assert (record.key, record.billing.tokens.input) == ("support-widget", 7)


async def test_gemini_key_works_on_listed_paths_only(proxy: Proxy) -> None:
    response = await proxy.send("/v1/models", headers={"x-goog-api-key": KEY}, method="GET")
    assert response.status == 401


@for_each(
    ("path", "method", "status"),
    [
        ("/v1/assistants", "POST", 404),
        ("//v1/rerank", "POST", 404),
        ("/v1/x/../rerank", "POST", 404),
        ("/v1/%72erank", "POST", 404),
        ("/v1/files/..", "GET", 404),
        ("/v1/rerank", "GET", 405),
        ("/v1/files/a", "POST", 405),
    ],
)
async def test_unlisted_paths_are_refused(
    path: str, method: str, status: int, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    reader, writer = await proxy.connect()
    body = b"{}" if method == "POST" else b""
    writer.write(
        f"{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: {BEARER['authorization']}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "connection: close\r\n\r\n".encode()
        + body
    )
    raw = await reader.read()
    writer.close()

    assert int(raw.split(b" ")[1]) == status
    assert upstream.requests == []


async def test_key_without_access_is_refused(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    search = {"authorization": f"Bearer {SEARCH_KEY}"}

    assert (await proxy.send("/v1/rerank", RERANK, search)).status == 404
    async with proxy.client.post("/v1/rerank", json=RERANK) as response:
        assert response.status == 401
    assert upstream.requests == []


async def test_call_selects_its_deployment(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond({}))
    by_name = {**BEARER, "x-headrace-deployment": "search-answers"}

    for headers, body in (
        (by_name, {**RERANK, "model": "anything"}),
        (BEARER, RERANK),
        (BEARER, {"query": "q", "documents": []}),
    ):
        response = await proxy.send("/v1/rerank", body, headers)
        assert response.status == 200
        assert response.headers["x-headrace-deployment"] == "search-answers"
    for headers, body, status in (
        ({**BEARER, "x-headrace-deployment": "support-chat"}, RERANK, 404),
        ({**BEARER, "x-headrace-deployment": "nobody"}, RERANK, 404),
        (BEARER, {**RERANK, "model": "gpt-4o-mini"}, 404),
        (BEARER, {**RERANK, "model": ["rerank-1"]}, 400),
    ):
        response = await proxy.send("/v1/rerank", body, headers)
        assert response.status == status, response.raw.decode()
    assert [request.json.get("model") for request in upstream.requests] == ["rerank-1"] * 3


async def test_other_base_path_of_host_is_used(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond([{"index": 0, "score": 0.5}]))

    assert (await proxy.send("/rank", {"query": "q"}, BEARER)).json == [{"index": 0, "score": 0.5}]

    assert [request.path for request in upstream.requests] == ["/v2/rank"]


async def test_listed_query_parameters_pass(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond({"object": "list", "data": []}))

    path = "/v1/files?limit=2&api_key=sk-x&purpose=batch%20%26&after=a"
    response = await proxy.send(path, headers=BEARER, method="GET")
    assert response.status == 200
    assert response.headers["x-headrace-warning"] == "query parameters dropped"
    assert response.headers["x-headrace-cost-usd"] == "0"
    response = await proxy.send(f"/v1/files?after={'a' * 300}", headers=BEARER, method="GET")
    assert response.status == 400

    [request] = upstream.requests
    assert (request.method, request.body) == ("GET", b"")
    assert request.path == "/v1/files?limit=2&purpose=batch+%26&after=a"
    assert "content-type" not in request.headers
    assert "content-length" not in request.headers


@for_each("status", [200, 201, 204])
async def test_response_passes_unchanged(
    status: int, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(b"" if status == 204 else {"deleted": True}, status))

    response = await proxy.send("/v1/files/file-1", headers=BEARER, method="DELETE")

    assert response.status == status
    assert response.raw == (b"" if status == 204 else b'{"deleted": true}')
    assert upstream.requests[-1].method == "DELETE"


@pytest.mark.parametrize(
    ("upstream_status", "status", "code"),
    [
        (302, 502, "upstream_invalid_response"),
        (401, 403, "upstream_rejected_key"),
        (404, 404, "upstream_refused"),
        (503, 503, "upstream_unavailable"),
    ],
)
async def test_upstream_error_has_our_form(
    upstream_status: int, status: int, code: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    fields = {"error": {"message": "No such file sk-upstream-secret", "type": "oops"}}
    upstream.answer_with(respond(fields, upstream_status, "location: http://127.0.0.1:1/"))

    response = await proxy.send("/v1/files/file-1", headers=BEARER, method="GET")

    assert response.status == status
    assert response.headers["x-headrace-error"] == code
    assert "sk-upstream" not in json.dumps(response.json)
    [record] = await proxy.sink.wait()
    assert record.billing.cost == 0


PICTURE = {
    "input_tokens": 50,
    "input_tokens_details": {"image_tokens": 40, "text_tokens": 10, "cached_tokens": 8},
    "output_tokens": 4160,
    "total_tokens": 4210,
}
SPEECH = {
    "type": "tokens",
    "input_tokens": 14,
    "input_token_details": {"text_tokens": 4, "audio_tokens": 10},
    "output_tokens": 45,
    "total_tokens": 59,
}
CLAUDE = {
    "input_tokens": 10,
    "cache_read_input_tokens": 1000,
    "cache_creation_input_tokens": 500,
    "cache_creation": {"ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 100},
    "server_tool_use": {"web_search_requests": 2},
    "output_tokens": 5,
}
GEMINI_USAGE = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 60,
    "toolUsePromptTokenCount": 7,
    "candidatesTokenCount": 20,
    "thoughtsTokenCount": 30,
    "totalTokenCount": 157,
    "promptTokensDetails": [
        {"modality": "TEXT", "tokenCount": 90},
        {"modality": "AUDIO", "tokenCount": 10},
    ],
}
SPEECH_TOKENS = Tokens(input=4, audio_input=10, output=45)
COHERE = {
    "billed_units": {"input_tokens": 5, "output_tokens": 418},
    "tokens": {"input_tokens": 71, "output_tokens": 418},
}


@for_each(
    ("data", "tokens"),
    [
        ({"usage": {"total_tokens": 7}}, Tokens(input=7)),
        ({"usage": PICTURE}, Tokens(input=42, cached_input=8, output=4160, image_input=40)),
        ({"usageMetadata": {"promptTokenCount": 9,
            "promptTokensDetails": [{"modality": "IMAGE", "tokenCount": 5},
            {"modality": ["AUDIO"]}], "candidatesTokenCount": 2,
            "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 3}]}},
            Tokens(input=9, output=2, image_input=5, image_output=2)),
        ({"usage": SPEECH}, SPEECH_TOKENS),
        ({"usage": SPEECH | {"input_tokens_details": None}}, SPEECH_TOKENS),
        ({"usage": SPEECH | {"input_tokens_details": {}}}, SPEECH_TOKENS),
        ({"usage": SPEECH | {"server_tool_use": {"web_search_requests": 2}}},
            Tokens(input=4, audio_input=10, output=45, web_searches=2)),
        ({"meta": {"billed_units": {"input_tokens": 9, "output_tokens": 2}}}, Tokens(9, output=2)),
        ({"meta": {"billed_units": {"search_units": 1}}}, None),
        ({"usage": COHERE}, Tokens(input=5, output=418)),
        ({"usage": CLAUDE}, Tokens(10, 1000, 500, output=5, cache_write_1h=100, web_searches=2)),
        ({"usage": CLAUDE | {"cache_read_input_tokens": "7"}}, None),
        ({"usage": CLAUDE | {"cache_read_input_tokens": -3}}, None),
        ({"usage": CLAUDE | {"input_tokens": {}}}, None),
        ({"usage": {"input_tokens": 5, "cache_read_input_tokens": 5, "total_tokens": 100}},
            Tokens(input=5, cached_input=5, output=90)),
        ({"usage": {"total_tokens": 7, "server_tool_use": {"web_search_requests": 2}}},
            Tokens(input=7)),
        ({"usageMetadata": GEMINI_USAGE},
            Tokens(input=37, cached_input=60, audio_input=10, output=20, reasoning=30)),
        ({"usageMetadata": {"promptTokenCount": -4}}, None),
        ({"usageMetadata": {"totalTokenCount": 4}}, None),
        ({"usage": {"type": "duration", "seconds": 3}}, None),
        ({"usage": {"total_tokens": -1}}, None),
        ({"usage": [7]}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_usage_is_read_in_any_form(data: dict[str, Any], tokens: Tokens | None) -> None:
    assert find_tokens(data) == tokens
