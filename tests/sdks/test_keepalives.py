"""SDKs read streams with keepalives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Proxy, policies_for, running_proxy
from tests.doubles import (
    PATIENCE_S,
    ReceivedRequest,
    ScriptedUpstream,
    Wire,
    event,
    head,
    http_chunk,
)
from tests.sdks.conftest import Drive
from tests.sdks.test_frameworks import CLIENTS
from tests.sdks.upstream_scripts import APIS
from tests.server.test_keepalive import EVENTS, SILENCE_S

KEEPALIVES = (b": keep-alive\n\n", b"event: keepalive\n", b"event: ping\n")
CHAT = {"messages": [{"role": "user", "content": "Where?"}]}
RESPONSES = {"input": "Where?"}
HELPERS: list[tuple[str, str, dict[str, Any]]] = [
    *((sdk, "chat-stream", CHAT) for sdk in ("openai", "openai-async")),
    *((sdk, "respond-stream", RESPONSES) for sdk in ("openai", "openai-async")),
    *((sdk, "stream", {**CHAT, "max_tokens": 9}) for sdk in ("anthropic", "anthropic-async")),
]
STEPS: list[tuple[str, dict[str, Any]]] = [
    *((sdk, {"do": do, "with": body}) for sdk, do, body in HELPERS),
    *((client, {"do": "ask", "stream": True}) for client in CLIENTS),
]
HEAD_EVENTS = {"chat": 1, "responses": 2, "messages": 1}


class Tap:
    """A TCP proxy that counts the keepalives of one response."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._seen = b""
        self._changed = asyncio.Condition()

    async def keepalives(self, count: int) -> None:
        """Wait until the client received ``count`` keepalives."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: sum(map(self._seen.count, KEEPALIVES)) >= count)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        context, out = await asyncio.open_connection("127.0.0.1", self._port)
        with suppress(OSError):
            await asyncio.gather(
                self._carry(reader, out), self._carry(context, writer, counts=True)
            )

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counts: bool = False
    ) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                if counts:
                    async with self._changed:
                        self._seen += data
                        self._changed.notify_all()
        finally:
            writer.close()


@asynccontextmanager
async def tapped(proxy: Proxy) -> AsyncIterator[tuple[Tap, str]]:
    tap = Tap(int(proxy.url.rpartition(":")[2]))
    server = await asyncio.start_server(tap.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield tap, f"http://{host}:{port}"
    finally:
        server.close()


@pytest.mark.parametrize("to", APIS)
@pytest.mark.parametrize(("sdk", "step"), STEPS)
async def test_client_reads_a_stream_with_keepalives(
    sdk: str,
    step: dict[str, Any],
    to: str,
    drive: Drive,
    upstream: ScriptedUpstream,
    tmp_path: Path,
) -> None:
    api = APIS[to]
    events, end = EVENTS[api], [event(b"[DONE]")] if api == "chat" else []
    first_item, remainder = events[: HEAD_EVENTS[api]], events[HEAD_EVENTS[api] :]
    by_name = {"to": to} if step["do"] == "ask" else {"with": {**step.get("with", {}), "model": to}}
    policies = policies_for(upstream.url)
    async with (
        running_proxy(tmp_path / "policies", policies, keepalive_seconds=SILENCE_S) as proxy,
        tapped(proxy) as (tap, url),
    ):

        async def script(request: ReceivedRequest, wire: Wire) -> None:
            await tap.keepalives(2)
            await wire.send(head(200, "text/event-stream", "transfer-encoding: chunked"))
            await wire.send(*(http_chunk(event(document)) for document in first_item))
            await tap.keepalives(4)
            await wire.send(*map(http_chunk, [*map(event, remainder), *end]), b"0\r\n\r\n")

        upstream.answer_with(script)
        [result] = await drive(sdk, {**step, **by_name}, key=proxy.key, url=url)

    assert result["ok"], result["message"]
    assert result["text"] == "It is Paris."
