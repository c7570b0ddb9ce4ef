"""Messages over sockets: both sides of the API, errors, token counts and headers."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.conftest import KEY, Proxy
from tests.doubles import (
    Json,
    ScriptedUpstream,
    block_events,
    chat,
    message,
    message_events,
    respond,
    stream,
    text_events,
)
from tests.for_each import for_each

HEADERS = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
REQUEST: Json = {
    "model": "gpt-4o-mini",
    "max_tokens": 64,
    "messages": [{"role": "user", "content": "Name the capital of France."}],
}
THOUGHT = {"type": "thinking", "thinking": "France, hm.", "signature": "c2lnbmVk"}
TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {"place": "Paris"}}


Answer = tuple[int, bytes, dict[str, str]]


async def ask(client: ClientSession, to: str = "", **fields: Any) -> Answer:
    return await post(client, "/v1/messages", to, {**REQUEST, **fields})


async def post(client: ClientSession, path: str, to: str, body: Json) -> Answer:
    headers = HEADERS | ({"x-headrace-deployment": to} if to else {})
    async with client.post(path, headers=headers, json=body) as response:
        lower = {name.lower(): value for name, value in response.headers.items()}
        return response.status, await response.read(), lower


def events_of(raw: bytes) -> list[tuple[str, Json]]:
    event_texts = re.findall(r"^event: (.*)\ndata: (.*)$", raw.decode(), re.MULTILINE)
    return [(name, json.loads(data)) for name, data in event_texts]


def accumulated(events: list[tuple[str, Json]]) -> Json:
    document: Json = {}
    for name, data in events:
        assert data["type"] == name
        if name == "message_start":
            document = data["message"]
        elif name == "content_block_start":
            assert data["index"] == len(document["content"])
            document["content"].append(data["content_block"])
        elif name == "content_block_delta":
            assert data["index"] == len(document["content"]) - 1
            _grow(document["content"][-1], data["delta"])
        elif name == "content_block_stop" and "json" in (block := document["content"][-1]):
            block["input"] = json.loads(block.pop("json") or "{}")
        elif name == "message_delta":
            document |= data["delta"]
            document["usage"] |= data["usage"]
    assert events[-1][0] == "message_stop"
    return document


def _grow(block: Json, delta: Json) -> None:
    for field in ("text", "thinking", "signature"):
        if field in delta:
            block[field] = block.get(field, "") + delta[field]
    if "partial_json" in delta:
        block["json"] = block.get("json", "") + delta["partial_json"]
    if "citation" in delta:
        block["citations"] = [*block.get("citations", ()), delta["citation"]]


SERVER: Json = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
SEARCH_RESULT: Json = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1"}
SEARCH_RESULT |= {"content": [{"type": "web_search_result", "url": "https://a.test", "title": "A"}]}
CITED = {"type": "char_location", "cited_text": "Paris", "document_index": 0}
STREAM = message_events(
    block_events(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "France, "},
        {"type": "thinking_delta", "thinking": "hm."},
        {"type": "signature_delta", "signature": "c2lnbmVk"},
    ),
    block_events(1, SERVER, {"type": "input_json_delta", "partial_json": '{"query": "x"}'}),
    block_events(2, SEARCH_RESULT),
    block_events(
        3,
        {"type": "text", "text": "", "citations": []},
        {"type": "text_delta", "text": "It is "},
        {"type": "text_delta", "text": "Paris."},
        {"type": "citations_delta", "citation": CITED},
    ),
    block_events(
        4,
        {**TOOL_USE, "input": {}},
        {"type": "input_json_delta", "partial_json": ""},
        {"type": "input_json_delta", "partial_json": '{"place": "Paris"}'},
    ),
    usage={"output_tokens": 30, "server_tool_use": {"web_search_requests": 1}},
    reason="tool_use",
)


async def test_same_dialect_is_exact(client: ClientSession, upstream: ScriptedUpstream) -> None:
    blocks = (THOUGHT, SERVER, SEARCH_RESULT, TOOL_USE)
    text = json.dumps(message(*blocks, container={"id": "c"}, new=[1]))
    upstream.answer_with(respond(text.encode(), 200, "request-id: req_theirs"))
    request: Json = {
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "thinking": {"type": "enabled", "budget_tokens": 32},
        "metadata": {"user_id": "u1", "other": 1},
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
        "unheard_of": {"a": [1]},
        "messages": [
            *REQUEST["messages"],
            {"role": "assistant", "content": [THOUGHT, TOOL_USE]},
            {"role": "user", "content": [RESULT]},
        ],
    }

    status, raw, headers = await ask(client, "via-anthropic", **request)

    assert (status, raw) == (200, text.encode())
    assert headers["request-id"] == headers["x-request-id"] != "req_theirs"
    assert "x-headrace-warning" not in headers
    [sent_value] = upstream.requests
    assert sent_value.json == {**REQUEST, **request, "model": "anthropic-model"}


async def test_errors_have_the_form_of_anthropic(
    client: ClientSession, upstream: ScriptedUpstream
) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    upstream.answer_with(respond(error, 529, "retry-after: 7"))

    status, raw, headers = await ask(client, "via-anthropic")

    fields = json.loads(raw)
    assert status == 529
    assert fields.keys() == {"type", "error", "request_id"}
    assert fields["error"].keys() == {"type", "message"}
    assert (fields["type"], fields["error"]["type"]) == ("error", "overloaded_error")
    assert fields["request_id"] == headers["x-request-id"] == headers["request-id"]
    assert headers["retry-after"] == "7"


@pytest.mark.parametrize("to", ["via-anthropic", "support-chat"])
@pytest.mark.parametrize("thread", [{"type": "create"}, {"previous_message_id": "msg_1"}])
async def test_provider_thread_is_refused(
    thread: Json, to: str, client: ClientSession, upstream: ScriptedUpstream
) -> None:
    turn = {"role": "user", "content": [RESULT]}

    status, raw, _ = await ask(client, to, thread=thread, messages=[turn])

    assert (status, upstream.requests) == (400, [])
    error = json.loads(raw)["error"]
    assert error["message"].startswith("thread: must not refer to content stored at the provider")
    assert error["details"] == {"error_code": "thread_unsupported_request"}


async def test_existing_container_is_refused_and_new_one_passes(
    client: ClientSession, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(message()))
    skills = {"skills": [{"type": "anthropic", "skill_id": "pdf", "version": "latest"}]}

    for container in ("container_1", {"id": "container_1", "skills": []}):
        status, raw, _ = await ask(client, "via-anthropic", container=container)
        error = json.loads(raw)["error"]
        assert (status, error["type"]) == (400, "invalid_request_error")
        assert error["message"].startswith("container.id: clients may not set this field")
    assert (await ask(client, "via-anthropic", container=skills))[0] == 200
    [sent_value] = upstream.requests
    assert sent_value.json["container"] == skills


LOOK_UP = {"role": "assistant", "content": [TOOL_USE]}
RESULT: Json = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
UNREADABLE: Json = {"type": "document", "source": {"type": "file"}}


@for_each(
    ("options", "text"),
    [
        ({"max_tokens": -1}, "max_tokens: must be an integer between 0 and 2^53"),
        ({"thinking": {"budget_tokens": -1}}, "thinking.budget_tokens: must be an integer"),
        ({"messages": [*REQUEST["messages"], LOOK_UP, {"role": "user", "content": [UNREADABLE]}]},
            "messages.2.content.0: this value is not supported"),
    ],
)  # fmt: skip
async def test_error_names_the_invalid_part(
    options: Json, text: str, client: ClientSession, upstream: ScriptedUpstream
) -> None:
    status, raw, _ = await ask(client, **options)

    assert (status, upstream.requests) == (400, [])
    assert json.loads(raw)["error"]["message"].startswith(text)


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/v1/messages/batches", {}), ("/v1/files", {"anthropic-version": "2023-06-01"})],
)
async def test_unknown_path_is_not_found(path: str, headers: dict[str, str], proxy: Proxy) -> None:
    response = await proxy.send(path, {}, headers)

    assert response.status == 404
    assert (response.json["type"], response.json["error"]["type"]) == ("error", "not_found_error")
    assert response.headers["request-id"] == response.json["request_id"]


COUNTED: Json = {"model": "gpt-4o-mini", "messages": REQUEST["messages"], "system": "Be brief."}


async def count(client: ClientSession, to: str, **fields: Any) -> Answer:
    return await post(client, "/v1/messages/count_tokens", to, {**COUNTED, **fields})


async def test_token_count_of_a_messages_upstream_is_free(
    client: ClientSession, upstream: ScriptedUpstream, proxy: Proxy
) -> None:
    text = b'{"input_tokens": 14, "context_management": {"original_input_tokens": 20}}'
    upstream.answer_with(respond(text))

    status, raw, headers = await count(client, "via-anthropic", unheard_of=1)

    assert (status, raw) == (200, text)
    assert "x-headrace-warning" not in headers
    assert headers["x-headrace-cost-usd"] == "0"
    [sent_value] = upstream.requests
    assert sent_value.path == "/v1/messages/count_tokens"
    assert sent_value.json == {**COUNTED, "model": "anthropic-model", "unheard_of": 1}
    [record] = await proxy.sink.wait()
    assert (record.outcome, record.billing.tokens.total, record.billing.cost) == ("success", 0, 0)


async def test_token_count_for_a_chat_upstream_is_an_estimate(
    client: ClientSession, upstream: ScriptedUpstream, proxy: Proxy
) -> None:
    status, raw, headers = await count(client, "support-chat")

    assert status == 200, raw
    fields = json.loads(raw)
    assert fields.keys() == {"input_tokens"}
    assert 5 < fields["input_tokens"] < 60
    assert headers["x-headrace-warning"] == "input_tokens estimated"
    assert upstream.requests == []
    [record] = await proxy.sink.wait()
    assert (record.outcome, record.head.endpoint) == ("success", "count_tokens")


async def test_picture_is_not_text(client: ClientSession, upstream: ScriptedUpstream) -> None:
    data = {"type": "base64", "media_type": "image/png", "data": "A" * 200_000}
    blocks = [{"type": "text", "text": "Look."}, {"type": "image", "source": data}]

    _, raw, _ = await count(client, "support-chat", messages=[{"role": "user", "content": blocks}])

    assert 1600 < json.loads(raw)["input_tokens"] < 1700


@pytest.mark.parametrize(
    ("script", "status"),
    [
        (respond({"input_tokens": "14"}), 502),
        (respond({"type": "message"}), 502),
        (respond({"type": "error", "error": {"type": "overloaded_error"}}, 529), 529),
    ],
)
async def test_invalid_token_count_is_an_upstream_error(
    script: Any, status: int, client: ClientSession, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(script)

    answered, raw, _ = await count(client, "via-anthropic")

    assert answered == status, raw
    assert json.loads(raw)["type"] == "error"


@pytest.mark.parametrize(
    ("text", "sent_text"),
    [("2024-01-01", "2024-01-01"), ("not; one", "2023-06-01"), (None, "2023-06-01")],
)
async def test_upstream_gets_a_version_header(
    text: str | None, sent_text: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(message({"type": "text", "text": "Paris."})))
    headers = {"x-api-key": KEY, "x-headrace-deployment": "via-anthropic"}
    headers |= {} if text is None else {"anthropic-version": text}

    assert (await proxy.send("/v1/messages", REQUEST, headers)).status == 200

    [request] = upstream.requests
    assert request.headers["anthropic-version"] == sent_text
    assert "anthropic-beta" not in request.headers


FORWARDED_HEADERS = {
    "anthropic-beta": "context-1m-2025-08-07, effort-2025-11-24",
    "anthropic-dangerous-direct-browser-access": "true",
    "anthropic-feature-of-next-year": "on",
}
KEPT_BACK = {"anthropic-workspace-id": "wrkspc_1", "anthropic-organization-id": "org_1"}
KEPT_BACK |= {"anthropic-long": "x" * 65, "anthropic-odd": "a; b"}
KEPT_BACK |= {"anthropic-auth-token": "secret", "other-beta": "x"}


@for_each("deployment", ["via-anthropic", "support-chat"])
async def test_vendor_headers_reach_only_its_upstreams(
    deployment: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    is_vendor = deployment == "via-anthropic"
    upstream.answer_with(respond(message() if is_vendor else chat()))
    headers = {"x-api-key": KEY, "x-headrace-deployment": deployment}
    headers |= FORWARDED_HEADERS | KEPT_BACK

    assert (await proxy.send("/v1/messages", REQUEST, headers)).status == 200

    sent_headers = upstream.requests[-1].headers
    expected = FORWARDED_HEADERS | {"anthropic-version": "2023-06-01"} if is_vendor else {}
    assert {
        name: sent_headers[name] for name in sent_headers if name.startswith("anthropic-")
    } == expected
    assert "other-beta" not in sent_headers


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
async def test_openai_clients_get_the_time_of_the_request(
    path: str, streamed: bool, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    words = text_events(0, "Paris.")
    upstream.answer_with(stream(message_events(words)) if streamed else respond(message()))
    fields: Json = {"input": "Hi"} if path.endswith("responses") else {"prompt": "Hi"}
    if "chat" in path:
        fields = {"messages": [{"role": "user", "content": "Hi"}]}
    headers = {"authorization": f"Bearer {KEY}"}
    body = {"model": "anthropic-model", "stream": streamed, **fields}
    count_before = int(time.time())

    response = await proxy.send(path, body, headers)

    assert response.status == 200, response.raw.decode()
    times = {int(t) for t in re.findall(r'"created(?:_at)?":(\d+)', response.raw.decode())}
    assert count_before <= min(times) <= max(times) <= time.time()
