"""Readers that take bytes without waking get the same bytes, timeouts and errors."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.errors import UpstreamTimeout
from proxy.types import Timeouts
from proxy.upstream.client import HttpClient, HttpReply
from tests.doubles import (
    PATIENCE_S,
    TRUST,
    ReceivedRequest,
    ScriptedUpstream,
    Wire,
    http_chunk,
    scripted_upstream,
)
from tests.upstream.wire.test_connection import PATIENT, STREAM

END = b"0\r\n\r\n"


class Taker:
    """Takes bytes, and is woken by those that contain one of its words."""

    def __init__(self, *words: bytes) -> None:
        self.words = words
        self.taken: list[bytes] = []
        self._more = asyncio.Event()

    async def wait_for_bytes(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.taken) < count:
                self._more.clear()
                await self._more.wait()

    def __call__(self, data: bytes) -> bool:
        self.taken.append(data)
        self._more.set()
        return not any(word in data for word in self.words)


class Paced:
    """An upstream whose body is sent piece by piece by the test."""

    def __init__(self, *, ends: bool = True) -> None:
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.ends = ends

    async def __call__(self, request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(STREAM)
        while (data := await self.pieces.get()) is not None:
            await wire.send(data)
        if self.ends:
            await wire.send(END)
        else:
            wire.cut()

    def say(self, *data: bytes | None) -> None:
        for item in data:
            self.pieces.put_nowait(item)


async def opened(http: HttpClient, url: str, timeouts: Timeouts = PATIENT) -> HttpReply:
    return await http.request(url, {}, b"", timeouts)


async def test_late_reader_finds_data(http: HttpClient, upstream: ScriptedUpstream) -> None:
    body, taker = Paced(), Taker(b"wake")
    upstream.answer_with(body)
    async with await opened(http, upstream.url) as reply:
        reading = asyncio.ensure_future(reply.read(taker))
        body.say(http_chunk(b"a"))
        await taker.wait_for_bytes(1)
        body.say(http_chunk(b"wake"))
        await taker.wait_for_bytes(2)
        body.say(http_chunk(b"after"))

        assert await reading is None
        assert await reply.read() == b"after"  # no other reader got it
    assert taker.taken == [b"a", b"wake"]


async def test_taking_resets_idle_timer(http: HttpClient, upstream: ScriptedUpstream) -> None:
    body, taker = Paced(), Taker()
    upstream.answer_with(body)
    times = Timeouts(connect=1, first_byte=5, idle=0.3, total=5)
    loop = asyncio.get_running_loop()
    async with await opened(http, upstream.url, times) as reply:
        reading = asyncio.ensure_future(reply.read(taker))
        for number in range(4):
            await asyncio.sleep(0.15)
            body.say(http_chunk(b"x"))
            await taker.wait_for_bytes(number + 1)
        last_at = loop.time()
        with pytest.raises(UpstreamTimeout) as timeout_error:
            await reading

    assert timeout_error.value.code == "upstream_idle_timeout"
    assert loop.time() - last_at >= 0.29


async def test_total_timeout_bounds_taking(http: HttpClient, upstream: ScriptedUpstream) -> None:
    body, taker = Paced(), Taker()
    upstream.answer_with(body)
    times = Timeouts(connect=1, first_byte=5, idle=5, total=0.3)
    async with await opened(http, upstream.url, times) as reply:
        reading = asyncio.ensure_future(reply.read(taker))
        body.say(http_chunk(b"x"))
        with pytest.raises(UpstreamTimeout) as timeout_error:
            await reading

    assert timeout_error.value.code == "upstream_total_timeout"
    assert taker.taken == [b"x"]


async def test_error_in_taking_is_raised(http: HttpClient, upstream: ScriptedUpstream) -> None:
    def broken(data: bytes) -> bool:
        raise KeyError(data)

    body = Paced()
    upstream.answer_with(body)
    async with await opened(http, upstream.url) as reply:
        reading = asyncio.ensure_future(reply.read(broken))
        body.say(http_chunk(b"x"))
        with pytest.raises(KeyError, match="x"):
            await reading


async def test_next_response_is_independent(http: HttpClient, upstream: ScriptedUpstream) -> None:
    first_paced, second, taker = Paced(), Paced(), Taker(b"wake")
    upstream.then(first_paced, second)
    async with await opened(http, upstream.url) as reply:
        reading = asyncio.ensure_future(reply.read(taker))
        first_paced.say(http_chunk(b"wake"))
        await taker.wait_for_bytes(1)
        reading.cancel()
        await asyncio.wait([reading])
        first_paced.say(None)
        assert await reply.read() == b""
    second.say(http_chunk(b"b"), None)
    async with await opened(http, upstream.url) as reply:
        assert await reply.read() == b"b"

    assert upstream.connections == 1
    assert taker.taken == [b"wake"]


@given(
    data=st.lists(st.binary(min_size=1, max_size=30), min_size=1, max_size=8),
    cuts=st.lists(st.integers(1, 400), max_size=12),
    wakes=st.sets(st.integers(0, 255), max_size=40),
)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
async def test_any_cut_gives_same_body(data: list[bytes], cuts: list[int], wakes: set[int]) -> None:
    body_bytes = b"".join(map(http_chunk, data)) + END
    ends = sorted({min(cut, len(body_bytes)) for cut in cuts} | {len(body_bytes)})
    parts = [body_bytes[index:end] for index, end in zip([0, *ends[:-1]], ends, strict=True)]

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(STREAM)
        for part in parts:
            await wire.send(part)
            await asyncio.sleep(0)

    read: list[bytes] = []

    def take(taken_items: bytes) -> bool:
        read.append(taken_items)
        return taken_items[0] not in wakes

    async with scripted_upstream() as upstream, HttpClient(TRUST) as client:
        upstream.answer_with(script)
        async with await opened(client, upstream.url) as reply:
            while (response := await reply.read(take)) != b"":
                read.append(response or b"")

    assert b"".join(read) == b"".join(data)
