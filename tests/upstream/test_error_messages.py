"""Clients of each API read an upstream's error message, whole and streamed."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from proxy.errors.words import MAX_TEXT
from tests.conftest import DIGEST, KEY, Proxy, running_proxy
from tests.doubles import (
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    Wire,
    chat_events,
    event,
    head,
    http_chunk,
    item_events,
    message_events,
    respond,
    response_events,
    text_events,
    text_item,
)

WAYS = ("whole", "streamed", "first event", "later event")
OURS = "sk-upstream-secret"
CONTEXT, QUOTA = "context_length_exceeded", "insufficient_quota"
INVALID = "invalid_request_error"


class Case(NamedTuple):
    """An error of an upstream's API, and what clients read: of chats and Responses a status, a type
    and a code, of Messages a status and a type.

    ``shown`` is the message, None for a text of ours; ``in_messages`` begins that of Messages.
    """

    api: str
    status: int
    error: dict[str, Any]
    chat: tuple[int, str, str]
    messages: tuple[int, str]
    shown: str | None = ""
    in_messages: str = ""


def error(message: Any, kind: str | None = None, code: Any = None) -> dict[str, Any]:
    return {"message": message, "type": kind, "code": code, "param": None}


CREDIT = "Your credit balance is too low to access the Anthropic API."
TOO_LONG = "prompt is too long: 9 tokens > 8 maximum"
EXTRA = {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs", "input": "Hi"}]}
BUSY, BOOM = "The engine is overloaded.", "The server had an error."
OVERLOADED, LIMITED = (529, "overloaded_error"), (429, "rate_limit_error")
BILLING = (402, "billing_error")
FAILED, INVALID_REQUEST = (502, "api_error"), (400, INVALID)
QUOTA_IN_CHAT, CONTEXT_IN_CHAT = (429, QUOTA, QUOTA), (400, INVALID, CONTEXT)
PREFIX = "prompt is too long: "
CASES = {
    "overloaded": Case("chat", 503, error(BUSY, "server_error", "server_is_overloaded"),
        (503, "server_error", "server_is_overloaded"), OVERLOADED),
    "rate limit, Messages": Case("messages", 429,
        error("This request would exceed your rate limit.", "rate_limit_error"),
        (429, "rate_limit_error", "upstream_unavailable"), LIMITED),
    "quota": Case("chat", 429, error("You exceeded your current quota.", QUOTA, QUOTA),
        QUOTA_IN_CHAT, BILLING),
    "credit, Messages":
        Case("messages", 400, error(CREDIT, INVALID), QUOTA_IN_CHAT, BILLING, shown=None),
    "context": Case("chat", 400,
        error("Your input exceeds the context window of this model.", INVALID, CONTEXT),
        CONTEXT_IN_CHAT, INVALID_REQUEST, in_messages=PREFIX),
    "context, Messages":
        Case("messages", 400, error(TOO_LONG, INVALID), CONTEXT_IN_CHAT, INVALID_REQUEST),
    "context, vLLM": Case("chat", 400,
        error("This model's maximum context length is 8 tokens.", "BadRequestError", 400),
        CONTEXT_IN_CHAT, INVALID_REQUEST, in_messages=PREFIX),
    "failure": Case("chat", 500, error(BOOM, "server_error", "server_error"),
        (502, "server_error", "server_error"), FAILED),
    "timeout, Messages": Case("messages", 504, error("The request timed out.", "timeout_error"),
        (502, "timeout_error", "upstream_unavailable"), (502, "timeout_error")),
    "a message that is an object": Case("chat", 422, error(EXTRA, INVALID, 422),
        (422, INVALID, "upstream_refused"), (422, INVALID), shown="stream_options: Extra inputs"),
    "a message that is any JSON": Case("chat", 503, error({"reason": "busy"}, "server_error", 503),
        (503, "server_error", "upstream_unavailable"), OVERLOADED, shown='{"reason":"busy"}'),
}  # fmt: skip


def policies(url: str, extra: str = "") -> str:
    by_name = {"chat": "openai", "messages": "anthropic", "responses": "openai"}
    ups = "\n".join(
        f"  up-{api}: {{dialect: {dialect}, base_url: '{url}', breaker: off, "
        "api_key: '${UPSTREAM_KEY}'}"
        for api, dialect in by_name.items()
    )
    deps = "\n".join(
        f"  {api}: {{targets: [{{upstream: up-{api}, model: m"
        + (f", endpoint: {api}" if api != "messages" else "")
        + f"}}]{extra}}}"
        for api in by_name
    )
    return f"""
