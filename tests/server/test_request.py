"""Requests over raw sockets: bounds of size and time, and invalid forms."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from asyncio.subprocess import PIPE
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest
from aiohttp import ClientSession
from multidict import CIMultiDict

from proxy.call.summary import summarize
from proxy.dialects.vendors.other_gateways import HEADER_MEANINGS
from proxy.errors import BadRequest, Overloaded
from proxy.ledger.rows import make_rows
from proxy.runtime.fair_queue import LARGE_BYTES, Offload
from proxy.server.request import BodyParser
from proxy.telemetry.attributes import get_server_span_attributes
from proxy.telemetry.decisions import make_decision_entry
from proxy.telemetry.log import build_call_line
from tests.conftest import KEY, Proxy, policies_for, running_proxy
from tests.doubles import ScriptedUpstream
from tests.for_each import for_each
from tests.ledger.records import call_entry
from tests.servers import program
from tests.test_pipeline import BEARER, ROUTES

ROUTE = ROUTES["openai"]
AUTH = f"Authorization: Bearer {KEY}\r\n"
JSON = "Content-Type: application/json\r\n"


async def send(proxy: Proxy, request: str) -> tuple[int, bytes]:
    raw = await proxy.send_bytes(request.encode("latin-1"))
    return int(raw.split()[1]), raw


def post(headers: str, body: str = "", path: str = "/v1/completions") -> str:
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}{length}\r\n{body}"


BODY = json.dumps(ROUTE.body(streamed=False))


@for_each(
    ("headers", "status", "code"),
    [
        (AUTH + AUTH, 400, "bad_request"),
        (AUTH + "x-headrace-tags: a\r\nx-headrace-tags: b\r\n", 400, "bad_request"),
        (AUTH + "Content-Type: text/plain\r\n", 415, "unsupported_media_type"),
        (AUTH + JSON + "Content-Encoding: gzip\r\n", 415, "unsupported_media_type"),
        (AUTH + JSON + "x-headrace-refresh-cache: maybe\r\n", 400, "bad_request"),
        (AUTH.replace("Bearer", "Basic") + JSON, 401, "invalid_api_key"),
        (f"x-api-key: {KEY}\r\n" + JSON, 401, "invalid_api_key"),
        ("Cookie: key=" + KEY + "\r\n" + JSON, 401, "invalid_api_key"),
    ],
)
async def test_invalid_deciding_header_is_refused(
    headers: str, status: int, code: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    response, body = await send(proxy, post(headers, BODY))

    assert response == status
    assert f'"code":"{code}"'.encode() in body
    assert upstream.requests == []


async def test_repeated_deciding_header_is_refused(
    proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    for name in HEADER_MEANINGS:
        status, refusal = await send(proxy, post(f"{AUTH}{JSON}{name}: 1\r\n{name}: 2\r\n", BODY))

        assert (status, name.encode() in refusal) == (400, True)
    assert upstream.requests == []


async def test_invalid_http_is_not_echoed(proxy: Proxy) -> None:
    status, body = await send(proxy, f"POST / HTTP/1.1\r\nHost: x\r\n{AUTH}bad header\r\n\r\n")

    assert status == 400
    assert KEY.encode() not in body


async def test_declared_size_is_checked_before_reading(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with running_proxy(tmp_path / "p", policies_for(upstream.url), body_bytes=1000) as proxy:
        huge = f"{AUTH}{JSON}Expect: 100-continue\r\nContent-Length: 10000000000\r\n"
        status, body = await send(proxy, post(huge))

    assert status == 413
    assert b"100 Continue" not in body


async def test_chunked_body_is_bounded(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async def endless() -> object:
        for _ in range(100):
            yield b"x" * 100

    async with (
        running_proxy(tmp_path / "p", policies_for(upstream.url), body_bytes=1000) as proxy,
        proxy.client.post(
            ROUTE.path, headers={**BEARER, "content-type": "application/json"}, data=endless()
        ) as response,
    ):
        assert response.status == 413


async def test_curl_request_is_served(
    proxy: Proxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    body = ROUTE.body(streamed=False, prompt="x" * 2_000_000)
    (tmp_path / "body.json").write_text(json.dumps(body))
    headers = ("-H", AUTH.strip(), "-H", JSON.strip(), "-H", "Expect: 100-continue")

    process = await asyncio.create_subprocess_exec(
        program("curl"),
        *("-s", "-v", "--compressed", "-d", f"@{tmp_path / 'body.json'}", *headers),
        proxy.url + ROUTE.path,
        stdout=PIPE,
        stderr=PIPE,
    )
    async with asyncio.timeout(30):
        out, event = await process.communicate()

    assert json.loads(out)["choices"][0]["text"] == " Paris."
    assert b"100 Continue" in event
    assert len(upstream.requests[0].json["prompt"]) == 2_000_000


@pytest.mark.parametrize(
    "path", ["/v1/../v1/completions", "//v1/completions", "/v1/completions%00", "/metrics"]
)
async def test_unknown_path_is_a_404_in_the_form_of_openai(path: str, proxy: Proxy) -> None:
    status, body = await send(proxy, post(AUTH + JSON, BODY, path))

    assert status == 404
    assert b'"code":"not_found"' in body
    [record] = await proxy.sink.wait()
    assert record.head is None


UNREAD: dict[str, tuple[str, str, dict[str, str], int]] = {
    "no path": ("POST", "/v1/nothing", {}, 404),
    "a wrong method": ("GET", "/v1/completions", {}, 405),
    "a header twice": ("POST", "/v1/completions", {"traceparent": "1"}, 400),
}


@for_each("text", [None, "from-the-client"])
@for_each("case", UNREAD.values(), ids=UNREAD.keys())
async def test_unparseable_request_is_recorded_with_its_id(
    case: tuple[str, str, dict[str, str], int], text: str | None, proxy: Proxy
) -> None:
    method, path, options, status = case
    headers = [*BEARER.items(), *options.items(), *options.items()]
    headers += [("x-request-id", text)] if text else []
    async with (
        ClientSession(base_url=proxy.url) as client,
        client.request(method, path, headers=CIMultiDict(headers)) as response,
    ):
        name = response.headers["x-request-id"]
    [record] = await proxy.sink.wait()
    line, row = build_call_line(record), make_rows(call_entry(1, record)).call

    assert (response.status, name) == (status, text or name)
    assert (line["request_id"], row["request_id"]) == (name, name)
    assert make_decision_entry(summarize(record))["request_id"] == name
    assert get_server_span_attributes(summarize(record))["headrace.request.id"] == name


async def test_valid_request_id_is_kept(proxy: Proxy) -> None:
    for text, stored in (("my-id-1", True), ("no spaces please", False)):
        headers = {**BEARER, "x-request-id": text}
        response = await proxy.send("/v1/models", headers=headers, method="GET")
        assert (response.headers["x-request-id"] == text) == stored


async def test_own_via_header_is_a_loop(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    await proxy.complete()
    own_text = upstream.requests[0].headers["x-headrace-via"]
    other_value = "0123456789abcdef"
    for received, status in (
        (own_text, 508),
        (f"{other_value}, {own_text}", 508),
        (", ".join([other_value] * 9), 508),
    ):
        response = await proxy.send(
            ROUTE.path, ROUTE.body(streamed=False), {**BEARER, "x-headrace-via": received}
        )
        assert response.status == status


async def test_via_headers_are_kept(upstream: ScriptedUpstream, proxy: Proxy) -> None:
    received = {"x-headrace-via": "0123456789abcdef, nonsense\t"}

    response = await proxy.send(ROUTE.path, ROUTE.body(streamed=False), {**BEARER, **received})
    assert response.status == 200

    first_text, second = upstream.requests[0].headers["x-headrace-via"].split(", ")
    assert (first_text, len(second)) == ("0123456789abcdef", 16)


def free(size: int) -> None:
    """Accept any number of bytes."""


class Noted(ThreadPoolExecutor):
    """An executor that counts its jobs."""

    job_count = 0

    def submit(self, *work, **options):  # type: ignore[no-untyped-def]
        self.job_count += 1
        return super().submit(*work, **options)


async def test_only_large_bodies_are_parsed_in_a_thread() -> None:
    with Noted(1) as noted:
        parsing = BodyParser(offload=Offload(noted))

        small = await parsing.parse(b'{"a": 1}', dict, "a", free)
        assert noted.job_count == 0
        large = await parsing.parse(orjson.dumps({"a": "x" * LARGE_BYTES}), dict, "a", free)

    assert (small, len(large["a"]), noted.job_count) == ({"a": 1}, LARGE_BYTES, 2)
    assert threading.active_count() >= 1


@pytest.mark.parametrize("size", [10, LARGE_BYTES])
async def test_too_many_values_are_refused_at_any_size(size: int) -> None:
    raw = orjson.dumps({"a": ["x" * size, 1, 2]})

    assert await BodyParser(max_values=5).parse(raw, dict, "a", free)
    with pytest.raises(BadRequest, match="more than 4 JSON values"):
        await BodyParser(max_values=4).parse(raw, dict, "a", free)


async def test_count_of_small_values_is_bounded(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with running_proxy(tmp_path / "p", policies_for(upstream.url), body_values=1000) as proxy:
        for count, status in ((990, 200), (1100, 400)):
            body = {**ROUTE.body(streamed=False), "metadata": [{}] * count}
            response = await proxy.send(ROUTE.path, body, BEARER)
            assert response.status == status, response.raw.decode()


SLACK = 32 * 1024  # for caches that the first body fills
SHAPES = {
    "objects in objects": b'{"x":[' + b",".join(b'{"a":{}}' for _ in range(20_000)) + b"]}",
    "objects with names of their own": b'{"x":['
    + b",".join(b'{"k%d":{}}' % number for number in range(20_000))
    + b"]}",
    "lists of one text": b'{"x":[' + b",".join(b'["%d"]' % n for n in range(20_000)) + b"]}",
    "names": b"{" + b",".join(b'"k%d":%d' % (n, n + 500) for n in range(30_000)) + b"}",
    "deep": b'{"x":[' + b",".join(b'{"a":' * 50 + b"1" + b"}" * 50 for _ in range(500)) + b"]}",
    "one text": b'{"x":"' + b"a" * 400_000 + b'"}',
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_body_size_estimate_covers_the_parsed_body(shape: str) -> None:
    raw, taken_items = SHAPES[shape], list[int]()
    tracemalloc.start()
    try:
        count_before = tracemalloc.get_traced_memory()[0]
        document = await BodyParser().parse(raw, dict, "a", taken_items.append)
        took = tracemalloc.get_traced_memory()[0] - count_before
    finally:
        tracemalloc.stop()

    assert document
    assert took <= len(raw) + sum(taken_items) + SLACK


async def test_body_beyond_the_budget_is_not_read() -> None:
    def full(size: int) -> None:
        raise Overloaded

    with pytest.raises(Overloaded):
        await BodyParser().parse(b"no JSON", dict, "a", full)
