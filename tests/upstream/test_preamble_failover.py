"""A stream that fails after its preamble is served by another attempt, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession

from proxy.call.summary import summarize
from tests.conftest import Proxy, policies_for, running_proxy
from tests.doubles import (
    Json,
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
    response,
    response_events,
    stream,
    text_events,
    text_item,
)
from tests.server.test_keepalive import EVENTS, REQUESTS, SILENCE_S, Stream

SERVED = b"Instead."
PREAMBLES = {"chat": 1, "messages": 3, "responses": 4}
"""How many events come before the first text."""
ERROR: Json = {"error": {"type": "overloaded_error", "message": "overloaded"}}
ERRORS: dict[str, Json] = {
    "chat": ERROR,
    "messages": {"type": "error", **ERROR},
    "responses": {"type": "error", "code": "server_error", "message": "overloaded"},
}
TARGETS = {
    "chat": "upstream: openai, endpoint: chat",
    "messages": "upstream: anthropic",
    "responses": "upstream: openai, endpoint: responses",
}
INSTEAD = text_item(SERVED.decode())
FALLBACKS = {
    "chat": chat_events(SERVED.decode()),
    "messages": message_events(text_events(0, SERVED.decode())),
    "responses": response_events(
        item_events(0, INSTEAD, SERVED.decode()), document=response(INSTEAD)
    ),
}
families = pytest.mark.parametrize("family", [*PREAMBLES])


def fails_after(family: str, count: int) -> Script:
    return stream([*EVENTS[family][:count], ERRORS[family]], is_done=False)


def held_open(family: str, count: int, gate: asyncio.Event) -> Script:
    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(head(200, "text/event-stream", "transfer-encoding: chunked"))
        for item in EVENTS[family][:count]:
            await wire.send(http_chunk(event(item)))
        await gate.wait()
        await wire.send(http_chunk(event(ERRORS[family])), b"0\r\n\r\n")

    return script


@asynccontextmanager
async def serving(
    folder: Path, upstream: ScriptedUpstream, family: str, extra: str = "", keepalive_s: float = 0.0
) -> AsyncIterator[tuple[Proxy, ClientSession]]:
    target = TARGETS[family]
    policies = policies_for(upstream.url).replace("[support-chat, ", "[twice, support-chat, ")
    policies += f"  twice:\n    targets: [{{{target}, model: primary}}]\n"
    policies += extra or f"    fallback: [{{{target}, model: spare}}]\n"
    async with running_proxy(folder / "policies", policies, keepalive_seconds=keepalive_s) as proxy:
        yield proxy, proxy.client


@asynccontextmanager
async def start_call(client: ClientSession, family: str) -> AsyncIterator[Stream]:
    path, _, body, headers = REQUESTS[family]
    headers = {**headers, "x-headrace-deployment": "twice"}
    async with client.post(path, headers=headers, json={**body, "stream": True}) as response:
        yield Stream(response)


@dataclass
class FailoverCall:
    """A streamed call with a fallback: its response, its bytes, and its record."""

    response: aiohttp.ClientResponse
    raw: bytes
    record: Any


async def make_call(
    family: str,
    folder: Path,
    upstream: ScriptedUpstream,
    extra: str = "",
    *,
    gate: asyncio.Event | None = None,
    keepalives: int = 0,
    **scripts: Script,
) -> FailoverCall:
    """Send a call. The gate opens after ``keepalives`` of them."""
    seconds = SILENCE_S if keepalives else 0.0
    async with serving(folder, upstream, family, extra, seconds) as (proxy, client):
        upstream.by_model = scripts
        async with start_call(client, family) as answered:
            if keepalives:
                await answered.read_until(b"\n\n", keepalives)
                assert starts(family, answered.raw) == 0
                assert gate is not None
                gate.set()
            raw = await answered.read_rest()
        if gate is not None:
            gate.set()
        [record] = await proxy.sink.wait()
    return FailoverCall(answered.response, raw, record)


def is_replaced(family: str, call: FailoverCall) -> bool:
    return SERVED in call.raw and b"overloaded" not in call.raw and starts(family, call.raw) == 1


def starts(family: str, raw: bytes) -> int:
    marks = {"chat": b'"role"', "messages": b"message_start\n", "responses": b"response.created\n"}
    return raw.count(marks[family])


@families
async def test_failure_after_the_preamble_falls_back(
    family: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    primary, spare = fails_after(family, PREAMBLES[family]), stream(FALLBACKS[family])
    call = await make_call(family, tmp_path, upstream, primary=primary, spare=spare)

    assert is_replaced(family, call)
    attempts = [(attempt.reason, attempt.error is None) for attempt in call.record.attempts]
    assert attempts == [("first", False), ("fallback", True)]
    losses, used = summarize(call.record).attempts
    assert (losses.result.served, used.result.served) == (False, True)
    assert losses.bill is not None
    assert losses.bill.usage.source == "partial_estimate"
    assert losses.bill.usage.tokens.input > 0


@families
async def test_failure_after_text_is_not_retried(
    family: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    primary = fails_after(family, PREAMBLES[family] + 1)
    call = await make_call(family, tmp_path, upstream, primary=primary)

    assert b"It is " in call.raw
    assert b"overloaded" in call.raw
    assert call.record.outcome == "upstream_error"
    assert len(upstream.requests) == 1


async def test_hedge_wins_after_a_preamble(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    family = "messages"
    extra = f"    hedge: {{after: 10ms}}\n    fallback: [{{{TARGETS[family]}, model: spare}}]\n"
    gate = asyncio.Event()
    primary, spare = held_open(family, PREAMBLES[family], gate), stream(FALLBACKS[family])
    call = await make_call(
        family, tmp_path, upstream, extra, gate=gate, primary=primary, spare=spare
    )

    assert is_replaced(family, call)
    assert [attempt.lost_hedge for attempt in call.record.attempts] == [True, False]
    assert [attempt.reason for attempt in call.record.attempts] == ["first", "hedge"]


@families
@pytest.mark.parametrize("falls_back", [True, False])
async def test_keepalives_precede_the_preamble(
    falls_back: bool, family: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    gate = asyncio.Event()
    primary = held_open(family, PREAMBLES[family], gate)
    spare = fails_after(family, PREAMBLES[family])
    call = await make_call(
        *(family, tmp_path, upstream),
        gate=gate,
        keepalives=2,
        primary=primary,
        spare=stream(FALLBACKS[family]) if falls_back else spare,
    )

    assert call.response.status == 200
    assert is_replaced(family, call) is falls_back
    assert (b"overloaded" in call.raw) is not falls_back
    assert starts(family, call.raw) == falls_back
    assert (call.record.outcome == "success") is falls_back
