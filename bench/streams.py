"""Streams whose chunks are counted, for pairs of API families with and without an output guard.

Client, proxy and upstream run in this process and in one event loop. The upstream sends a chunk
after the proxy has read the one before. ``bench.calls`` counts the functions that a chunk runs, and
``bench.instructions`` the instructions of the processor.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench import bodies, upstream
from bench.policies import digest
from bench.upstream import EVENTS
from proxy import app
from proxy.settings import Address, Settings

Json = dict[str, Any]
Writes = Sequence[bytes]
Counting = Callable[[], AbstractContextManager[object]]
"""Counts what runs inside of the block that it returns."""
WARM = 3  # streams
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
    """The family of the client and of the upstream."""

    client: str
    upstream: str
    guarded: bool = False


CASES = {
    "a chunk: chat": Case("chat", "chat"),
    "a chunk: chat, guarded": Case("chat", "chat", guarded=True),
    "a chunk: Messages on chat": Case("messages", "chat"),
    "a chunk: Responses on chat": Case("responses", "chat"),
    "a chunk: Messages": Case("messages", "messages"),
    "a chunk: Messages, guarded": Case("messages", "messages", guarded=True),
    "a chunk: Responses, guarded": Case("responses", "responses", guarded=True),
}


async def run(case: Case, chunks: int, streams: int, counting: Counting) -> None:
    """Have ``streams`` streams of so many chunks relayed and counted, after ``WARM`` others."""
    writes = WRITES[case.upstream](_words(chunks))
    server = await asyncio.start_server(partial(_serve, writes), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory() as name, open(os.devnull, "w") as log:  # noqa: ASYNC230
        rules = GUARDS if case.guarded else "cache: {off: true}"
        target = TARGETS[case.upstream]
        policies = POLICIES.format(port=port, digest=digest(bodies.KEY), target=target, rules=rules)
        (Path(name) / "p.yaml").write_text(policies)
        listen = Address("127.0.0.1", 0)
        settings = Settings(Path(name), listen=listen, admin=listen)
        async with server, app.running(settings, log_fd=log.fileno()) as running:
            for _ in range(WARM):
                await _ask(case.client, running.listen.port)
            with counting():
                for _ in range(streams):
                    await _ask(case.client, running.listen.port)
        await _turns()  # in which the upstream sees that its connections are closed


async def _serve(
    writes: Writes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer each request of a connection with the same writes."""
    while head := await _head(reader):
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
        for data in writes:
            writer.write(data)
            await _turns()
    writer.close()


async def _turns() -> None:
    """Let the event loop turn twice: once to see bytes, once to read them."""
    for _ in range(2):
        await asyncio.sleep(0)


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


async def _ask(client: str, port: int) -> None:
    """Read one stream to its end. Raises ``AssertionError`` for any other answer."""
    path, request = REQUESTS[client]
    body = json.dumps({"model": MODEL, "stream": True, **request}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(bodies.head(path, len(body), {}) + body)
    answer = await reader.readuntil(b"\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200"), answer
    assert b"error" not in answer.partition(b"\r\n\r\n")[2].replace(b'"error":null', b""), answer
    writer.close()


def _words(count: int) -> list[str]:
    words = bodies.prose(8 * count).split()
    return [f" {words[at % len(words)]}" for at in range(count)]


def _chat(words: Sequence[str]) -> Writes:
    return upstream.stream(len(words))


def _messages(words: Sequence[str]) -> Writes:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": []}
    usage = {"input_tokens": 200, "output_tokens": 1}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    where: Json = {"index": 0}
    begun = {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}
    deltas = [{"type": "text_delta", "text": word} for word in words]
    return _writes(
        [
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", **where, "content_block": {"type": "text", "text": ""}},
            *({"type": "content_block_delta", **where, "delta": delta} for delta in deltas),
            {"type": "content_block_stop", **where},
            {"type": "message_delta", "delta": ended, "usage": {"output_tokens": len(words)}},
            {"type": "message_stop"},
        ]
    )


def _responses(words: Sequence[str]) -> Writes:
    text = "".join(words)
    where: Json = {"output_index": 0}
    place: Json = {"item_id": "msg_1", **where, "content_index": 0}
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant"}
    done = {**item, "content": [part]}
    whole = {"id": "resp_1", "object": "response", "created_at": 1_700_000_000, "model": MODEL}
    whole |= {"status": "completed", "error": None, "output": [done]}
    usage = {"input_tokens": 200, "output_tokens": len(words), "total_tokens": 200 + len(words)}
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    kind = "response.output_text"
    events: list[Json] = [
        {"type": "response.created", "response": begun},
        {
            "type": "response.output_item.added",
            **where,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *({"type": f"{kind}.delta", **place, "delta": word, "logprobs": []} for word in words),
        {"type": f"{kind}.done", **place, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", **where, "item": done},
        {"type": "response.completed", "response": {**whole, "usage": usage}},
    ]
    return _writes([{**event, "sequence_number": at} for at, event in enumerate(events)])


def _writes(events: Sequence[Json]) -> Writes:
    return [EVENTS, *_pieces(events), b"0\r\n\r\n"]


def _pieces(events: Sequence[Json]) -> Iterator[bytes]:
    for event in events:
        data = b"event: %b\ndata: %b\n\n" % (event["type"].encode(), json.dumps(event).encode())
        yield b"%x\r\n%b\r\n" % (len(data), data)


WRITES: dict[str, Callable[[Sequence[str]], Writes]] = {
    "chat": _chat,
    "messages": _messages,
    "responses": _responses,
}
