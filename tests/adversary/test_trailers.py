"""What comes behind the last chunk of a request is part of no other request on its connection."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest

from tests.conftest import KEY, Proxy
from tests.doubles import ScriptedUpstream, piece
from tests.test_pipeline import ROUTES

ROUTE = ROUTES["openai"]
BODY = json.dumps(ROUTE.body(streamed=False)).encode()
CREDENTIAL = f"Authorization: Bearer {KEY}"
CHUNKED = "Transfer-Encoding: chunked"
LENGTH = f"Content-Length: {len(BODY)}"
TRAILERS = {
    "a credential": f"{CREDENTIAL}\r\n",
    "a credential of another dialect": f"a: b\r\nx-portkey-api-key: {KEY}\r\n",
    "a deployment": "x-headrace-deployment: resilient\r\n",
    "an id": "x-request-id: smuggled\r\n",
    "none": "",
}
FIRST_DOCUMENT = {
    "served": (ROUTE.path, CREDENTIAL, 200),
    "unknown": ("/nowhere", CREDENTIAL, 404),
    "without a key": (ROUTE.path, "a: b", 401),
}


def request(path: str, credential: str, framing: str, body: bytes) -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: x", credential, "Content-Type: application/json")
    return "\r\n".join((*lines, framing, "", "")).encode() + body


async def exchanged(proxy: Proxy, first_data: bytes, second: bytes, *, at_once: bool) -> bytes:
    reader, writer = await proxy.connect()
    async with asyncio.timeout(10):
        writer.write(first_data + second if at_once else first_data)
        answers = await reader.readuntil(b"\r\n\r\n")
        if not at_once:
            writer.write(second)
        with suppress(ConnectionError):  # the second request found the connection closed
            answers += await reader.read()
    writer.close()
    return answers


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("kind", FIRST_DOCUMENT)
@pytest.mark.parametrize("trailers", TRAILERS)
async def test_no_trailer_is_a_header_of_the_next_request(
    trailers: str, kind: str, at_once: bool, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    """The parser hands the last trailer to the next message, so there is none."""
    path, credential, status = FIRST_DOCUMENT[kind]
    end = f"0\r\n{TRAILERS[trailers]}\r\n".encode()
    first_data = request(path, credential, CHUNKED, piece(BODY) + end)
    second = request(ROUTE.path, "c: d", LENGTH, BODY)  # it has no credential of its own

    answers = await exchanged(proxy, first_data, second, at_once=at_once)

    assert answers.startswith(b"HTTP/1.1 %d" % status)
    assert answers.count(b"HTTP/1.1") == 1
    assert b"\r\nconnection: close\r\n" in answers.lower()
    assert len(upstream.requests) == (status == 200)
