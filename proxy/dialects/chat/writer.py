"""Writes frames for clients of chat and of legacy completions, as a stream or as one document.

Both families have nearly the same documents. Those of one are converted for a client of the other,
so that members without an event reach the client too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from proxy.dialects import DIALECTS
from proxy.dialects.base import ClientDialect
from proxy.dialects.chat.chunks import MEMBERS, ChunkMaker
from proxy.dialects.chat.conversion import Converter, converter
from proxy.dialects.chat.merging import choices_of, merged
from proxy.dialects.family import FamilyWriter, WriteOptions
from proxy.dialects.findings import DETECTIONS, HOOKS
from proxy.dialects.wire import sse
from proxy.dialects.wire.large_json import dump
from proxy.types import Json
from proxy.types.events import Delta, Event, Extension, FamilyName, Fault, Finish, Frame, Stop
from proxy.types.guard import GuardResults

END: Final = sse.event(sse.DONE)
KIN: Final[frozenset[FamilyName]] = frozenset(
    {"chat", "completions", "embeddings", "stored", "document"}
)
"""The families whose documents pass, or can be converted into each other."""
SMALL_BYTES = 256
"""Estimated size of a frame without a size."""


def chat_writer(options: WriteOptions, family: FamilyName) -> FamilyWriter:
    """Return the writer for a client of chat, legacy completions, or documents without parts."""
    return (ChatWholeWriter if options.whole else ChatStreamWriter)(options, family)


class _ChatWriter:
    """Documents from frames, and guard results, for streams and whole responses."""

    def __init__(self, options: WriteOptions, family: FamilyName) -> None:
        head = options.call.head
        client = DIALECTS["openai" if options.complete else head.dialect].client
        self.client: ClientDialect = client.endpoints.get(head.endpoint, client)
        self.family = family
        self._options = options
        self._converters: dict[tuple[int, FamilyName], Converter | None] = {}
        self._makers: dict[int, ChunkMaker] = {}
        self._findings: Json = {}  # of guards of the upstream

    def maker(self, frame: Frame) -> ChunkMaker:
        """Return the maker of chunks for the model call of a frame."""
        maker = self._makers.get(frame.model_call)
        if maker is None:
            created = int(self._options.call.head.received_at.timestamp())
            maker = self._makers[frame.model_call] = ChunkMaker(created)
        return maker

    def documents(self, frame: Frame) -> Iterator[Json]:
        """Yield the documents of a frame in the form of the client."""
        maker = self.maker(frame)
        maker.note(frame)
        if frame.family in KIN and frame.doc is not None:
            family, documents = frame.family, [frame.doc]
        else:
            family, documents = "chat", [*maker.chunks(_written_events(frame))]
        key = frame.model_call, family
        if key not in self._converters:
            self._converters[key] = converter(self._options, self.family, family)
        convert = self._converters[key]
        for document in documents:
            converted = document if convert is None else convert(document)
            if converted is not None:
                yield converted

    def guard_results(self) -> GuardResults:
        """Return the results that a client may see, which excludes those of shadow policies."""
        return [result for result in self._options.verdicts() if not result[1].shadow]


class ChatStreamWriter(_ChatWriter):
    """Writes a stream. Unchanged documents are sent as received. A chunk with only usage is sent if
    the client requested it."""

    media_type = "text/event-stream; charset=utf-8"

    def __init__(self, options: WriteOptions, family: FamilyName) -> None:
        super().__init__(options, family)
        client = self.client
        self._add_verdicts = client.add_verdicts if client.streams_verdicts else None
        self._wants_usage = options.complete or options.call.wants_usage
        self._passes_raw = self._add_verdicts is None and converter(options, family, family) is None

    def weight(self, frame: Frame) -> int:
        return frame.size

    def feed(self, frame: Frame) -> bytes:
        doc, raw = frame.doc, frame.raw
        passes = raw is not None and self._passes_raw and frame.family == self.family
        if raw is None or doc is None or not passes or b"\n" in raw:
            event = self._write(frame)
        elif "usage" in doc and self._is_unwanted(doc):
            event = b""
        else:
            event = b"data: " + raw + b"\n\n"
            if len(frame.events) > 1:
                self.maker(frame).note(frame)
        return event + END if frame.last and self.client.done else event

    def fail(self, document: bytes) -> bytes:
        return sse.event(document)

    def _write(self, frame: Frame) -> bytes:
        """Return the events of a frame whose bytes do not pass as received."""
        if frame.doc is None and not frame.events:
            return b"" if frame.last else sse.KEEPALIVE
        if frame.doc is None or frame.family not in KIN:
            document = self._text(frame)
            if document is not None:
                return document
        return b"".join([self._event(document, frame) for document in self.documents(frame)])

    def _text(self, frame: Frame) -> bytes | None:
        """Return the event of a single text of the first choice, on a faster path."""
        if len(frame.events) != 1 or self.family != "chat":
            return None
        [event] = frame.events
        if type(event) is not Delta or event.part.choice or event.part.kind not in MEMBERS:
            return None
        document = self.maker(frame).text(event) if event.text else b""
        return b"data: %b\n\n" % document if document else document

    def _event(self, document: Json, frame: Frame) -> bytes:
        if self._is_unwanted(document):
            return b""
        if self._add_verdicts is not None:
            self._findings |= _findings_of(frame)
            # some servers send an empty finish reason in each chunk
            if any(choice.get("finish_reason") for choice in choices_of(document)):
                document = {**document, **self._findings}
                document = self._add_verdicts(document, self.guard_results(), ())
        return sse.event(dump(document, frame.size))

    def _is_unwanted(self, document: Json) -> bool:
        if self._wants_usage or document.get("usage") is None:
            return False
        return document.get("choices") == []


class ChatWholeWriter(_ChatWriter):
    """Writes one document after the last frame."""

    media_type = "application/json"

    def __init__(self, options: WriteOptions, family: FamilyName) -> None:
        super().__init__(options, family)
        self._answers: dict[int, Json] = {}  # by model call
        self._chunks: dict[int, list[Json]] = {}
        self._size = 0

    def weight(self, frame: Frame) -> int:
        return self._size + frame.size if frame.last else 0

    def feed(self, frame: Frame) -> bytes:
        self._size += frame.size or len(frame.raw or b"") or SMALL_BYTES
        self._add(frame)
        if not frame.last:
            return b""
        client = self.client
        answers = self._answers | {call: merged(chunks) for call, chunks in self._chunks.items()}
        document = answers.get(0, {})
        if client.whole is not None:
            document = client.whole(self._options.call, answers)
        if client.add_verdicts is not None:
            document = {**document, **self._findings} if self._findings else document
            document = client.add_verdicts(document, self.guard_results(), ())
        if document is frame.doc and frame.raw is not None:
            return frame.raw
        return dump(document, self._size)

    def fail(self, document: bytes) -> bytes:
        return b""

    def _add(self, frame: Frame) -> None:
        call, events = frame.model_call, frame.events
        fault = next((event for event in events if type(event) is Fault), None)
        if fault is not None:
            choice = {"index": 0, "text": "", "finish_reason": "error", "logprobs": None}
            error = {"message": fault.message, "code": fault.code}
            self._answers[call] = {"choices": [choice], "error": error}
            return
        documents: Sequence[Json] = [*self.documents(frame)]
        is_whole = frame.doc is not None and bool(events) and type(events[-1]) is Stop
        if is_whole and frame.family in KIN:
            self._answers[call] = documents[0] if documents else frame.doc or {}
        else:
            self._chunks.setdefault(call, []).extend(documents)
            self._findings |= _findings_of(frame)


def _written_events(frame: Frame) -> tuple[Event, ...]:
    """Return the events to write. A client of the upstream's family gets only finishes that the
    upstream sent."""
    if frame.family not in KIN:
        return frame.events
    return tuple(
        event for event in frame.events if not (type(event) is Finish and event.native is None)
    )


def _findings_of(frame: Frame) -> Json:
    """Return the findings that guards of the upstream report in a frame."""
    return {
        event.name: event.value
        for event in frame.events
        if type(event) is Extension and event.name in (DETECTIONS, HOOKS)
    }
