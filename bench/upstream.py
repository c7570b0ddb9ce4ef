"""Upstream that responds at once: ``python -m bench.upstream PORT [CHUNKS GAP_MS TEXT_BYTES]``.

A stream has ``CHUNKS`` chunks, one every ``GAP_MS``. Any other response has ``TEXT_BYTES`` of text.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from functools import partial
from typing import cast

import uvloop

from bench.bodies import prose

CHUNKS, GAP_MS = 64, 5.0
JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def document(size: int) -> bytes:
    """Return an HTTP response with ``size`` characters of text."""
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


def chunk(choices: list[dict[str, object]], **fields: object) -> bytes:
    """Return a server-sent event as one HTTP chunk."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-mini"}
    data = b"data: " + json.dumps({**head, "choices": choices, **fields}).encode() + b"\n\n"
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def stream(chunks: int) -> list[bytes]:
    """Return the writes of a streamed HTTP response."""
    words = prose(8 * chunks).split()
    usage = {"prompt_tokens": 200, "completion_tokens": chunks, "total_tokens": 200 + chunks}
    end = b"data: [DONE]\n\n"
    deltas = [{"content": f" {words[index % len(words)]}"} for index in range(chunks)]
    return [
        EVENTS,
        *[chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas],
        chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}]),
        chunk([], usage=usage),
        f"{len(end):x}\r\n".encode() + end + b"\r\n0\r\n\r\n",
    ]


class Provider(asyncio.Protocol):
    """Answers the requests of a connection. It does not support pipelining."""

    transport: asyncio.WriteTransport

    def __init__(self, document: bytes, stream: list[bytes], gap_s: float) -> None:
        self.document, self.stream, self.gap_s = document, stream, gap_s
        self.loop = asyncio.get_running_loop()
        self.buffer = bytearray()
        self.length = 0  # of the request; 0 until its head was read

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.length:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.buffer[:end].lower()
            body_length = head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
            self.length = end + 4 + int(body_length)
        if len(self.buffer) < self.length:
            return
        is_stream = b'"stream":true' in self.buffer
        self.buffer.clear()
        self.length = 0
        if is_stream:
            self._write(0)
        else:
            self.transport.write(self.document)

    def _write(self, index: int) -> None:
        """Write one chunk and schedule the next, so that each is a read of its own."""
        if self.transport.is_closing():
            return
        self.transport.write(self.stream[index])
        if index + 1 < len(self.stream):
            self.loop.call_later(self.gap_s, self._write, index + 1)


async def main(port: int, chunks: int, gap_ms: float, text_bytes: int) -> None:
    provider = partial(Provider, document(text_bytes), stream(chunks), gap_ms / 1000)
    server = await asyncio.get_running_loop().create_server(
        provider, "127.0.0.1", port, backlog=4096
    )
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("chunks", nargs="?", type=int, default=CHUNKS)
    parser.add_argument("gap_ms", nargs="?", type=float, default=GAP_MS)
    parser.add_argument("text_bytes", nargs="?", type=int, default=650)
    uvloop.run(main(**vars(parser.parse_args())))
