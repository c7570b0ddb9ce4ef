"""An answer in the client's dialect: chunks in OpenAI's form go in, bytes for the wire come out.

What guards in shadow said is not for clients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from proxy.dialects import hub, sse
from proxy.dialects.base import AnswerWriter, Client, ErrorResponse, ok
from proxy.dialects.families import FAMILIES
from proxy.dialects.family import WriteOptions
from proxy.dialects.findings import DETECTIONS, HOOKS, is_flagged
from proxy.dialects.pieces import dump
from proxy.dialects.switched import client_family
from proxy.errors import ProxyError
from proxy.types import AnswerPiece, Call, Chunk, Head, Json, Untouched
from proxy.types.events import Extension, Frame, UsageReport
from proxy.types.guard import Verdicts

Judged = Callable[[], Verdicts]
_END = sse.event(sse.DONE)


def nobody() -> Verdicts:
    return ()


def answer_status(
    client: Client, verdicts: Verdicts, *, flagged: bool, data: Json | None = None
) -> int:
    """Return the status of an answer that passes; of a stream, by what is known at its beginning.
    ``data`` is its first document, in which guards of the upstream may say what they found."""
    if client.status is ok:
        return 200
    flagged = flagged or (data is not None and is_flagged(data))
    return client.status(_shown(verdicts), flagged=flagged)


def refusal(
    client: Client, error: ProxyError, request_id: str, verdicts: Verdicts
) -> ErrorResponse:
    """Return an error in the client's own form, with the verdicts of guards where it has words for
    them."""
    response = client.refuse(error, request_id)
    shown = _shown(verdicts)
    if client.add_verdicts is None or not (shown or error.findings):
        return response
    return replace(response, body=client.add_verdicts(response.body, shown, error.findings))


def _shown(verdicts: Verdicts) -> Verdicts:
    return [(stage, result) for stage, result in verdicts if not result.shadow]


def first_document(piece: AnswerPiece) -> Json | None:
    """Return the members of a chunk or a frame that decide on the head of a response: findings of
    upstream guards, and usage."""
    if type(piece) is not Frame:
        document: Json | None = piece.data
        return document
    members: Json = {}
    for event in piece.events:
        if type(event) is Extension:
            members[event.name] = event.value
        elif type(event) is UsageReport and event.tokens is not None:
            members["usage"] = {"prompt_tokens": event.tokens.prompt_total}
    return members


def has_content(piece: AnswerPiece) -> bool:
    """Return True if a chunk or a frame is not a keep-alive."""
    if type(piece) is Frame:
        return piece.last or bool(piece.events) or piece.doc is not None
    return piece.last or piece.data is not None


def _bare_usage(data: Json) -> bool:
    return data.get("choices") == [] and data.get("usage") is not None


def _interim(data: Json) -> bool:
    """True if a chunk says what was used so far: clients add such counts up, the meter does not."""
    return isinstance(data["usage"], dict) and "interim" in data["usage"]


def answer_writer(client: Client, call: Call, head: Head, verdicts: Judged) -> AnswerWriter:
    """Return the writer of a client's answer: as a stream, as a whole, or as it was passed on."""
    if head.passed is not None:
        from proxy.dialects.passed_answer import PassedWriter  # noqa: PLC0415  # few calls are such

        return PassedWriter(head.passed)
    if head.frames:
        family = FAMILIES[client_family(call)]
        return family.writer(WriteOptions(call, not head.streamed, verdicts))
    if not head.streamed:
        return WholeWriter(client, call, verdicts)
    if client.events is not None:
        return client.events(call)
    return EventWriter(client, wants_usage=call.wants_usage, verdicts=verdicts)


class EventWriter:
    """A stream. Untouched chunks pass as they came, bare usage only to whom it was promised."""

    __slots__ = ("_done", "_tell", "_theirs", "_verdicts", "_wants_usage")
    media_type = "text/event-stream; charset=utf-8"

    def __init__(self, client: Client, *, wants_usage: bool, verdicts: Judged = nobody) -> None:
        self._tell = client.add_verdicts if client.streams_verdicts else None
        self._done = client.done
        self._theirs: Json = {}  # what guards of the upstream have said so far
        self._wants_usage = wants_usage
        self._verdicts = verdicts

    def weight(self, chunk: Chunk) -> int:
        return chunk.size

    def feed(self, chunk: Chunk) -> bytes:
        data, raw = chunk.data, chunk.raw
        if data is None:
            event = b"" if chunk.last else sse.KEEPALIVE
        elif "usage" in data and (not self._wants_usage or _interim(data)) and _bare_usage(data):
            event = b""
        elif self._tell is None and raw is not None and b"\n" not in raw:
            event = b"data: " + raw + b"\n\n"  # as ``sse.event``
        else:
            event = self._event(data, raw, chunk.size)
        return event + _END if chunk.last and self._done else event

    def fail(self, document: bytes) -> bytes:
        return sse.event(document)

    def _event(self, data: Json, raw: bytes | None, size: int) -> bytes:
        if self._tell is not None:
            self._theirs |= {name: data[name] for name in (DETECTIONS, HOOKS) if name in data}
            if hub.finishes(data):
                data = {**data, **self._theirs}
                raw, data = None, self._tell(data, _shown(self._verdicts()), ())
        return sse.event(raw if raw is not None and b"\n" not in raw else dump(data, size))


class WholeWriter:
    """One document, written once the last leg is in."""

    __slots__ = ("_call", "_client", "_parts", "_size", "_verdicts")
    media_type = "application/json"

    def __init__(self, client: Client, call: Call, verdicts: Judged = nobody) -> None:
        self._client = client
        self._call = call
        self._parts: dict[int, Json] = {}
        self._size = 0
        self._verdicts = verdicts

    def weight(self, chunk: Chunk) -> int:
        return self._size + chunk.size if chunk.last else 0

    def feed(self, chunk: Chunk) -> bytes:
        self._size += chunk.size
        self._parts[chunk.leg] = data = chunk.data or {}
        if not chunk.last:
            return b""
        client = self._client
        if isinstance(chunk.raw, Untouched):
            return chunk.raw
        whole = data if client.whole is None else client.whole(self._call, self._parts)
        if client.add_verdicts is not None:
            whole = client.add_verdicts(whole, _shown(self._verdicts()), ())
        return chunk.raw if whole is data and chunk.raw is not None else dump(whole, self._size)

    def fail(self, document: bytes) -> bytes:
        return b""
