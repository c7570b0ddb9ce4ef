"""Streams for pairs of API families, with and without an output guard, for ``bench.instructions``.

Client, proxy and upstream share this process and one event loop, and the upstream writes a chunk
only after the previous one was read. The same bytes are also sent without a proxy and through the
bare relay, so that a case can be stated as a multiple of the relay.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from bench import bodies, relay, upstream
from bench.policies import digest
from bench.processes import free_port, listens
from bench.upstream import EVENTS
from proxy import app
from proxy.settings import Address, Settings

Json = dict[str, Any]
Writes = Sequence[bytes]
Region = Callable[[], AbstractContextManager[object]]
"""Returns a context manager around one measured stream."""
WARM_UP_STREAMS = 3
MODEL = "m"
REQUESTS: dict[str, tuple[str, Json]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "p"}]}),
    "messages": (
        "/v1/messages",
        {"messages": [{"role": "user", "content": "p"}], "max_tokens": 256},
    ),
    "responses": ("/v1/responses", {"input": "p"}),
}
TARGETS = {
    "chat": "upstream: openai, endpoint: chat",
    "messages": "upstream: anthropic",
    "responses": "upstream: openai, endpoint: responses",
}
GUARDS = "output: [{guard: keywords, words: [hydropolis, aquacorp], action: mask}], opaque: allow"
POLICIES = """
upstreams:
  openai: {{dialect: openai, base_url: 'http://127.0.0.1:{port}/v1'}}
  anthropic: {{dialect: anthropic, base_url: 'http://127.0.0.1:{port}'}}
keys: {{bench: {{sha256: {digest}, deployments: [streams]}}}}
deployments: {{streams: {{targets: [{{{target}, model: m}}], policy: house}}}}
policies: {{house: {{match: all, {rules}}}}}
"""


@dataclass(frozen=True)
class Case:
    """The API family of the client and of the upstream, and what stands between them."""

    client: str
    upstream: str
    guarded: bool = False
    proxy: Literal["headrace", "relay", "none"] = "headrace"


DIRECT, RELAY = "direct", "relay"
CASES = {
    DIRECT: Case("chat", "chat", proxy="none"),
    RELAY: Case("chat", "chat", proxy="relay"),
    "chat": Case("chat", "chat"),
    "chat, guarded": Case("chat", "chat", guarded=True),
    "Messages on chat": Case("messages", "chat"),
    "Responses on chat": Case("responses", "chat"),
    "Messages": Case("messages", "messages"),
    "Messages, guarded": Case("messages", "messages", guarded=True),
    "Responses, guarded": Case("responses", "responses", guarded=True),
}


async def run(case: Case, chunks: int, streams: int, region: Region) -> None:
    """Read ``streams`` streams of ``chunks`` chunks, each in a ``region``, after a warm-up."""
    writes = WRITES[case.upstream](_words(chunks))
    server = await asyncio.start_server(partial(_serve, writes), "127.0.0.1", 0)
    async with server, _running(case, server.sockets[0].getsockname()[1]) as port:
        for _ in range(WARM_UP_STREAMS):
            await _read_stream(case.client, port)
        for _ in range(streams):
            with region():
                await _read_stream(case.client, port)
        await _wait_for_reader()  # the upstream closes its connections


@asynccontextmanager
async def _running(case: Case, upstream_port: int) -> AsyncIterator[int]:
    """Run what stands between client and upstream and yield the port for the client."""
    if case.proxy == "none":
        yield upstream_port
    elif case.proxy == "relay":
        port = free_port()
        task = asyncio.create_task(relay.main(port, f"http://127.0.0.1:{upstream_port}"))
        while not await listens(port):
            await asyncio.sleep(0)
        yield port
        task.cancel()
        await asyncio.wait([task])
    else:
        rules = GUARDS if case.guarded else "cache: {off: true}"
        policies = POLICIES.format(
            port=upstream_port, digest=digest(bodies.KEY), target=TARGETS[case.upstream],
            rules=rules,
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as log:  # noqa: ASYNC230
            (Path(folder) / "policy.yaml").write_text(policies)
            listen = Address("127.0.0.1", 0)
            settings = Settings(Path(folder), listen=listen, admin=listen)
            async with app.run_proxy(settings, log_fd=log.fileno()) as running:
                yield running.listen.port


async def _serve(
    writes: Writes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer each request of a connection with the same writes."""
    while head := await _read_head(reader):
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
        for data in writes:
            writer.write(data)
            await _wait_for_reader()
    writer.close()


