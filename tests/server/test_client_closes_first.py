"""Clients and a draining proxy close connections only after complete responses."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from proxy.server import Calls
from tests.conftest import DIGEST, KEY, Proxy, policies_for, running_proxy
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
    legacy_completion,
    legacy_events,
    message_events,
    respond,
    response,
    response_events,
    stream,
    text_events,
    text_item,
)
from tests.test_pipeline import ROUTES

TIMES = 50
AT_ONCE = 5  # clients
LONG = "so " * 40_000  # the last event of Responses contains the whole text


POLICIES = {
    "plain": "{limits: [{name: many, requests: 900 per minute}]}",
    "guarded": "{output: [{guard: keywords, words: [hippo], action: mask}]}",
    "cached": "{cache: {ttl: 1h}}",
}


def policies(upstream: str) -> str:
    apis = {"chat": "openai", "messages": "anthropic", "responses": "openai"}
    deployments = {
        f"{api}-{policy}": f"{{policy: {policy}, targets: [{{upstream: {dialect}, model: m"
        + ("" if api == "messages" else f", endpoint: {api}")
        + "}]}"
        for api, dialect in apis.items()
        for policy in POLICIES
    }
    return f"""
upstreams:
  openai: {{dialect: openai, base_url: '{upstream}/v1'}}
  anthropic: {{dialect: anthropic, base_url: '{upstream}'}}
keys:
  widget:
    sha256: {DIGEST}
    deployments: [{", ".join(deployments)}]
