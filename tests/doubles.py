"""A scripted upstream on a real socket, and the documents and events of each API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from proxy.upstream.wire.dialing import load_system_context

Json = dict[str, Any]
TRUST = load_system_context()
"""The system's certificates, read once for all tests of a process."""
PATIENCE_S = 30.0
"""How long a test waits for what comes at once: on a busy machine that may be seconds later."""


@dataclass
class ReceivedRequest:
    """A request that an upstream received. ``closed`` is set when its connection closes."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Wire:
    """Sends the bytes of a scripted response."""

    writer: asyncio.StreamWriter
    keep: bool = True

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
        await self.writer.drain()

    def cut(self) -> None:
        """Reset the connection."""
        self.keep = False
        self.writer.transport.abort()


Script = Callable[[ReceivedRequest, Wire], Awaitable[None]]


def head(status: int, media_type: str, *extra: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"content-type: {media_type}", *extra, "", ""]
    return "\r\n".join(lines).encode()


def respond(
    body: Any, status: int = 200, *extra: str, media_type: str = "application/json"
) -> Script:
    """Respond with one whole document."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        length = f"content-length: {len(data)}"
        await wire.send(head(status, media_type, length, *extra) + data)

    return script


def http_chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def event(data: Any) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def stream(
    events: Iterable[Any],
    *,
    is_done: bool = True,
    cut_after: int | None = None,
    gate: asyncio.Event | None = None,
    gate_after: int = 1,
) -> Script:
    """Stream events; ``cut_after`` resets the connection after so many, ``gate`` makes it wait
    after the first ``gate_after`` until the test allows more."""
    sent_items = list(events)

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(head(200, "text/event-stream", "transfer-encoding: chunked"))
        for number, item in enumerate(sent_items):
            if number == cut_after:
                wire.cut()
                return
            await wire.send(http_chunk(event(item)))
            if number + 1 == gate_after and gate is not None:
                await gate.wait()
        await wire.send(http_chunk(event(b"[DONE]")) if is_done else b"", b"0\r\n\r\n")

    return script


def cut_before_head() -> Script:
    async def script(request: ReceivedRequest, wire: Wire) -> None:
        wire.cut()

    return script


def gated(gate: asyncio.Event, script: Script) -> Script:
    """Return a script that sends nothing until the gate opens."""

    async def wait(request: ReceivedRequest, wire: Wire) -> None:
        await gate.wait()
        await script(request, wire)

    return wait


def hang(*pieces: bytes) -> Script:
    """Send some bytes, then hang until the other side disconnects."""

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(*pieces)
        await request.closed.wait()

    return script


def sends(*pieces: bytes) -> Script:
    """Send raw bytes."""

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        for data in pieces:
            await wire.send(data)

    return script


def closes(*pieces: bytes) -> Script:
    """Send raw bytes and close the connection."""

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        wire.keep = False
        await wire.send(*pieces)

    return script


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter, asyncio.Event], Awaitable[None]]


class DisconnectProtocol(asyncio.StreamReaderProtocol):
    """A stream protocol that records when the other side disconnects.

    ``transports`` has its transport while it is connected.
    """

    def __init__(self, serve: Serve, transports: set[asyncio.WriteTransport]) -> None:
        self.left = asyncio.Event()
        self._transports = transports
        self._own: asyncio.WriteTransport | None = None
        super().__init__(asyncio.StreamReader(), lambda r, w: serve(r, w, self.left))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._own = cast(asyncio.WriteTransport, transport)
        self._transports.add(self._own)
        super().connection_made(transport)

    def eof_received(self) -> bool | None:
        self.left.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.left.set()
        if self._own is not None:
            self._transports.discard(self._own)
        super().connection_lost(exc)


class ScriptedUpstream:
    """A provider over a real socket that does as the test says, request by request.

    ``answer_with`` sets what every request gets; ``by_model`` what those for one model get;
    ``then`` queues scripts for the next requests.
    """

    def __init__(self) -> None:
        self.connections = 0
        self.transports: set[asyncio.WriteTransport] = set()
        self.url = ""
        self.start_case()

    def start_case(self) -> None:
        self.requests: list[ReceivedRequest] = []
        self.arrived = asyncio.Event()
        self.by_model: dict[str, Script] = {}
        self._always: Script = respond(legacy_completion())
        self._next: list[Script] = []

    def answer_with(self, script: Script) -> None:
        self._always = script

    def then(self, *scripts: Script) -> None:
        self._next.extend(scripts)

    def protocol(self) -> DisconnectProtocol:
        return DisconnectProtocol(self.connected, self.transports)

    async def connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, remaining: asyncio.Event
    ) -> None:
        self.connections += 1
        wire = Wire(writer)
        try:
            while wire.keep:
                request = await self._read(reader, remaining)
                self.requests.append(request)
                self.arrived.set()
                await self._script(request)(request, wire)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _script(self, request: ReceivedRequest) -> Script:
        if self._next:
            return self._next.pop(0)
        model = request.json.get("model") if request.body else None
        return self.by_model.get(str(model), self._always)

    async def _read(
        self, reader: asyncio.StreamReader, remaining: asyncio.Event
    ) -> ReceivedRequest:
        raw = await reader.readuntil(b"\r\n\r\n")
        first_text, *lines = raw.decode("latin-1").split("\r\n")[:-2]
        method, path, _ = first_text.split(" ")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return ReceivedRequest(method, path, headers, body, remaining)