upstreams:
{ups}
keys: {{support: {{sha256: {DIGEST}, deployments: [chat, messages, responses]}}}}
deployments:
{deps}
policies: {{p: {{output: [{{guard: keywords, words: [hippo]}}]}}}}
"""


def events_of(api: str, case: dict[str, Any]) -> tuple[list[Any], Any]:
    if api == "chat":
        return chat_events("Par")[:2], {"error": case}
    if api == "messages":
        words = {"type": case["type"], "message": case["message"]}
        return message_events(text_events(0, "Par"))[:4], {"type": "error", "error": words}
    start = response_events(item_events(0, text_item("Par"), "Par"))[:5]
    failed = {"status": "failed", "error": {"code": case["code"], "message": case["message"]}}
    return start, {"type": "response.failed", "response": failed}


def script_of(way: str, api: str, case: Case) -> Script:
    if way in ("whole", "streamed"):
        body: dict[str, Any] = {"error": case.error}
        if api == "messages":
            words = {"type": case.error["type"], "message": case.error["message"]}
            body = {"type": "error", "error": words}
        return respond(body, case.status)
    started, failed = events_of(api, case.error)

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        events = [failed] if way == "first event" else [*started, failed]
        data = b"".join(http_chunk(event(item)) for item in events)
        await wire.send(head(200, "text/event-stream", "transfer-encoding: chunked") + data)
        wire.keep = False

    return script


class ClientReply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    error: dict[str, Any]


async def send(proxy: Proxy, client: str, deployment: str, way: str = "whole") -> ClientReply:
    user = [{"role": "user", "content": "Hi"}]
    paths: dict[str, tuple[str, dict[str, Any]]] = {
        "chat": ("/v1/chat/completions", {"messages": user}),
        "messages": ("/v1/messages", {"messages": user, "max_tokens": 9}),
        "responses": ("/v1/responses", {"input": "Hi"}),
    }
    path, body = paths[client]
    headers = {"x-headrace-deployment": deployment, "authorization": f"Bearer {KEY}"}
    if client == "messages":
        headers |= {"anthropic-version": "2023-06-01"}
    reply = await proxy.send(path, {"model": "m", **body, "stream": way != "whole"}, headers)
    if "event-stream" not in reply.headers["content-type"]:
        return ClientReply(reply.status, reply.headers, reply.error)
    lines = [json.loads(line[6:]) for line in reply.raw.splitlines() if line[:7] == b"data: {"]
    [read] = [line["error"] for line in lines if line.get("error")]
    if client == "responses":
        assert lines[-1]["type"] == "response.failed"
        words = lines[-1]["response"]["error"]
        assert words == {"code": read["code"], "message": read["message"]}
    return ClientReply(200, reply.headers, read)


@asynccontextmanager
async def error_proxy(
    folder: Path, url: str, extra: str = "", **settings: Any
) -> AsyncIterator[Proxy]:
    async with running_proxy(folder / "p", policies(url, extra), **settings) as proxy:
        yield proxy


def shown_by(case: Case, client: str) -> str:
    output = str(case.error["message"]) if case.shown == "" else str(case.shown)
    return case.in_messages + output if client == "messages" else output


def upstream_apis(case: Case) -> tuple[str, ...]:
    """Return the upstream APIs of a case. Responses has those chat cases whose code is text."""
    has_word = isinstance(case.error["code"], str)
    return (case.api, "responses") if case.api == "chat" and has_word else (case.api,)


@pytest.mark.parametrize("client", ["chat", "messages", "responses"])
async def test_message_of_the_upstream_is_shown(
    client: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with error_proxy(tmp_path, upstream.url) as proxy:
        for name, case in CASES.items():
            for api in upstream_apis(case):
                for way in WAYS:
                    upstream.answer_with(script_of(way, api, case))
                    status, headers, read = await send(proxy, client, api, way)
                    place = name, api, way, read
                    expected, *words = case.messages if client == "messages" else case.chat
                    assert status == (200 if way == "later event" else expected), place
                    if case.shown is None:
                        assert str(case.error["message"]) not in read["message"], place
                    else:
                        assert read["message"] == shown_by(case, client), place
                    names = [read["type"], *([read["code"]] if "code" in read else [])]
                    if "event" in way and api == "responses":  # its events have no error type
                        names, words = names[1:], words[1:]
                    assert names == words, place
                    is_final = QUOTA in case.chat and way != "later event"
                    assert (headers.get("x-should-retry") == "false") == is_final, place


LONG = "x" * (MAX_TEXT + 500)


@pytest.mark.parametrize("way", WAYS)
async def test_key_and_host_stay_hidden(
    way: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    host = upstream.url.removeprefix("http://")
    text = f"{OURS} at {upstream.url}/v1, {host} and {host.split(':')[0]}. {LONG}"
    case = Case("chat", 503, error(text, "server_error"), (503, "", ""), (529, ""))
    upstream.answer_with(script_of(way, "chat", case))
    async with error_proxy(tmp_path, upstream.url) as proxy:
        read = (await send(proxy, "chat", "chat", way)).error

    assert read["message"].startswith("*** at http:***/v1, *** and ***. xx")
    assert len(read["message"]) == MAX_TEXT
    for secret in (OURS[:8], "127.0.0.1", host):
        assert secret not in read["message"]


@pytest.mark.parametrize("way", WAYS)
async def test_guards_inspect_error(way: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    case = Case("chat", 503, error("A hippo.", "server_error"), (503, "", ""), (529, ""))
    upstream.answer_with(script_of(way, "chat", case))
    async with error_proxy(tmp_path, upstream.url, ", policy: p") as proxy:
        read = (await send(proxy, "chat", "chat", way)).error

    assert "hippo" not in str(read)
    assert read["message"].startswith("The upstream is unavailable")


@pytest.mark.parametrize("way", WAYS)
async def test_log_hides_the_message(way: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    log = tmp_path / "log"
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT)
    cases = (
        Case("chat", 503, error(LONG, "server_error", "slow_down"), (503, "", ""), (529, "")),
        Case("chat", 400, error("Bad: Hi", INVALID, "invalid_value"), (400, "", ""), (400, "")),
    )
    async with error_proxy(tmp_path, upstream.url, log_fd=descriptor) as proxy:
        for case in cases:
            upstream.answer_with(script_of(way, "chat", case))
            await send(proxy, "chat", "chat", way)
    os.close(descriptor)

    lines = [json.loads(line) for line in log.read_text().splitlines()]
    words = [
        [line[f"upstream_error_{name}"] for name in ("type", "code", "text", "cause")]
        for line in lines
        if line["event"] == "call"
    ]
    assert words == [["server_error", "slow_down", None, None], [None, None, None, None]]


LIMITS = "anthropic-ratelimit-unified-status: rejected", "anthropic-ratelimit-unified-reset: 5"


@pytest.mark.parametrize(
    ("status", "should_retry"), [(400, "true"), (429, "false"), (500, "maybe"), (529, None)]
)
async def test_rate_limit_headers_of_a_refusal_pass(
    status: int, should_retry: str | None, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    events = [] if should_retry is None else [f"x-should-retry: {should_retry}"]
    body = {"type": "error", "error": {"type": "api_error", "message": "No."}}
    upstream.answer_with(respond(body, status, *LIMITS, *events, "x-internal: 1"))
    async with error_proxy(tmp_path, upstream.url) as proxy:
        own_document = (await send(proxy, "messages", "messages")).headers
        other_document = (await send(proxy, "chat", "messages")).headers

    for headers in (own_document, other_document):
        expected = should_retry if should_retry in ("true", "false") else None
        assert headers.get("x-should-retry") == expected
        assert "x-internal" not in headers
    assert own_document["anthropic-ratelimit-unified-status"] == "rejected"
    assert own_document["anthropic-ratelimit-unified-reset"] == "5"
    assert "anthropic-ratelimit-unified-status" not in other_document
