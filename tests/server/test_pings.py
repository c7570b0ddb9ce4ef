"""Streams of upstreams that send pings get keepalives of the client's own API."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import ClientSession

from tests.conftest import policies_for, running_proxy
from tests.doubles import ReceivedRequest, Script, ScriptedUpstream, Wire, event, head, http_chunk
from tests.server.test_keepalive import (
    EVENTS,
    FIRST_KEEPALIVES,
    GUARD,
    KEEPALIVES,
    REQUESTS,
    SILENCE_S,
    UP_TO_TEXT,
    Stream,
    keeping_alive,
    start_stream,
)

CHAT_TARGET, RESPONSES_TARGET, MESSAGES_TARGET = "search-answers", "support-chat", "via-anthropic"
UPSTREAM_APIS = {CHAT_TARGET: "chat", RESPONSES_TARGET: "responses", MESSAGES_TARGET: "messages"}
ROUTES = [
    ("chat", CHAT_TARGET),
    ("messages", MESSAGES_TARGET),
    ("responses", RESPONSES_TARGET),
    ("chat", MESSAGES_TARGET),
    ("messages", CHAT_TARGET),
    ("responses", CHAT_TARGET),
    ("responses", MESSAGES_TARGET),
]
GUARDS = {
    "none": "",
    "mask": GUARD.format("hippo", ", action: mask"),
    "block": GUARD.format("hippo", ""),
    "whole": "policies: {default: {output: [{guard: length, characters: 1000, action: block}]}}",
}
SECRET = b"a comment of the upstream"
PINGS = {
    "chat": b": " + SECRET + b"\n\n",
    "responses": b": " + SECRET + b"\n\n",
    "messages": event({"type": "ping", "note": SECRET.decode()}),
}
FIRST_EVENTS = {"chat": 1, "responses": 2, "messages": 1}


def pinging(api: str, gate: asyncio.Event, *, first_count: int, every_s: float) -> Script:
    """Send the first events, then pings until the gate opens, then the rest."""
    events = EVENTS[api]
    end = [event(b"[DONE]")] if api == "chat" else []

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(head(200, "text/event-stream", "transfer-encoding: chunked"))
        await wire.send(*(http_chunk(event(document)) for document in events[:first_count]))
        while not gate.is_set():
            await wire.send(http_chunk(PINGS[api]))
            await asyncio.wait([opened], timeout=every_s)
        remainder = [*map(event, events[first_count:]), *end]
        await wire.send(*map(http_chunk, remainder), b"0\r\n\r\n")

    opened = asyncio.ensure_future(gate.wait())
    return script


@pytest.mark.parametrize("begins", ["pings", "first events"])
@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize(("family", "target"), ROUTES)
async def test_client_gets_keepalives_while_the_upstream_pings(
    family: str, target: str, guard: str, begins: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    api, gate = UPSTREAM_APIS[target], asyncio.Event()
    started = UP_TO_TEXT if guard == "none" else FIRST_EVENTS
    first_count = started[api] if begins == "first events" else 0
    shows_first = first_count and guard == "none"
    keepalive = (KEEPALIVES if shows_first else FIRST_KEEPALIVES)[family]
    upstream.answer_with(pinging(api, gate, first_count=first_count, every_s=SILENCE_S / 8))

    async with (
        keeping_alive(tmp_path, upstream, GUARDS[guard]) as (proxy, client),
        start_stream(client, family, target) as stream,
    ):
        await stream.read_until(keepalive, 2)
        gate.set()
        raw = await stream.read_rest()
        [record] = await proxy.sink.wait()

    assert b"Paris." in raw
    assert SECRET not in raw
    assert record.outcome == "success"


async def test_ping_is_forwarded_before_the_first_event(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """Of two concurrent streams, the one whose upstream sends pings gets bytes first."""
    silence_s, gate = 0.8, asyncio.Event()
    upstream.by_model["smol"] = pinging("chat", gate, first_count=0, every_s=silence_s / 10)
    upstream.by_model["first"] = pinging("chat", gate, first_count=0, every_s=60)

    async def first_byte(client: ClientSession, target: str) -> str:
        async with start_stream(client, "chat", target) as stream:
            await stream.read_until(KEEPALIVES["chat"])
        return target

    async with (
        running_proxy(
            tmp_path / "policies", policies_for(upstream.url), keepalive_seconds=silence_s
        ) as proxy,
        asyncio.TaskGroup() as tasks,
    ):
        calls = [
            tasks.create_task(first_byte(proxy.client, name)) for name in ("compare", CHAT_TARGET)
        ]
        order = [await future for future in asyncio.as_completed(calls)]
        gate.set()

    assert order == [CHAT_TARGET, "compare"]


async def test_early_ping_keeps_status_open(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async def script(request: ReceivedRequest, wire: Wire) -> None:
        events = EVENTS["messages"]
        await wire.send(head(200, "text/event-stream", "transfer-encoding: chunked"))
        await wire.send(http_chunk(event(events[0])), http_chunk(PINGS["messages"]))
        await wire.send(*(http_chunk(event(document)) for document in events[1:]), b"0\r\n\r\n")

    upstream.answer_with(script)
    policies = f"{policies_for(upstream.url)}\n{GUARD.format('It', '')}"
    path, target, body, headers = REQUESTS["messages"]
    async with (
        running_proxy(tmp_path / "policies", policies, keepalive_seconds=30) as proxy,
        proxy.client.post(
            path,
            headers={**headers, "x-headrace-deployment": target},
            json={**body, "stream": True},
        ) as reply,
    ):
        raw = await Stream(reply).read_rest()

    assert (reply.status, reply.content_type) == (400, "application/json"), raw
