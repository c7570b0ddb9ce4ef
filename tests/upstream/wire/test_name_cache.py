"""Cache of names: shared lookups in threads, and the last addresses during an outage."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from proxy.errors import UpstreamTimeout
from proxy.types import Timeouts
from proxy.upstream.client import HttpClient
from proxy.upstream.wire.dialing import MAX_LOOKUPS, NAME_TTL_S, DnsCache
from tests.doubles import PATIENCE_S, TRUST, ScriptedUpstream, respond
from tests.for_each import for_each
from tests.servers import eventually
from tests.upstream.wire.test_connection import read_body

UNAVAILABLE = socket.gaierror(socket.EAI_AGAIN, "no answer")
UNKNOWN = socket.gaierror(socket.EAI_NONAME, "no such name")


class Book:
    """A resolver that counts lookups and responds once it is ``open``."""

    def __init__(self, *addresses: str, failure: OSError = UNKNOWN) -> None:
        self.addresses = addresses
        self.failure = failure
        self.asked = 0
        self.now = 100.0
        self.open = threading.Event()
        self.open.set()

    def resolve(self, host: str, port: int, *, type: int) -> list[Any]:
        self.asked += 1
        self.open.wait()
        if not self.addresses:
            raise self.failure
        kind = (socket.AF_INET, type, 6, "")
        return [(*kind, (address, port)) for address in self.addresses for _ in range(2)]

    def names(self, overdue_s: float = 1.0) -> DnsCache:
        return DnsCache(self.resolve, lambda: self.now, overdue_s)


async def test_lookup_is_shared_and_repeated_when_expired() -> None:
    book = Book("127.0.0.1", "127.0.0.2")
    names = book.names()

    count = await asyncio.gather(*(names.resolve_addresses("openai.test", 443) for _ in range(5)))
    assert count == [["127.0.0.1", "127.0.0.2"]] * 5
    assert book.asked == 1

    book.addresses, book.now = ("127.0.0.3",), book.now + NAME_TTL_S
    assert await names.resolve_addresses("openai.test", 443) == ["127.0.0.3"]


@for_each("host", ["127.0.0.1", "::1"])
async def test_ip_address_is_not_looked_up(host: str) -> None:
    book = Book()

    assert await book.names().resolve_addresses(host, 443) == [host]
    assert book.asked == 0


async def test_lookup_continues_after_its_callers_give_up() -> None:
    book = Book("127.0.0.1")
    book.open.clear()
    names = book.names()
    for _ in range(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await names.resolve_addresses("openai.test", 443)

    book.open.set()
    assert await names.resolve_addresses("openai.test", 443) == ["127.0.0.1"]
    assert book.asked == 1


async def test_expired_addresses_are_used_while_the_resolver_fails() -> None:
    book = Book("127.0.0.1", failure=UNAVAILABLE)
    names = book.names()
    await names.resolve_addresses("openai.test", 443)

    book.addresses, book.now = (), book.now + NAME_TTL_S
    for _ in range(5):
        assert await names.resolve_addresses("openai.test", 443) == ["127.0.0.1"]
    assert book.asked == 2  # not repeated at once

    book.addresses, book.now = ("127.0.0.2",), book.now + NAME_TTL_S
    assert await names.resolve_addresses("openai.test", 443) == ["127.0.0.2"]


async def test_expired_addresses_are_used_while_a_lookup_hangs() -> None:
    book = Book("127.0.0.1")
    names = book.names(overdue_s=0.01)
    await names.resolve_addresses("openai.test", 443)

    book.open.clear()
    book.now += NAME_TTL_S
    for _ in range(5):
        assert await names.resolve_addresses("openai.test", 443) == ["127.0.0.1"]
    assert book.asked == 2

    book.addresses = ("127.0.0.2",)
    book.open.set()
    async with asyncio.timeout(PATIENCE_S):
        while await names.resolve_addresses("openai.test", 443) != ["127.0.0.2"]:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_removed_name_is_not_found() -> None:
    book = Book("127.0.0.1")
    names = book.names()
    await names.resolve_addresses("openai.test", 443)

    book.addresses, book.now = (), book.now + NAME_TTL_S
    for _ in range(2):
        with pytest.raises(socket.gaierror):
            await names.resolve_addresses("openai.test", 443)


class Hanging:
    """A system resolver that hangs for all names but one."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.asked: list[str] = []

    def __call__(self, host: str, port: int, *, type: int) -> list[Any]:
        self.asked.append(host)
        if host.startswith("slow"):
            self.over.wait()
            raise UNAVAILABLE
        return socket.getaddrinfo("127.0.0.1", port, type=type)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    system = Hanging()
    yield system
    system.over.set()


async def test_hanging_lookup_blocks_nobody(hanging: Hanging, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(b"ok"))
    port = upstream.url.rpartition(":")[2]
    hasty = Timeouts(connect=0.05, total=1)
    async with HttpClient(TRUST, getaddrinfo=hanging) as http:
        for _ in range(3):
            calls = [
                http.request(f"http://slow{n}.test:{port}/", {}, b"", hasty) for n in range(12)
            ]
            delayed = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(item) for item in delayed} == {UpstreamTimeout}
        patient = Timeouts(connect=5, total=5)
        async with await http.request(f"http://openai.test:{port}/", {}, b"", patient) as reply:
            assert await read_body(reply) == b"ok"

    assert len(hanging.asked) == 13  # each name once


async def test_concurrent_lookups_are_bounded(hanging: Hanging) -> None:
    names = DnsCache(hanging)
    asking = [
        asyncio.create_task(names.resolve_addresses(f"slow{n}", 1)) for n in range(MAX_LOOKUPS + 3)
    ]
    await eventually(lambda: len(hanging.asked) == MAX_LOOKUPS)
    await asyncio.sleep(0.01)
    assert len(hanging.asked) == MAX_LOOKUPS

    hanging.over.set()
    outcomes = await asyncio.gather(*asking, return_exceptions=True)

    assert outcomes == [UNAVAILABLE] * len(asking)
    assert len(hanging.asked) == len(asking)


async def test_call_that_waits_for_a_cancelled_lookup_gets_an_error() -> None:
    book = Book("127.0.0.1")
    book.open.clear()
    names = book.names()
    call = asyncio.create_task(names.resolve_addresses("openai.test", 443))
    await eventually(lambda: book.asked == 1)

    names.cancel_lookups()
    with pytest.raises(OSError, match="closed"):
        await call
    book.open.set()


def test_hanging_lookup_does_not_block_exit() -> None:
    program = """
import asyncio, time
from proxy.upstream.wire.dialing import DnsCache

async def main():
    names = DnsCache(lambda host, port, *, type: time.sleep(600))
    try:
        async with asyncio.timeout(0.05):
            await names.resolve_addresses("openai.test", 443)
    except TimeoutError:
        print("gave up")

asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, check=True
    )

    assert ended.stdout == b"gave up\n"
