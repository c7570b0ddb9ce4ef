"""Response bytes, compared with aiohttp, and response headers, compared with the docs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web
from hypothesis import given
from hypothesis import strategies as st
from pytest_aiohttp.plugin import AiohttpRawServer

from proxy.errors import ClientDisconnected
from proxy.limits.kinds import KINDS as LIMIT_KINDS
from proxy.server.response import MAX_WRITE_BYTES, ResponseWriter, make_limit_headers
from proxy.types.limit import CounterState, Limit, LimitDecision, LimitKind, build_limit_decision
from tests.conftest import KEY, policies_for, running_proxy
from tests.doubles import ScriptedUpstream, chat, chat_events, respond, stream
from tests.limits.sample_limits import MONTH, PLACES, REQUESTS, TOKENS, claims

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
FIELDS = {"content-type": "application/json", "server": "headrace", "x-name": "\u00e9\tb"}
LARGE = bytes(range(256)) * (MAX_WRITE_BYTES // 128 + 1)
DATE = re.compile(rb"Date: [^\r]+")
HEADS = {
    "usual": ("POST", "1.1", ""),
    "closing": ("POST", "1.1", "Connection: close\r\n"),
    "old": ("POST", "1.0", ""),
    "old and kept": ("POST", "1.0", "Connection: keep-alive\r\n"),
    "head alone": ("HEAD", "1.1", ""),
}
BODIES = {
    "one": [b"{}"],
    "none": [b""],
    "three": [b"a", b"bc", b"d"],
    "an empty one last": [b"abc", b""],
    "large": [LARGE],
    "two pieces": [LARGE[: 2 * MAX_WRITE_BYTES]],
}


async def response_bytes(
    server: AiohttpRawServer, answer: Answer, head: tuple[str, str, str]
) -> bytes:
    async def answer_once(request: web.BaseRequest) -> web.StreamResponse:
        request.protocol.close()
        return await answer(request)

    method, version, fields = head
    host = (await server(answer_once)).make_url("/")
    reader, writer = await asyncio.open_connection(host.host, host.port)
    writer.write(f"{method} / HTTP/{version}\r\nHost: x\r\n{fields}\r\n".encode())
    async with asyncio.timeout(10):
        raw = await reader.read()
    writer.close()
    return DATE.sub(b"Date: now", raw)


@pytest.mark.parametrize("status", [200, 446, 503])
@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
async def test_whole_response_equals_that_of_aiohttp(
    status: int, head: tuple[str, str, str], aiohttp_raw_server: AiohttpRawServer
) -> None:
    for body in (b"{}", b"", LARGE):

        async def theirs(request: web.BaseRequest) -> web.StreamResponse:
            response = web.StreamResponse(status=status, headers=FIELDS)
            response.content_length = len(body)  # noqa: B023
            await response.prepare(request)
            await response.write_eof(body if request.method != "HEAD" else b"")  # noqa: B023
            return response

        async def ours(request: web.BaseRequest) -> web.StreamResponse:
            out = ResponseWriter(request, 10)
            out.set_head(status, dict(FIELDS), len(body))  # noqa: B023
            await out.write(body, last=True)  # noqa: B023
            return out.aiohttp_response

        expected = await response_bytes(aiohttp_raw_server, theirs, head)
        assert await response_bytes(aiohttp_raw_server, ours, head) == expected


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("head", list(HEADS.values())[:4], ids=list(HEADS)[:4])
async def test_stream_equals_that_of_aiohttp(
    name: str, head: tuple[str, str, str], aiohttp_raw_server: AiohttpRawServer
) -> None:
    pieces = BODIES[name]

    async def theirs(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers=FIELDS)
        if request.version < (1, 1):
            response.force_close()
        await response.prepare(request)
        for piece in pieces[:-1]:
            await response.write(piece)
        remainder = pieces[-1]
        while len(remainder) > MAX_WRITE_BYTES:
            await response.write(remainder[:MAX_WRITE_BYTES])
            remainder = remainder[MAX_WRITE_BYTES:]
        await response.write_eof(remainder)
        return response

    async def ours(request: web.BaseRequest) -> web.StreamResponse:
        out = ResponseWriter(request, 10)
        out.set_head(200, dict(FIELDS))
        for index, piece in enumerate(pieces):
            await out.write(piece, last=index + 1 == len(pieces))
        return out.aiohttp_response

    expected = await response_bytes(aiohttp_raw_server, theirs, head)
    assert await response_bytes(aiohttp_raw_server, ours, head) == expected


async def test_unsafe_header_is_not_sent(aiohttp_raw_server: AiohttpRawServer) -> None:
    started = []

    async def ours(request: web.BaseRequest) -> web.StreamResponse:
        for name, value in (("x-a", "b\r\nx-c: d"), ("x-a\nb", "c"), ("x-a", "\x00")):
            out = ResponseWriter(request, 10)
            with pytest.raises(ValueError, match="header"):
                out.set_head(200, {name: value}, 0)
            started.append(out.has_head)
        return web.Response()

    await response_bytes(aiohttp_raw_server, ours, HEADS["usual"])

    assert started == [False] * 3


async def test_client_that_stopped_reading_is_disconnected(
    aiohttp_raw_server: AiohttpRawServer,
) -> None:
    ended: asyncio.Future[type[BaseException]] = asyncio.get_running_loop().create_future()

    async def ours(request: web.BaseRequest) -> web.StreamResponse:
        out = ResponseWriter(request, 0.2)
        out.set_head(200, dict(FIELDS))
        try:
            while True:
                await out.write(LARGE)
        except ClientDisconnected as gone:
            ended.set_result(type(gone))
        assert (out.is_client_gone, out.served) == (True, False)
        return out.aiohttp_response

    url = (await aiohttp_raw_server(ours)).make_url("/")
    _, writer = await asyncio.open_connection(url.host, url.port, limit=1)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(10):
        assert await ended is ClientDisconnected
    writer.close()


async def test_unfinished_response_closes_connection(aiohttp_raw_server: AiohttpRawServer) -> None:
    async def ours(request: web.BaseRequest) -> web.StreamResponse:
        out = ResponseWriter(request, 10)
        out.set_head(200, dict(FIELDS))
        await out.write(b"abc")
        return out.aiohttp_response

    url = (await aiohttp_raw_server(ours)).make_url("/")
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(10):
        assert (await reader.read()).endswith(b"\r\n\r\n3\r\nabc\r\n")
    writer.close()


PAGE = (Path(__file__).parents[2] / "docs/headers.md").read_text()
KINDS = ("whole response", "stream", "error")
OURS = re.compile(r"x-headrace-.*|x-ratelimit-.*|x-request-id|x-trace-id|x-should-retry|retry-.*")
POLICIES = """
policies:
  default:
    match: all
    rules:
      - name: limited
        when: {header: {x-case: limited}}
        limits: [{name: calls, requests: 100 per day}, {name: words, tokens: 1M per day}]
      - {name: rate, when: {header: {x-case: rate}}, limits: [{name: r, requests: 1 per day}]}
      - {name: large, when: {header: {x-case: large}}, limits: [{name: t, tokens: 1 per day}]}
