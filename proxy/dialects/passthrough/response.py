"""Passthrough responses: JSON is read as one document, everything else passes in pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import orjson

from proxy.dialects.document import NON_OBJECT_MEMBER, DocumentUsage, make_document_frame
from proxy.dialects.frames.reader import MAX_EVENT_BYTES
from proxy.dialects.wire import sse
from proxy.dialects.wire.strict_json import (
    Document,
    DocumentBuffer,
    DocumentParser,
    as_object,
    as_objects,
)
from proxy.errors import ResponseTooLarge
from proxy.money.usage import Tokens
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.types import Json, PassthroughHead
from proxy.types.events import Event, Frame, Unmapped, UsageReport

FindUsage = Callable[[Json], Tokens | None]
"""Returns the tokens that a document reports, None if it reports none."""
MAX_FRAME_BYTES = 64 * 1024
EVENT_STREAM_TYPE = "text/event-stream"
DEFAULT_TYPE = "application/octet-stream"
MAX_HEADER_LENGTH = 256
_USAGE = b'"usage'  # also finds Gemini's ``usageMetadata``


def parse_passthrough_head(
    status: int, headers: Mapping[str, str], max_json_bytes: int
) -> PassthroughHead:
    """Return the head of a response for the client.

    ``parses_json`` is True for an empty body, and for JSON whose ``content-length`` is missing or
    at most ``max_json_bytes``.
    """
    header = headers.get("content-type", "")
    is_valid = header.isascii() and header.isprintable() and len(header) <= MAX_HEADER_LENGTH
    media_type = header.partition(";")[0].strip().lower()
    size = headers.get("content-length", "")
    length = int(size) if size.isdecimal() else None
    is_empty = status == 204 or length == 0
    is_json = media_type.startswith("application/") and media_type.endswith(("/json", "+json"))
    is_short = length is None or length <= max_json_bytes
    return PassthroughHead(
        status=status,
        media_type=header if is_valid and header else DEFAULT_TYPE,
        length=length,
        parses_json=is_empty or (is_json and is_short),
    )


def make_nosniff_and_disposition_headers(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the headers for the client: ``nosniff``, and a valid ``content-disposition``."""
    name = headers.get("content-disposition", "")
    nosniff = ("x-content-type-options", "nosniff")
    if not name or len(name) > MAX_HEADER_LENGTH or not (name.isascii() and name.isprintable()):
        return (nosniff,)
    return (nosniff, ("content-disposition", name))


class PassthroughByteReader:
    """Reads bytes that pass unchanged. ``find_usage`` gets the usage in server-sent events."""

    buffers_whole_body: ClassVar[bool] = False

    def __init__(self, model_call: int, media_type: str, find_usage: FindUsage) -> None:
        self._model_call = model_call
        self._find_usage = find_usage
        is_stream = media_type.partition(";")[0].strip().lower() == EVENT_STREAM_TYPE
        self._events = sse.EventReader(MAX_EVENT_BYTES) if is_stream else None

    def feed(self, piece: bytes) -> Sequence[Document]:
        size = MAX_FRAME_BYTES
        return [piece[start : start + size] for start in range(0, len(piece), size)]

    def close(self) -> Sequence[Document]:
        return ()

    def read(self, document: Document) -> Sequence[Frame]:
        piece = bytes(document)
        events: list[Event] = [Unmapped()]
        usage = self._read_last_usage(piece)
        tokens = self._find_usage(usage) if usage else None
        if tokens is not None:
            events.append(UsageReport(tokens, usage))
        return (Frame(tuple(events), raw=piece, model_call=self._model_call),)

    def end(self) -> Sequence[Frame]:
        return (Frame((), model_call=self._model_call, last=True),)

    def pop_frames_before_error(self) -> Sequence[Frame]:
        return ()

    def _read_last_usage(self, piece: bytes) -> Json:
        if self._events is None:
            return {}
        try:
            events = self._events.feed(piece)
        except ResponseTooLarge:
            self._events = None  # the response passes, and its usage is not read
            return {}
        usage: Json = {}
        for event in events:
            if _USAGE in event:
                usage = _read_event_usage(event) or usage
        return usage


def _read_event_usage(event: bytes) -> Json:
    try:
        data = as_object(orjson.loads(event))
    except ValueError:
        return {}
    for holder in as_objects([data, data.get("response"), data.get("delta")]):
        for name in ("usage", "usageMetadata"):
            if usage := as_object(holder.get(name)):
                return {name: usage}
    return {}


class PassthroughDocumentReader:
    """Reads one JSON document of at most ``limit`` bytes. ``find_usage`` gets the document."""

    buffers_whole_body: ClassVar[bool] = True

    def __init__(
        self, model_call: int, documents: DocumentParser, limit: int, find_usage: FindUsage
    ) -> None:
        self._model_call = model_call
        self._documents = documents
        self._find_usage = find_usage
        body = DocumentBuffer(limit)
        self.feed, self.close, self._pop_document = body.feed, body.close, body.pop_document

    def read(self, document: Document) -> Sequence[Frame]:
        raw = self._pop_document(document)
        first_byte = raw[:LARGE_BYTES].lstrip()[:1]
        if not first_byte:
            return (Frame((), model_call=self._model_call, last=True),)
        is_object = first_byte == b"{"
        wrapped = raw if is_object else b'{"%b":%b}' % (NON_OBJECT_MEMBER.encode(), raw)
        doc = self._documents.read(wrapped)
        tokens = self._find_usage(doc)
        usage = DocumentUsage() if tokens is None else DocumentUsage(UsageReport(tokens, doc))
        frame = make_document_frame(doc, raw, usage, model_call=self._model_call)
        return (frame._replace(size=len(raw) if len(raw) > LARGE_BYTES else 0),)

    def end(self) -> Sequence[Frame]:
        return ()

    def pop_frames_before_error(self) -> Sequence[Frame]:
        return ()
