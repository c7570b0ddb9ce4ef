"""A provider that answers at once: ``python -m bench.upstream PORT [CHUNKS GAP_MS ANSWER_BYTES]``.

A stream has so many chunks, one every ``GAP_MS``; any other answer has so many bytes of text.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from typing import cast

import uvloop

from bench.bodies import prose

CHUNKS, GAP_MS, ANSWER_BYTES = 64, 5.0, 650
JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def document(size: int) -> bytes:
    """Return a response whose answer has so many characters."""
    message = {"role": "assistant", "content": prose(size), "refusal": None}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "gpt-4o-mini",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 200, "completion_tokens": 160, "total_tokens": 360},
    }
    data = json.dumps(body).encode()
    return JSON % (len(data), data)


def chunk(choices: list[dict[str, object]], **more: object) -> bytes:
    """Return one event of a stream as it is written."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-mini"}
    data = b"data: " + json.dumps({**head, "choices": choices, **more}).encode() + b"\n\n"
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def stream(chunks: int) -> list[bytes]:
    """Return what is written of a stream, one write after the other."""
    words = prose(8 * chunks).split()
    usage = {"prompt_tokens": 200, "completion_tokens": chunks, "total_tokens": 200 + chunks}
    done = b"data: [DONE]\n\n"
    deltas = [{"content": f" {words[at % len(words)]}"} for at in range(chunks)]
    return [
        EVENTS,
        *[chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas],
        chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}]),
        chunk([], usage=usage),
        f"{len(done):x}\r\n".encode() + done + b"\r\n0\r\n\r\n",
    ]


class Provider(asyncio.Protocol):
    """Answers each request on a connection; requests come one after the other."""

    transport: asyncio.WriteTransport

    def __init__(self, document: bytes, stream: list[bytes], gap_s: float) -> None:
        self.document, self.stream, self.gap_s = document, stream, gap_s
        self.loop = asyncio.get_running_loop()
        self.buffer = bytearray()
        self.length = 0  # of the request; 0 until its head is there

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.length:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.buffer[:end].lower()
            said = head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
            self.length = end + 4 + int(said)
        if len(self.buffer) < self.length:
            return
        streams = b'"stream":true' in self.buffer
        self.buffer.clear()
        self.length = 0
        if streams:
            self._write(0)
        else:
            self.transport.write(self.document)

    def _write(self, number: int) -> None:
        """Write one chunk after the other, each to be a read of its own."""
        if self.transport.is_closing():
            return
        self.transport.write(self.stream[number])
        if number + 1 < len(self.stream):
            self.loop.call_later(self.gap_s, self._write, number + 1)


async def main(port: int, chunks: int, gap_ms: float, size: int) -> None:
    provider = partial(Provider, document(size), stream(chunks), gap_ms / 1000)
    server = await asyncio.get_running_loop().create_server(
        provider, "127.0.0.1", port, backlog=4096
    )
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    told = dict(enumerate(sys.argv))
    chunks, gap_ms = int(told.get(2, CHUNKS)), float(told.get(3, GAP_MS))
    uvloop.run(main(int(sys.argv[1]), chunks, gap_ms, int(told.get(4, ANSWER_BYTES))))
