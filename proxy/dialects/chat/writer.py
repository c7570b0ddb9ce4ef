"""Writes frames for clients of chat and of legacy completions, as a stream or as one document.

Both families have nearly the same documents: those of one are converted for a client of the other,
so that members without a type reach it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from proxy.dialects import DIALECTS, sse
from proxy.dialects.base import ClientDialect
from proxy.dialects.chat.chunks import MEMBERS, ChunkMaker
from proxy.dialects.chat.merging import merged
from proxy.dialects.family import WriteOptions
from proxy.dialects.findings import DETECTIONS, HOOKS
from proxy.dialects.pieces import dump
from proxy.types import Json
from proxy.types.events import Delta, Event, Extension, FamilyName, Fault, Finish, Frame, Stop
from proxy.types.guard import GuardResults

Converter = Callable[[Json], Json | None]
"""Returns a document in the form of the client, None for one that says nothing there."""
Converters = Callable[[WriteOptions, FamilyName], Converter | None]
"""Returns what converts the documents of a family, None if they stay as they are."""
END: Final = sse.event(sse.DONE)
KIN: Final[frozenset[FamilyName]] = frozenset(
    {"chat", "completions", "embeddings", "stored", "document"}
)
"""The families whose documents pass, or can be converted into each other."""


class _ChatWriter:
    """What streams and whole answers have in common: documents from frames, and verdicts."""

    def __init__(self, options: WriteOptions, family: FamilyName, converters: Converters) -> None:
        head = options.call.head
        client = DIALECTS["openai" if options.complete else head.dialect].client
        self.client: ClientDialect = client.endpoints.get(head.endpoint, client)
        self.family = family
        self._options = options
        self._converters = converters
        self._known: dict[tuple[int, FamilyName], Converter | None] = {}
        self._makers: dict[int, ChunkMaker] = {}

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
            documents: Sequence[Json] = (frame.doc,)
            convert = self._converter(frame, frame.family)
        else:
            documents = [*maker.chunks(_written(frame))]
            convert = self._converter(frame, "chat")
        for document in documents:
            converted = document if convert is None else convert(document)
            if converted is not None:
                yield converted

    def _converter(self, frame: Frame, family: FamilyName) -> Converter | None:
        key = frame.model_call, family
        if key not in self._known:
            self._known[key] = self._converters(self._options, family)
        return self._known[key]

    def verdicts(self) -> GuardResults:
        """Return the verdicts that a client may see: not those of shadow policies."""
        return [each for each in self._options.verdicts() if not each[1].shadow]


class ChatStreamWriter(_ChatWriter):
    """Writes a stream. Documents that nothing has changed are sent as received. A chunk with usage
    alone is sent only if the client has asked for it."""

    media_type = "text/event-stream; charset=utf-8"

    def __init__(self, options: WriteOptions, family: FamilyName, converters: Converters) -> None:
        super().__init__(options, family, converters)
        client = self.client
        self._add_verdicts = client.add_verdicts if client.streams_verdicts else None
        self._wants_usage = options.complete or options.call.wants_usage
        self._passes_raw = self._add_verdicts is None and converters(options, family) is None
        self._findings: Json = {}  # of guards of the upstream

    def weight(self, frame: Frame) -> int:
        return frame.size

    def feed(self, frame: Frame) -> bytes:
        doc, raw = frame.doc, frame.raw
        passes = raw is not None and self._passes_raw and frame.family == self.family
        if raw is None or doc is None or not passes or b"\n" in raw:
            event = self._feed(frame)
        elif "usage" in doc and self._is_unwanted(doc):
            event = b""
        else:
            event = b"data: " + raw + b"\n\n"
            if len(frame.events) > 1:
                self.maker(frame).note(frame)
        return event + END if frame.last and self.client.done else event

    def fail(self, document: bytes) -> bytes:
        return sse.event(document)

    def _feed(self, frame: Frame) -> bytes:
        """Return the events of a frame whose bytes do not pass as received."""
        if frame.doc is None and not frame.events:
            return b"" if frame.last else sse.KEEPALIVE
        if frame.doc is None or frame.family not in KIN:
            text = self._text(frame)
            if text is not None:
                return text
        return b"".join([self._event(each, frame) for each in self.documents(frame)])

    def _text(self, frame: Frame) -> bytes | None:
        """Return the event of a single text of the first choice, the quick way."""
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
            if _finishes(document):
                document = {**document, **self._findings}
                document = self._add_verdicts(document, self.verdicts(), ())
        return sse.event(dump(document, frame.size))

    def _is_unwanted(self, document: Json) -> bool:
        return (
            not self._wants_usage
            and document.get("usage") is not None
            and document.get("choices") == []
        )


def _finishes(data: Json) -> bool:
    """Return True if a choice of an answer or a chunk has a finish reason."""
    if "choices" not in data or type(data["choices"]) is not list:
        return False
    for choice in data["choices"]:
        if type(choice) is not dict or "finish_reason" not in choice:
            continue
        if choice["finish_reason"]:  # some servers send an empty one in each chunk
            return True
    return False


SMALL_BYTES = 256
"""About the size of a frame that does not say it."""


class ChatWholeWriter(_ChatWriter):
    """Writes one document when the last model call has answered."""

    media_type = "application/json"

    def __init__(self, options: WriteOptions, family: FamilyName, converters: Converters) -> None:
        super().__init__(options, family, converters)
        self._answers: dict[int, Json] = {}
        self._chunks: dict[int, list[Json]] = {}
        self._findings: Json = {}
        self._size = 0

    def weight(self, frame: Frame) -> int:
        return self._size + frame.size if frame.last else 0

    def feed(self, frame: Frame) -> bytes:
        self._size += frame.size or len(frame.raw or b"") or SMALL_BYTES
        self._add(frame)
        if not frame.last:
            return b""
        client, call = self.client, self._options.call
        answers = {
            **self._answers,
            **{number: merged(chunks) for number, chunks in self._chunks.items()},
        }
        whole = answers.get(0, {})
        if client.whole is not None:
            whole = client.whole(call, answers)
        if client.add_verdicts is not None:
            whole = {**whole, **self._findings} if self._findings else whole
            whole = client.add_verdicts(whole, self.verdicts(), ())
        if whole is frame.doc and frame.raw is not None:
            return frame.raw
        return dump(whole, self._size)

    def fail(self, document: bytes) -> bytes:
        return b""

    def _add(self, frame: Frame) -> None:
        number, events = frame.model_call, frame.events
        fault = next((event for event in events if type(event) is Fault), None)
        if fault is not None:
            choice = {"index": 0, "text": "", "finish_reason": "error", "logprobs": None}
            error = {"message": fault.message, "code": fault.code}
            self._answers[number] = {"choices": [choice], "error": error}
            return
        is_whole = frame.doc is not None and bool(events) and type(events[-1]) is Stop
        documents = [*self.documents(frame)]
        if is_whole and frame.family in KIN:
            self._answers[number] = documents[0] if documents else frame.doc or {}
        else:
            self._chunks.setdefault(number, []).extend(documents)
            self._findings |= _findings_of(frame)


def _written(frame: Frame) -> tuple[Event, ...]:
    """Return the events to write. A finish that no upstream sent is not sent to its own family."""
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
