"""An answer in the client's dialect: chunks in OpenAI's form go in, bytes for the wire come out."""

from __future__ import annotations

from typing import Protocol

import orjson

from proxy.dialects import sse
from proxy.dialects.base import Client
from proxy.types import Call, Chunk, Json


class AnswerWriter(Protocol):
    """Feed it chunks; it gives bytes as soon as there is something to send."""

    @property
    def media_type(self) -> str: ...

    def feed(self, chunk: Chunk) -> bytes: ...


def _bare_usage(data: Json) -> bool:
    return data.get("choices") == [] and data.get("usage") is not None


class EventWriter:
    """A stream. Untouched chunks pass as they came, bare usage only to whom it was promised."""

    __slots__ = ("_done", "_event", "_wants_usage")
    media_type = "text/event-stream; charset=utf-8"

    def __init__(self, client: Client, *, wants_usage: bool) -> None:
        self._event = client.event
        self._done = client.done
        self._wants_usage = wants_usage

    def feed(self, chunk: Chunk) -> bytes:
        said = b"" if chunk.data is None else self._said(chunk.data, chunk.raw)
        return said + sse.event(sse.DONE) if chunk.last and self._done else said

    def _said(self, data: Json, raw: bytes | None) -> bytes:
        if not self._wants_usage and _bare_usage(data):
            return b""
        if self._event is not None:
            reworded = self._event(data)
            raw = raw if reworded is data else None
            data = reworded
        return sse.event(raw if raw is not None and b"\n" not in raw else orjson.dumps(data))


class WholeWriter:
    """One document, written once the last leg is in."""

    __slots__ = ("_call", "_client", "_parts")
    media_type = "application/json"

    def __init__(self, client: Client, call: Call) -> None:
        self._client = client
        self._call = call
        self._parts: dict[int, Json] = {}

    def feed(self, chunk: Chunk) -> bytes:
        self._parts[chunk.leg] = chunk.data or {}
        if not chunk.last:
            return b""
        if self._client.whole is not None:
            return orjson.dumps(self._client.whole(self._call, self._parts))
        return chunk.raw if chunk.raw is not None else orjson.dumps(chunk.data)
