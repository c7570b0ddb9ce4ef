"""The end of a stream is what was sent and taken, not who closed first."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.conftest import KEY, Proxy
from tests.doubles import Asked, Script, ScriptedUpstream, Wire, event, head, legacy_events, piece
from tests.test_pipeline import ROUTES

ROUTE = ROUTES["openai"]
BODY = json.dumps(ROUTE.body(streamed=True))
REQUEST = (
    f"POST {ROUTE.path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
    f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}"
)


def lingering(gate: asyncio.Event, *, is_done: bool) -> Script:
    """A whole stream, whose connection says nothing of its own end before the gate opens."""

    async def script(request: Asked, wire: Wire) -> None:
        await wire.send(head(200, "text/event-stream", "transfer-encoding: chunked"))
        events = [event(data) for data in legacy_events(" Par", "is.")]
        for data in (*events, event(b"[DONE]")) if is_done else events:
            await wire.send(piece(data))
        await gate.wait()
        await wire.send(b"0\r\n\r\n")

    return script


@pytest.mark.parametrize(
    ("is_done", "read_to", "outcome"),
    [(True, b"data: [DONE]\n\n", "success"), (False, b"finish_reason", "client_abort")],
)
async def test_a_client_that_has_all_and_leaves_has_not_left_early(
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