async def _wait_for_reader() -> None:
    """Run the event loop twice: the socket becomes readable, then it is read."""
    for _ in range(2):
        await asyncio.sleep(0)


async def _read_head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


async def _read_stream(client: str, port: int) -> None:
    """Read one stream to its end. Raises ``AssertionError`` for an error response."""
    path, request = REQUESTS[client]
    body = json.dumps({"model": MODEL, "stream": True, **request}, separators=(",", ":")).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(bodies.head(path, len(body), {}) + body)
    answer = await reader.readuntil(b"\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200"), answer
    assert b"error" not in answer.partition(b"\r\n\r\n")[2].replace(b'"error":null', b""), answer
    writer.close()


def _words(count: int) -> list[str]:
    words = bodies.prose(8 * count).split()
    return [f" {words[index % len(words)]}" for index in range(count)]


def _chat(words: Sequence[str]) -> Writes:
    return upstream.stream(len(words))


def _messages(words: Sequence[str]) -> Writes:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": []}
    usage = {"input_tokens": 200, "output_tokens": 1}
    stop = {"stop_reason": "end_turn", "stop_sequence": None}
    block: Json = {"index": 0}
    start = {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}
    deltas = [{"type": "text_delta", "text": word} for word in words]
    return _writes(
        [
            {"type": "message_start", "message": start},
            {"type": "content_block_start", **block, "content_block": {"type": "text", "text": ""}},
            *({"type": "content_block_delta", **block, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", **block},
            {"type": "message_delta", "delta": stop, "usage": {"output_tokens": len(words)}},
            {"type": "message_stop"},
        ]
    )


def _responses(words: Sequence[str]) -> Writes:
    text = "".join(words)
    output: Json = {"output_index": 0}
    location: Json = {"item_id": "msg_1", **output, "content_index": 0}
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant"}
    done_item = {**item, "content": [part]}
    document = {"id": "resp_1", "object": "response", "created_at": 1_700_000_000, "model": MODEL}
    document |= {"status": "completed", "error": None, "output": [done_item]}
    usage = {"input_tokens": 200, "output_tokens": len(words), "total_tokens": 200 + len(words)}
    created = {**document, "status": "in_progress", "output": [], "usage": None}
    kind = "response.output_text"
    events: list[Json] = [
        {"type": "response.created", "response": created},
        {
            "type": "response.output_item.added",
            **output,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **location, "part": {**part, "text": ""}},
        *({"type": f"{kind}.delta", **location, "delta": word, "logprobs": []} for word in words),
        {"type": f"{kind}.done", **location, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **location, "part": part},
        {"type": "response.output_item.done", **output, "item": done_item},
        {"type": "response.completed", "response": {**document, "usage": usage}},
    ]
    return _writes([{**event, "sequence_number": number} for number, event in enumerate(events)])


def _writes(events: Sequence[Json]) -> Writes:
    return [EVENTS, *_http_chunks(events), b"0\r\n\r\n"]


def _http_chunks(events: Sequence[Json]) -> Iterator[bytes]:
    for event in events:
        data = b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode())
        yield b"%x\r\n%b\r\n" % (len(data), data)


WRITES: dict[str, Callable[[Sequence[str]], Writes]] = {
    "chat": _chat,
    "messages": _messages,
    "responses": _responses,
}