@asynccontextmanager
async def scripted_upstream() -> AsyncIterator[ScriptedUpstream]:
    upstream = ScriptedUpstream()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(upstream.protocol, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    upstream.url = f"http://{host}:{port}"
    try:
        yield upstream
    finally:
        server.close()
        await asyncio.sleep(0)  # a connection that is being accepted gets its transport
        for transport in upstream.transports:
            transport.abort()
        while upstream.transports:  # noqa: ASYNC110  # an open one would fail a later test
            await asyncio.sleep(0)


def usage(prompt: int = 5, completion: int = 3) -> Json:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def legacy_completion(text: str = " Paris.", **options: Any) -> Json:
    """Return a whole legacy completion of OpenAI."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": "stop"}
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1_700_000_000,
        "model": "gpt-4o-mini",
        "choices": [choice],
        "usage": usage(),
        **options,
    }


def chat(text: str = "Paris.", **options: Any) -> Json:
    """Return a whole chat completion of OpenAI."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return {
        **legacy_completion(),
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [choice],
        **options,
    }


def legacy_events(*texts: str, with_usage: bool = True) -> list[Json]:
    """Return the events of a legacy stream, with the bare usage chunk last."""
    base = {k: v for k, v in legacy_completion().items() if k not in ("choices", "usage")}
    fields = [
        {**base, "choices": [{"index": 0, "text": t, "logprobs": None, "finish_reason": None}]}
        for t in texts
    ]
    end = {"index": 0, "text": "", "logprobs": None, "finish_reason": "stop"}
    events = [*fields, {**base, "choices": [end]}]
    return [*events, {**base, "choices": [], "usage": usage()}] if with_usage else events


def chat_events(*texts: str, with_usage: bool = True) -> list[Json]:
    """Return the events of a chat stream: role, texts, end, and bare usage chunk."""
    base = {k: v for k, v in chat().items() if k not in ("choices", "usage")}
    base["object"] = "chat.completion.chunk"

    def chunk_with(delta: Json, finish: str | None = None) -> Json:
        return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    events = [
        chunk_with({"role": "assistant", "content": ""}),
        *(chunk_with({"content": t}) for t in texts),
    ]
    events.append(chunk_with({}, "stop"))
    return [*events, {**base, "choices": [], "usage": usage()}] if with_usage else events


def response(*items: Json, **options: Any) -> Json:
    """Return a whole response of OpenAI's Responses."""
    details = {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
    counts = {"input_tokens": 5, "output_tokens": 3, "total_tokens": 8}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "model": "gpt-4o-mini",
        "output": [*items] or [text_item(" Paris.")],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {**counts, **details, "output_tokens_details": {"reasoning_tokens": 0}},
        **options,
    }


def text_item(text: str, name: str = "msg_1") -> Json:
    """Return a message item of a response."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    head = {"id": name, "type": "message", "status": "completed"}
    return {**head, "role": "assistant", "content": [part]}


def response_events(*items: list[Json], document: Json | None = None) -> list[Json]:
    """Return the numbered events of a streamed response around those of its items."""
    document = document or response()
    started = {**document, "status": "in_progress", "output": [], "usage": None}
    events = [
        {"type": "response.created", "response": started},
        {"type": "response.in_progress", "response": started},
        *(event for item in items for event in item),
        {"type": f"response.{document['status']}", "response": document},
    ]
    return [{**event, "sequence_number": index} for index, event in enumerate(events)]


def item_events(index: int, item: Json, *texts: str) -> list[Json]:
    """Return the events of a message or a tool call whose text is in pieces."""
    started: Json = {**item, "status": "in_progress"}
    where: Json = {"item_id": item["id"], "output_index": index}
    if item["type"] == "function_call":
        started["arguments"] = ""
        kind, member = "response.function_call_arguments", "arguments"
        opened: list[Json] = []
        ended: list[Json] = []
    else:
        started["content"] = []
        where["content_index"] = 0
        kind, member = "response.output_text", "text"
        part = {**item["content"][0], "text": ""}
        opened = [{"type": "response.content_part.added", **where, "part": part}]
        ended = [{"type": "response.content_part.done", **where, "part": item["content"][0]}]
    return [
        {"type": "response.output_item.added", "output_index": index, "item": started},
        *opened,
        *({"type": f"{kind}.delta", **where, "delta": text, "obfuscation": "x"} for text in texts),
        {"type": f"{kind}.done", **where, member: "".join(texts)},
        *ended,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def message(*blocks: Json, **options: Any) -> Json:
    """Return a whole message of Anthropic."""
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-1",
        "content": [*blocks] or [{"type": "text", "text": " Paris."}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 3},
        **options,
    }


def text_events(index: int, *texts: str, **options: Any) -> list[Json]:
    """Return the events of a text block."""
    block = {"type": "text", "text": "", **options}
    values = [{"type": "text_delta", "text": text} for text in texts]
    return block_events(index, block, *values)


def block_events(index: int, block: Json, *deltas: Json) -> list[Json]:
    """Return the events of a block: start, deltas, stop."""
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def message_events(
    *blocks: list[Json], usage: Json | None = None, reason: str = "end_turn"
) -> list[Json]:
    """Return the events of a stream of Anthropic around those of its blocks."""
    started = message(usage={"input_tokens": 5, "output_tokens": 1}, stop_reason=None)
    delta = {"stop_reason": reason, "stop_sequence": None}
    used = {"output_tokens": 3} if usage is None else usage
    return [
        {"type": "message_start", "message": {**started, "content": []}},
        {"type": "ping"},
        *(event for block in blocks for event in block),
        {"type": "message_delta", "delta": delta, "usage": used},
        {"type": "message_stop"},
    ]