policies: {{{", ".join(f"{name}: {item}" for name, item in POLICIES.items())}}}
deployments: {{{", ".join(f"{name}: {item}" for name, item in deployments.items())}}}
"""


def upstream_events(api: str, text: str, status: str) -> list[Any]:
    if api == "chat":
        finish = "length" if status == "incomplete" else "stop"
        events: list[Any] = chat_events(text)
        events[-2]["choices"][0]["finish_reason"] = finish
        return [*events, b"[DONE]"]
    if api == "messages":
        reason = "max_tokens" if status == "incomplete" else "end_turn"
        return message_events(text_events(0, text), reason=reason)
    item = text_item(text)
    options: dict[str, Any] = {"status": status}
    if status == "incomplete":
        options["incomplete_details"] = {"reason": "max_output_tokens"}
    return response_events(item_events(0, item, text), document=response(item, **options))


def answer_without_end(api: str) -> Script:
    """Stream the requested events, and end the body only when the proxy disconnects."""

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        text = LONG if b"long" in request.body else " Paris."
        status = "incomplete" if b"incomplete" in request.body else "completed"
        await wire.send(head(200, "text/event-stream", "transfer-encoding: chunked"))
        for upstream_event in upstream_events(api, text, status):
            await wire.send(http_chunk(event(upstream_event)))
        await request.closed.wait()

    return script


CLIENTS: dict[str, tuple[str, Callable[[str], dict[str, Any]], bytes]] = {
    "chat": ("/v1/chat/completions", lambda prompt: {"messages": user(prompt)}, b"data: [DONE]"),
    "messages": (
        "/v1/messages",
        lambda prompt: {"messages": user(prompt), "max_tokens": 9},
        b"event: message_stop",
    ),
    "responses": ("/v1/responses", lambda prompt: {"input": prompt}, b"event: response."),
}
"""The path, the fields and the last event of each API."""


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def read_and_close(
    url: str, path: str, body: dict[str, Any], last_data: bytes, *, reset: bool
) -> None:
    """Send a request, read to the end of the last event, and close or reset at once."""
    address = urlsplit(url)
    raw = json.dumps(body).encode()
    request = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(request.encode() + raw)
        observed = b""
        while not (last_data in observed and observed.partition(last_data)[2].count(b"\n\n")):
            data = connection.recv(65536)
            assert data, observed[-500:]
            observed = observed[-200_000:] + data


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("provider", CLIENTS)
@pytest.mark.parametrize("api", CLIENTS)
async def test_call_succeeds_once_its_last_event_is_written(
    api: str, provider: str, policy: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    path, fields, last_data = CLIENTS[api]
    upstream.answer_with(answer_without_end(provider))
    async with running_proxy(tmp_path / "policies", policies(upstream.url)) as proxy:
        slots = asyncio.Semaphore(AT_ONCE)

        async def client(number: int) -> None:
            size = "long" if number % 5 == 0 else "short"
            status = "incomplete" if number % 3 == 0 else "completed"
            request = fields(f"Question {number}: {size}, {status}")
            body = {**request, "model": f"{provider}-{policy}", "stream": True}
            end = last_data + status.encode() if api == "responses" else last_data
            reset = number % 2 == 0
            async with slots:
                await asyncio.to_thread(read_and_close, proxy.url, path, body, end, reset=reset)

        await asyncio.gather(*map(client, range(TIMES)))
        records = await proxy.sink.wait(TIMES)

    ends = [(record.outcome, record.billing.usage_source) for record in records]
    assert ends == [("success", "provider")] * TIMES
    assert {record.billing.tokens.total for record in records} == {8}


ROUTE = ROUTES["openai"]
BODY = json.dumps(ROUTE.body(streamed=True))
REQUEST = (
    f"POST {ROUTE.path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
    f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}"
)


def lingering(gate: asyncio.Event, *, is_done: bool) -> Script:
    """A complete stream whose connection stays open until the gate opens."""

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(head(200, "text/event-stream", "transfer-encoding: chunked"))
        events = [event(data) for data in legacy_events(" Par", "is.")]
        for data in (*events, event(b"[DONE]")) if is_done else events:
            await wire.send(http_chunk(data))
        await gate.wait()
        await wire.send(b"0\r\n\r\n")

    return script


@pytest.mark.parametrize(
    ("is_done", "read_to", "outcome"),
    [(True, b"data: [DONE]\n\n", "success"), (False, b"finish_reason", "client_abort")],
)
async def test_disconnect_after_the_last_event_is_no_abort(
    *, is_done: bool, read_to: bytes, outcome: str, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    gate = asyncio.Event()
    upstream.answer_with(lingering(gate, is_done=is_done))
    reader, writer = await proxy.connect()
    writer.write(REQUEST.encode())
    await reader.readuntil(read_to)
    writer.transport.abort()

    [record] = await proxy.sink.wait()
    gate.set()

    assert record.outcome == outcome
    assert record.status == 200


HEAD = f"Host: x\r\nAuthorization: Bearer {KEY}\r\nContent-Type: application/json\r\n"
LONG_S = 30.0


def request_bytes(*, streamed: bool = False) -> bytes:
    body = json.dumps(ROUTE.body(streamed=streamed))
    line = f"POST {ROUTE.path} HTTP/1.1\r\n"
    return f"{line}{HEAD}Content-Length: {len(body)}\r\n\r\n{body}".encode()


@asynccontextmanager
async def stoppable(
    folder: Path, upstream: ScriptedUpstream, grace: float, **options: Any
) -> AsyncIterator[tuple[Proxy, asyncio.Event, asyncio.Task[None]]]:
    """Run a proxy. Yield it, its stop event, and the task that ends when it has stopped."""
    up: asyncio.Future[Proxy] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()

    async def serve() -> None:
        settings = {"drain_seconds": LONG_S, "drain_grace_seconds": grace, **options}
        async with running_proxy(folder, policies_for(upstream.url), **settings) as proxy:
            up.set_result(proxy)
            await stop.wait()

    async with asyncio.TaskGroup() as group, asyncio.timeout(LONG_S / 2):
        serving = group.create_task(serve())
        yield await up, stop, serving
        stop.set()
        await serving


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def answer(self) -> tuple[bytes, bytes]:
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        return head, await self.reader.readexactly(length)


async def connected(proxy: Proxy) -> Client:
    return Client(*await proxy.connect())


async def test_idle_connection_closes_in_grace(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with stoppable(tmp_path / "p", upstream, grace=1.0) as (proxy, stop, serving):
        clients = [await connected(proxy) for _ in range(4)]
        for client in clients:
            client.writer.write(request_bytes())
            head, _ = await client.answer()
            assert b"connection: close" not in head.lower()
        stop.set()
        await asyncio.sleep(0.1)

        for client in clients:
            client.writer.write(request_bytes())
            head, body = await client.answer()
            assert b"connection: close" in head.lower()
            assert json.loads(body)["choices"]
            assert await client.reader.read() == b""
            client.writer.close()
        await serving


async def test_calls_complete_during_stop(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    gate = asyncio.Event()
    upstream.then(respond(legacy_completion()), stream(legacy_events(" Par", "is."), gate=gate))
    async with stoppable(tmp_path / "p", upstream, grace=0.0) as (proxy, stop, serving):
        client = await connected(proxy)
        client.writer.write(request_bytes())
        await client.answer()
        client.writer.write(request_bytes(streamed=True))
        await client.reader.readuntil(b" Par")
        stop.set()
        await asyncio.sleep(0.2)
        gate.set()

        assert (await client.reader.read()).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        client.writer.close()
        await serving
        [_, record] = await proxy.sink.wait(2)
        assert record.outcome == "success"


async def test_stop_closes_idle_connections(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with stoppable(tmp_path / "p", upstream, grace=0.1) as (proxy, stop, serving):
        stored, fresh, half = [await connected(proxy) for _ in range(3)]
        stored.writer.write(request_bytes())
        await stored.answer()
        half.writer.write(request_bytes()[:40])
        stop.set()

        for client in (stored, fresh, half):
            assert await client.reader.read() == b""
            client.writer.close()
        await serving


async def test_busy_client_does_not_delay_stop(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with stoppable(tmp_path / "p", upstream, grace=0.1) as (proxy, stop, serving):
        client, served = await connected(proxy), 0
        head = b""
        while b"connection: close" not in head.lower():
            client.writer.write(request_bytes())
            head, _ = await client.answer()
            assert head.startswith(b"HTTP/1.1 200")
            served += 1
            if served == 3:
                stop.set()
            await asyncio.sleep(0)
        client.writer.close()
        await serving


async def test_unfinished_call_is_cancelled_and_cleaned_up() -> None:
    calls, values = Calls(), []

    async def call() -> None:
        task = calls.add_task(asyncio.current_task())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            values.append("last words")
            raise
        finally:
            calls.remove_task(task)

    async with asyncio.TaskGroup() as group:
        served = group.create_task(call())
        await asyncio.sleep(0)
        await calls.drain(0)

    assert served.cancelled()
    assert values == ["last words"]