"""
CASES: dict[str, list[dict[str, str]]] = {
    "whole response": [{}, {"model": "search-answers"}, {"x-case": "limited"}, {"key": "search"}],
    "stream": [{}, {"x-case": "limited"}, {"key": "search"}],
    "error": [{"route": "/v1/nowhere"}, {"key": "hr-wrong"}, {"model": "unknown"},
        {"x-case": "rate"}, {"x-case": "rate"}, {"x-case": "large", "key": "search"},
        {"key-of-ours": "wrong"}],
}  # fmt: skip


def rows() -> dict[str, dict[str, str]]:
    """Return `always`, `some` or `never` for each header and kind, as documented."""
    results = {}
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        for name in re.findall(r"`([a-z-]+)`", cells[1]) if len(cells) > 5 else ():
            results[name] = dict(zip(KINDS, cells[2:5], strict=True))
    return results


class HeaderCollector:
    """Makes calls and collects the Headrace headers of their responses."""

    def __init__(self, client: ClientSession, upstream: ScriptedUpstream) -> None:
        self.client, self.upstream = client, upstream

    async def sent(self, kind: str, case: dict[str, str]) -> set[str]:
        key = {"search": "hr-search-key"}.get(case.get("key", ""), case.get("key", KEY))
        model = case.get("model", "search-answers" if "key" in case else "support-chat")
        sent_body = {"authorization": f"Bearer {key}"}
        if "key" in case:  # this key may not refresh policies and gets a warning
            sent_body["x-headrace-refresh-cache"] = "true"
        body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
        body["stream"] = kind == "stream"
        script = stream(chat_events("Hi")) if body["stream"] else respond(chat("Hi"))
        self.upstream.answer_with(respond({}, status=401) if "key-of-ours" in case else script)
        route = case.get("route", "/v1/chat/completions")
        case_header = {"x-case": case["x-case"]} if "x-case" in case else {}
        async with self.client.post(
            route, headers={**sent_body, **case_header}, json=body
        ) as response:
            await response.read()
            return {name.lower() for name in response.headers if OURS.fullmatch(name.lower())}


@pytest.fixture
async def context(tmp_path: Path, upstream: ScriptedUpstream) -> dict[str, list[set[str]]]:
    """Return the Headrace headers of all responses by kind."""
    async with running_proxy(tmp_path / "p", policies_for(upstream.url) + POLICIES) as proxy:
        asking = HeaderCollector(proxy.client, upstream)
        results = {kind: [await asking.sent(kind, case) for case in CASES[kind]] for kind in KINDS}
        bearer = {"authorization": f"Bearer {KEY}"}
        async with proxy.client.get("/v1/models", headers=bearer) as response:
            listed = {name.lower() for name in response.headers}
    refused = [item for item in results["error"] if "x-headrace-error" in item]
    answered = [item for item in results["error"] if "x-headrace-error" not in item]
    full_list = [*results["whole response"], *answered, {n for n in listed if OURS.fullmatch(n)}]
    return {"whole response": full_list, "stream": results["stream"], "error": refused}


async def test_page_lists_each_headrace_header(context: dict[str, list[set[str]]]) -> None:
    sent_value = {name for kind in context.values() for item in kind for name in item}

    assert sent_value == set(rows())


async def test_headers_are_sent_as_documented(context: dict[str, list[set[str]]]) -> None:
    wrong = []
    for name, kinds in rows().items():
        for kind, when in kinds.items():
            times = sum(name in item for item in context[kind])
            real = {0: "never", len(context[kind]): "always"}.get(times, "some")
            if real != when:
                wrong.append(f"{name} of a {kind}: {when}, really {real}")

    assert wrong == []


SEVEN = Limit("seven", LIMIT_KINDS["requests"], 7, 60)
LIMITS = (REQUESTS, SEVEN, TOKENS, replace(REQUESTS, shadow=True), MONTH, PLACES)


def tightest(admission: LimitDecision, kind: LimitKind) -> CounterState | None:
    """Return the rate of a kind with the smallest remaining share."""
    standings = [
        standing
        for standing in admission.counter_states
        if standing.limit.kind is kind and not standing.limit.shadow
    ]
    return min(
        standings, key=lambda standing: standing.remaining / standing.limit.capacity, default=None
    )


@given(st.lists(st.tuples(st.sampled_from(LIMITS), st.integers(0, 10**7)), max_size=6))
def test_headers_show_the_tightest_rate_of_each_kind(counted: list[tuple[Limit, int]]) -> None:
    readings = [number for _, level in counted for number in (level, -1, 0, 0)]
    admission = build_limit_decision(claims(*[(limit, 1) for limit, _ in counted]), readings)

    headers: dict[str, str] = {}
    for kind in LIMIT_KINDS.values():
        rate = tightest(admission, kind)
        if kind.headers is not None and rate is not None:
            events = str(rate.limit.capacity), str(rate.remaining), f"{rate.reset_s or 0:g}s"
            headers |= zip(kind.headers, events, strict=True)

    assert make_limit_headers(admission) == headers
    assert [*make_limit_headers(admission)] == [*headers]
