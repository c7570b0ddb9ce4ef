"""An upstream's answer, read into OpenAI's form however its bytes were cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import orjson

from proxy.dialects import hub, sse
from proxy.dialects.base import Server
from proxy.errors import UpstreamInvalid, UpstreamUnavailable
from proxy.types import Chunk, Endpoint, Json

MAX_EVENT_BYTES = 8 * 1024 * 1024
Turn = Callable[[Json], Json | None]


class AnswerReader(Protocol):
    """Feed it bytes; it gives the chunks they complete. ``close`` tells it that no more come.

    Chunks come one by one, so what was good before a fault is given before the fault is raised,
    however the bytes were cut.
    """

    def feed(self, piece: bytes) -> Iterator[Chunk]: ...

    def close(self) -> Iterator[Chunk]: ...


def turning(came: Endpoint, goes: Endpoint, *, streamed: bool) -> Turn | None:
    """Give what turns a target's answer into the form of the client's endpoint, if need be."""
    if came == "completions" and goes == "chat":
        return hub.ChatToLegacy().feed
    if came == "chat" and goes == "completions":
        return hub.LegacyToChat(streamed=streamed).feed
    return None


def _parsed(payload: bytes) -> Json:
    try:
        data = orjson.loads(payload)
    except orjson.JSONDecodeError:
        raise UpstreamInvalid("The upstream sent something that is not JSON.") from None
    if not isinstance(data, dict):
        raise UpstreamInvalid("The upstream sent JSON that is not an object.")
    if data.get("error") and not data.get("choices"):
        raise UpstreamUnavailable("The upstream reported an error instead of an answer.")
    return data


def _finishes(choices: Any) -> bool:
    return isinstance(choices, list) and any(
        isinstance(choice, dict) and choice.get("finish_reason") is not None for choice in choices
    )


class StreamReader:
    """A stream of events. It ends with ``[DONE]``, or with its bytes once a choice has finished;
    any other end is a stream that was cut."""

    __slots__ = ("_done", "_events", "_finished", "_leg", "_turn")

    def __init__(self, leg: int, turn: Turn | None) -> None:
        self._events = sse.EventReader(MAX_EVENT_BYTES)
        self._leg = leg
        self._turn = turn
        self._finished = False
        self._done = False

    def feed(self, piece: bytes) -> Iterator[Chunk]:
        return self._chunks(self._events.feed(piece))

    def close(self) -> Iterator[Chunk]:
        yield from self._chunks(self._events.close())
        if self._done:
            return
        if not self._finished:
            raise UpstreamInvalid("The upstream ended its stream before the answer was whole.")
        yield Chunk(None, leg=self._leg, last=True)

    def _chunks(self, payloads: list[bytes]) -> Iterator[Chunk]:
        for payload in payloads:
            if self._done:
                return
            if payload == sse.DONE:
                self._done = True
                yield Chunk(None, leg=self._leg, last=True)
                return
            data = _parsed(payload)
            self._finished = self._finished or _finishes(data.get("choices"))
            if self._turn is None:
                yield Chunk(data, payload, self._leg)
            elif (turned := self._turn(data)) is not None:
                yield Chunk(turned, leg=self._leg)


class WholeReader:
    """One document, which must be an answer: choices, or vectors for embeddings.

    ``stream`` gives it as the events of a stream, for an upstream that cannot stream.
    """

    __slots__ = ("_leg", "_limit", "_pieces", "_size", "_stream", "_to_hub", "_turn", "_wants")

    def __init__(
        self,
        leg: int,
        turn: Turn | None,
        server: Server,
        *,
        wants: str,
        stream: bool,
        limit: int,
    ) -> None:
        self._leg = leg
        self._turn = turn
        self._to_hub = server.to_hub
        self._wants = wants
        self._stream = stream
        self._limit = limit
        self._size = 0
        self._pieces: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[Chunk]:
        self._size += len(piece)
        if self._size > self._limit:
            raise UpstreamInvalid("The upstream sent an answer that is too large.")
        self._pieces.append(piece)
        return iter(())

    def close(self) -> Iterator[Chunk]:
        raw: bytes | None = b"".join(self._pieces)
        data = _parsed(raw or b"")
        if not isinstance(data.get(self._wants), list):
            raise UpstreamInvalid(f"The upstream sent an answer without {self._wants}.")
        if self._to_hub is not None:
            data, raw = self._to_hub(data), None
        if self._turn is not None:
            data, raw = self._turn(data) or data, None
        if not self._stream:
            yield Chunk(data, raw, self._leg, last=True)
            return
        for event in hub.as_stream(data):
            yield Chunk(event, leg=self._leg)
        yield Chunk(None, leg=self._leg, last=True)
