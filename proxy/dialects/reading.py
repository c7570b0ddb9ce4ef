"""An upstream's answer, read into OpenAI's form however its bytes were cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import orjson

from proxy.dialects import hub, sse
from proxy.dialects.base import Client, Dialect, Server
from proxy.dialects.logprobs import LegacyLogprobs
from proxy.dialects.pieces import MOST_DEPTH
from proxy.dialects.statuses import ErrorBody, meaning_of_event, parse_error
from proxy.dialects.strict import check_values
from proxy.errors import (
    AnswerTooLarge,
    BadRequest,
    ProxyError,
    UpstreamDenied,
    UpstreamForbids,
    UpstreamInvalid,
    UpstreamRefused,
    UpstreamRejectedKey,
    UpstreamUnavailable,
)
from proxy.types import Call, Chunk, Endpoint, Json

MAX_EVENT_BYTES = 8 * 1024 * 1024
MOST_VALUES = 1_000_000  # of an answer but for vectors: 20 log-probabilities of 8,000 tokens
DEEPER = "abcdefgh"  # so many levels may be put around an answer on its way to a client
Turn = Callable[[Json], Json | None]


class AnswerReader(Protocol):
    """Feed it bytes; it gives the chunks they complete. ``close`` tells it that no more come.

    Chunks come one by one, so what was good before a fault is given before the fault is raised,
    however the bytes were cut.
    """

    def feed(self, piece: bytes) -> Iterator[Chunk]: ...

    def close(self) -> Iterator[Chunk]: ...


def turning(call: Call, goes: Endpoint, client: Dialect, upstream: Dialect) -> Turn | None:
    """Return what turns a target's answer into the form of the client's endpoint, if need be."""
    turn = _turning(call, goes, client.client)
    words = upstream.server.finishes
    return hub.FinishWords(words, turn).feed if words and client is not upstream else turn


def _turning(call: Call, goes: Endpoint, client: Client) -> Turn | None:
    came, streamed = call.door.endpoint, call.stream
    if came == "completions" and goes == "chat":
        return hub.ChatToLegacy().feed
    if came == "chat" and goes == "completions":
        return hub.LegacyToChat(streamed=streamed).feed
    counts = came == "completions" and call.body.get("logprobs") is not None
    return LegacyLogprobs().feed if counts and not client.reads_any_logprobs else None


def _parsed(payload: bytes, server: Server, *, vectors: bool = False) -> Json:
    """Return a document that is no error. Raises the error that it says, and ``UpstreamInvalid``
    for what is no object, too deep, or of too many values where it has no ``vectors``."""
    if not vectors:
        _check_values(payload)
    try:
        data = orjson.loads(payload)
    except orjson.JSONDecodeError:
        raise UpstreamInvalid("The upstream sent something that is not JSON.") from None
    _check_depth(payload, data)
    if not isinstance(data, dict):
        raise UpstreamInvalid("The upstream sent JSON that is not an object.")
    if data.get("error") and not data.get("choices"):
        error = parse_error(data)
        reported = _reported(error, server)
        reported.findings = error.findings
        raise reported
    return data


def _check_values(payload: bytes) -> None:
    if len(payload) <= MOST_VALUES:  # a value has a byte at the least
        return
    try:
        check_values(payload, MOST_VALUES)
    except BadRequest:
        raise AnswerTooLarge("The upstream sent an answer of too many values.") from None


def _check_depth(payload: bytes, data: object) -> None:
    """Raise ``UpstreamInvalid`` for what could not be written again, turned and kept as it may be
    by then."""
    if payload.count(b"[") + payload.count(b"{") <= MOST_DEPTH - len(DEEPER):
        return
    for name in DEEPER:
        data = {name: data}
    try:
        orjson.dumps(data)
    except TypeError:
        raise UpstreamInvalid("The upstream sent JSON that is nested too deeply.") from None


def _reported(error: ErrorBody, server: Server) -> ProxyError:
    """Return the error that stands in place of an answer. Of its words only short ones pass."""
    status = error.status
    meaning = meaning_of_event(server.statuses, server.denials, error)
    if meaning == "denied":
        return UpstreamDenied("A guard of the upstream denied the call.", upstream_status=status)
    if meaning == "credential":
        return UpstreamRejectedKey("The upstream refused the proxy's key.", upstream_status=status)
    if meaning == "forbidden":
        text = "The upstream does not permit this to the proxy's key."
        return UpstreamForbids(text, upstream_status=status).worded(error.code, error.type)
    if meaning == "request":
        text = "The upstream reported that the request is at fault."
        refused = UpstreamRefused(text, upstream_status=status or 400)
        return refused.worded(error.code, error.type)
    return UpstreamUnavailable(
        "The upstream reported an error instead of an answer.",
        status=status if status in (429, 503) else 502,
        upstream_status=status,
    ).worded(error.code, error.type)


class StreamReader:
    """A stream of events. It ends with ``[DONE]``, or with its bytes once a choice has finished;
    any other end is a stream that was cut."""

    __slots__ = ("_done", "_events", "_finished", "_leg", "_server", "_turn")

    def __init__(self, leg: int, turn: Turn | None, server: Server) -> None:
        self._events = sse.EventReader(MAX_EVENT_BYTES)
        self._leg = leg
        self._turn = turn
        self._server = server
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
            data = _parsed(payload, self._server)
            self._finished = self._finished or hub.finishes(data)
            if self._turn is None:
                yield Chunk(data, payload, self._leg)
            elif (turned := self._turn(data)) is not None:
                yield Chunk(turned, payload if turned is data else None, self._leg)


class WholeReader:
    """One document, which must be an answer: choices, or vectors for embeddings.

    ``stream`` gives it as the events of a stream, for an upstream that cannot stream.
    """

    __slots__ = (
        "_leg",
        "_limit",
        "_raw",
        "_server",
        "_stream",
        "_turn",
        "_wants",
    )

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
        self._server = server
        self._wants = wants
        self._stream = stream
        self._limit = limit
        self._raw = bytearray()  # a list of pieces could take many times their bytes

    def feed(self, piece: bytes) -> Iterator[Chunk]:
        if len(self._raw) + len(piece) > self._limit:
            raise AnswerTooLarge("The upstream sent an answer that is too large.")
        self._raw += piece
        return iter(())

    def close(self) -> Iterator[Chunk]:
        raw: bytes | None = bytes(self._raw)
        data = _parsed(raw or b"", self._server, vectors=self._wants == "data")
        if not isinstance(data.get(self._wants), list):
            raise UpstreamInvalid(f"The upstream sent an answer without {self._wants}.")
        if self._server.to_hub is not None:
            data, raw = self._server.to_hub(data), None
        if self._turn is not None and (turned := self._turn(data) or data) is not data:
            data, raw = turned, None
        if not self._stream:
            yield Chunk(data, raw, self._leg, last=True)
            return
        for event in hub.as_stream(data):
            yield Chunk(event, leg=self._leg)
        yield Chunk(None, leg=self._leg, last=True)
