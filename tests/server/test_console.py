"""Routes of the console: access, refusals, and headers."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from proxy.server.admin import AdminAccess
from proxy.server.console import MAX_BODIES, MAX_STREAMS
from proxy.server.sessions import COOKIE_NAME, MAX_SESSIONS, SESSION_S, Sessions
from proxy.settings import Address, BadSetting, from_environment
from tests.conftest import Proxy
from tests.console.shop import make_traffic, post_chat, running_shop
from tests.doubles import PATIENCE_S, ScriptedUpstream, chat, hang, respond
from tests.for_each import for_each
from tests.servers import eventually

TOKEN = "console-token-0123"
API = "/api/v1/"
NESTED = '{"key": "support-widget", "body": {"messages": ' + "[" * 990 + "]" * 990 + "}}"


async def get(proxy: Proxy, path: str, **headers: str) -> tuple[int, Any]:
    async with proxy.client.get(proxy.admin + path, headers=headers) as response:
        text = await response.text()
        is_json = response.content_type == "application/json"
        return response.status, json.loads(text) if is_json else text


async def test_files_forbid_foreign_and_inline_sources(shop: Proxy) -> None:
    for path in ("/", "/console/app.js", "/console/vendor/preact-htm.module.js", f"{API}calls"):
        async with shop.client.get(shop.admin + path) as response:
            policy = response.headers["content-security-policy"]
            assert response.status == 200, path
            assert "unsafe" not in policy
            assert policy.startswith("default-src 'self';")
            assert "frame-ancestors 'none'" in policy
            assert response.headers["cache-control"] == "no-store"
            assert response.headers["x-content-type-options"] == "nosniff"


@for_each(
    ("method", "path", "body", "status", "words"),
    [
        ("GET", "overview?range=2d", None, 400, "range must be one of 5m, 15m, 1h"),
        ("GET", "money?format=csv", None, 400, "There is no SQLite ledger"),
        ("GET", "calls?after=-1", None, 400, "after: String should match"),
        ("GET", "calls?after=1e9", None, 400, "after: String should match"),
        ("GET", "calls/99", None, 404, "This call is not stored"),
        ("GET", "calls/x", None, 404, "This call is not stored"),
        ("GET", "calls/" + "9" * 400, None, 404, "This call is not stored"),
        ("GET", "money?by=nothing", None, 400, "by must be one of tag.team, deployment"),
        ("GET", "money?days=0", None, 400, "days: Input should be greater than or equal to 1"),
        ("GET", "money?unit=year", None, 400, "unit: Input should be 'day' or 'week'"),
        ("GET", "nothing", None, 404, "Unknown path. docs/console.md"),
        ("POST", "calls", "{}", 405, "Use GET"),
        ("GET", "try", None, 405, "Use POST"),
        ("HEAD", "calls/stream", None, 405, ""),
        ("POST", "try", "{", 400, "The body is not valid JSON"),
        ("POST", "try", "[]", 400, "The body must be a JSON object"),
        ("POST", "try", NESTED, 400, "nested more than 254 levels"),
        ("POST", "try", '{"key": "a", "key": "b"}', 400, "twice"),
        ("POST", "try", "[" + "1," * 100_000 + "1]", 400, "more than 100000 JSON values"),
        ("POST", "try", " " * 1_048_577, 400, "larger than 1,048,576 bytes"),
        ("POST", "try", '{"key": "support-widget"}', 400, "body: Field required"),
        ("POST", "try", '{"key": 1, "body": {}}', 400, "key: "),
        ("POST", "try", '{"key": "nobody", "body": {}}', 400, 'There is no key "nobody"'),
        ("POST", "try", '{"key": "support-widget", "body": {}, "path": "x"}', 400, "path: "),
        ("POST", "try", '{"key": "support-widget", "body": {"messages": 1}}', 400, "model"),
        ("POST", "try", '{"key": "support-widget", "body": {}, "at": "soon"}', 400, "at: "),
    ],
)  # fmt: skip
async def test_refuses_invalid_request(
    method: str, path: str, body: str | None, status: int, words: str, shop: Proxy
) -> None:
    data = None if body is None else io.BytesIO(body.encode())
    async with shop.client.request(method, f"{shop.admin}{API}{path}", data=data) as response:
        assert response.status == status
        if method != "HEAD":
            assert words in (await response.json())["error"]["message"]


async def test_bounds_the_bodies_that_arrive(shop: Proxy) -> None:
    host, port = shop.admin.removeprefix("http://").split(":")
    head = b"POST /api/v1/try HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n"
    writers = []
    for _ in range(MAX_BODIES):
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(head + b"{")
        writers.append(writer)
    async with asyncio.timeout(PATIENCE_S):
        while True:  # until all of them are being received
            async with shop.client.post(f"{shop.admin}{API}try", data="{") as response:
                if response.status == 503:
                    break
    assert (await get(shop, f"{API}overview"))[0] == 200
    for writer in writers:
        writer.close()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with shop.client.post(f"{shop.admin}{API}try", data="{") as response:
                if response.status == 400:
                    break


async def test_calls_are_streamed_as_they_end(shop: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(chat("Paris.")))
    await post_chat(shop)
    async with shop.client.get(f"{shop.admin}{API}calls/stream") as response:
        lines = response.content

        async def next_call() -> dict[str, Any]:
            while True:
                line = await lines.readline()
                if line.startswith(b"data: "):
                    return dict(json.loads(line[6:]))

        async with asyncio.timeout(20):
            first_call = await next_call()
            await post_chat(shop, model="nobody")
            second = await next_call()
    run = first_call["id"].removesuffix("-1")
    assert (first_call["id"], first_call["outcome"]) == (f"{run}-1", "success")
    assert (second["id"], second["outcome"]) == (f"{run}-2", "client_error")
    assert await first_event_id(shop) == f"{run}-1"
    assert await first_event_id(shop, f"{run}-1") == f"{run}-2"
    assert await first_event_id(shop, "0a1b2c3d-1") == f"{run}-1"  # from before a restart


async def test_pages_share_one_build_of_the_overview(shop: Proxy) -> None:
    pages = await asyncio.gather(*(get(shop, f"{API}overview") for _ in range(10)))
    assert [status for status, _ in pages] == [200] * 10
    assert len({page["now"] for _, page in pages}) < 10
    _, other = await get(shop, f"{API}overview?range=1h")
    assert other["step"] == 30_000


async def test_bounds_the_open_streams(shop: Proxy) -> None:
    url = f"{shop.admin}{API}calls/stream"
    async with AsyncExitStack() as streams:
        for _ in range(MAX_STREAMS):
            response = await streams.enter_async_context(shop.client.get(url))
            assert response.status == 200
        status, body = await get(shop, f"{API}calls/stream")
        assert status == 503
        assert "Too many pages are open" in body["error"]["message"]
    async with asyncio.timeout(PATIENCE_S):
        while True:  # until the server has seen that one of them is closed
            async with shop.client.get(url) as response:
                if response.status == 200:
                    break


async def test_streams_end_when_shutdown_begins(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    started, stop = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def serve() -> None:
        async with running_shop(tmp_path / "p", upstream, drain_seconds=600.0) as proxy:
            started.set_result(proxy)
            await stop.wait()

    serving = asyncio.create_task(serve())
    proxy: Proxy = await started
    upstream.answer_with(hang())
    async with asyncio.timeout(PATIENCE_S), ClientSession(base_url=proxy.url) as client:
        other = replace(proxy, client=client)
        call = asyncio.create_task(post_chat(other, model="resilient"))
        await eventually(lambda: len(upstream.requests) == 1)
        async with client.get(f"{proxy.admin}{API}calls/stream") as response:
            stop.set()
            await response.read()
        status, body = await get(other, f"{API}calls/stream")
        assert status == 503
        assert body["error"]["message"] == "The proxy is stopping."
        assert not serving.done()  # it drains the call
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await serving


async def first_event_id(shop: Proxy, last_event_id: str = "") -> str:
    """Return the id of the first event of a stream that continues after another one."""
    headers = {"last-event-id": last_event_id} if last_event_id else {}
    stream = f"{shop.admin}{API}calls/stream"
    async with shop.client.get(stream, headers=headers) as response, asyncio.timeout(PATIENCE_S):
        assert response.status == 200
        while not (line := await response.content.readline()).startswith(b"id: "):
            pass
        return line.decode().removeprefix("id: ").rstrip()


async def test_no_page_contains_a_prompt_a_response_or_a_secret(
    shop: Proxy, upstream: ScriptedUpstream
) -> None:
    await make_traffic(shop, upstream)
    for path in (
        "overview",
        "calls",
        "policy",
        "money",
        *(f"calls/{call['id']}" for call in (await get(shop, f"{API}calls"))[1]["calls"]),
    ):
        status, body = await get(shop, API + path)
        text = json.dumps(body)
        assert status == 200, path
        for secret in ("Where is my order", "Paris", "jane@", "sk-upstream-secret", shop.key):
            assert secret not in text, (path, secret)


@pytest.mark.parametrize("path", ["/", f"{API}calls", f"{API}session"])
async def test_other_sites_are_refused(path: str, shop: Proxy) -> None:
    status, _ = await get(shop, path, origin="http://evil.example")
    assert status == 403
    status, _ = await get(shop, path, host="evil.example:8081")
    assert status == 403
    site = {"sec-fetch-site": "cross-site"}
    status, _ = await get(shop, path, **site)
    assert status == (200 if path == "/" else 403)  # a link to the page contains no data
    status, _ = await get(shop, path, origin=shop.admin)
    assert status == 200


async def test_console_can_be_switched_off(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with running_shop(tmp_path / "p", upstream, has_console=False) as proxy:
        assert (await get(proxy, "/"))[0] == 404
        assert (await get(proxy, f"{API}calls"))[0] == 404


async def test_session_opens_api_and_no_changes(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with (
        running_shop(tmp_path / "p", upstream, admin_token=TOKEN) as proxy,
        ClientSession() as other,
    ):
        assert (await get(proxy, "/"))[0] == 200
        assert (await get(proxy, f"{API}calls"))[0] == 401
        url, bearer = f"{proxy.admin}{API}session", {"authorization": f"Bearer {TOKEN}"}
        for headers, expected in (({}, 401), ({"authorization": "Bearer x"}, 401), (bearer, 204)):
            async with other.post(url, headers=headers) as response:
                assert response.status == expected
        assert (await get(proxy, f"{API}calls", **bearer))[0] == 200


def test_session_ends_and_cannot_be_forged() -> None:
    seconds = [0.0]
    sessions = Sessions(TOKEN, lambda: seconds[0])
    session = sessions.begin()
    assert sessions.is_valid(session)
    for forged in ("", session[:-1], f"{session}x", session.lower()):
        assert not sessions.is_valid(forged)
    assert not Sessions(TOKEN, lambda: seconds[0]).is_valid(session)
    access = AdminAccess(token=TOKEN, sessions=sessions)
    cookies = {COOKIE_NAME: session}
    assert access.find_refusal("GET", f"{API}calls", {"Host": "localhost"}, cookies) is None
    page = {"Host": "localhost", "Sec-Fetch-Site": "same-origin"}
    refusal = access.find_refusal("PUT", "/loglevel", page, cookies)
    assert refusal is not None
    seconds[0] = SESSION_S + 1
    assert not sessions.is_valid(session)


def test_session_beyond_the_maximum_ends_the_oldest() -> None:
    sessions = Sessions(TOKEN, lambda: 0.0)
    oldest, second, *_, newest = [sessions.begin() for _ in range(MAX_SESSIONS + 1)]
    assert not sessions.is_valid(oldest)
    assert sessions.is_valid(second)
    assert sessions.is_valid(newest)


@for_each(
    ("name", "value"),
    [
        ("HEADRACE_CONSOLE", "perhaps"),
        ("HEADRACE_TRACE_URL", "https://traces.example/"),
        ("HEADRACE_TRACE_URL", "javascript:alert('{trace_id}')"),
    ],
)
def test_invalid_setting_is_refused(name: str, value: str) -> None:
    address = Address("127.0.0.1", 0)
    with pytest.raises(BadSetting, match=name):
        from_environment(Path(), address, address, {name: value})


async def test_trace_url_leads_to_the_trace(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    url = "https://traces.example/t/{trace_id}"
    async with running_shop(tmp_path / "p", upstream, trace_url=url) as proxy:
        upstream.answer_with(respond(chat("Paris.")))
        await post_chat(proxy)
        _, page = await get(proxy, f"{API}calls")
        _, call = await get(proxy, f"{API}calls/{page['last']}")
        assert call["trace_url"] == f"https://traces.example/t/{call['trace_id']}"
        assert [attempt["status"] for attempt in call["attempt_list"]] == [200]
        assert call["explanation"]["decisions"][0]["decided"] == "support-widget"
