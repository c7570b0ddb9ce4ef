"""A provider that answers at once: ``python -m bench.upstream PORT``."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import cast

import uvloop

CHUNKS = 50


def _document() -> bytes:
    text = "Paris is the capital of France. " * 20
    message = {"role": "assistant", "content": text}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "gpt-4o-mini",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 200, "completion_tokens": 160, "total_tokens": 360},
    }
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n"
    return head.encode() + b"\r\n" + data


def _chunk(choices: list[dict[str, object]], **more: object) -> bytes:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o-mini"}
    data = b"data: " + json.dumps({**head, "choices": choices, **more}).encode() + b"\n\n"
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _stream() -> list[bytes]:
    said = {"index": 0, "delta": {"content": " word"}, "finish_reason": None}
    usage = {"prompt_tokens": 200, "completion_tokens": CHUNKS, "total_tokens": 200 + CHUNKS}
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    done = b"data: [DONE]\n\n"
    return [
        head + b"\r\n",
        *[_chunk([said]) for _ in range(CHUNKS)],
        _chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}]),
        _chunk([], usage=usage),
        f"{len(done):x}\r\n".encode() + done + b"\r\n0\r\n\r\n",
    ]


DOCUMENT, STREAM = _document(), _stream()


class Provider(asyncio.Protocol):
    """Answers each request on a connection; requests come one after the other."""

    transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, end, body = self.buffer.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(body) < length:
            return
        self.buffer = b""
        if b'"stream":true' in body:
            self._next(0)
        else:
            self.transport.write(DOCUMENT)

    def _next(self, number: int) -> None:
        """Write one chunk a millisecond, so that each is a read of its own."""
        if self.transport.is_closing():
            return
        self.transport.write(STREAM[number])
        if number + 1 < len(STREAM):
            asyncio.get_running_loop().call_later(0.001, self._next, number + 1)


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Provider, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
