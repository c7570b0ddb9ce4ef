"""An upstream's answer, read into OpenAI's form however its bytes were cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Protocol

from proxy.dialects import hub, sse
from proxy.dialects.base import Server
from proxy.dialects.documents import Document, Documents, GatheredDocument
from proxy.dialects.frame_reader import MAX_EVENT_BYTES, Rewrite, check_error
from proxy.dialects.hub import Turn
from proxy.dialects.pieces import dump
from proxy.errors import (
    UpstreamInvalid,
)
from proxy.meter import answer_quarters
from proxy.offload import LARGE_BYTES
from proxy.types import AnswerPiece, Chunk, Json, Untouched

if TYPE_CHECKING:
    from proxy.dialects.call_numbers import ChunkNumbers
    from proxy.dialects.chat_order import ChatOrder

_REWRITTEN = (b"block", b"\\u", b"tool_calls")
"""What stands in each chunk of a chat of which a guard may get another one."""
Seal = Rewrite
"""Returns a document with the ids that its client gets; None where it has none of them."""


class AnswerReader(Protocol):
    """Feed it bytes; it returns the documents that they complete. ``close`` says that no more come.

    Each document is then ``read``, which may take long, into the chunks that it makes; ``end``
    returns those that follow the last one, or some of them: it is called until it returns none, or
    the end. So what was good before a fault is there before the
    fault is raised, however the bytes were cut. All of them raise ``ProxyError``. One that
    ``holds`` keeps all bytes to the last.
    """

    holds: ClassVar[bool]

    def feed(self, piece: bytes) -> Sequence[Document]: ...

    def close(self) -> Sequence[Document]: ...

    def read(self, document: Document) -> Sequence[AnswerPiece]: ...

    def end(self) -> Sequence[AnswerPiece]: ...


def _chunk(data: Json, raw: bytes | None, leg: int, size: int, *, last: bool = False) -> Chunk:
    """Return a chunk made of a document of ``size`` bytes. Of a large one it is estimated here how
    much it says, as that takes long, too."""
    if size <= LARGE_BYTES:
        return Chunk(data, raw, leg=leg, last=last)
    quarters = answer_quarters(data)
    return Chunk(data, raw, leg=leg, last=last, size=size, quarters=quarters)


def _sealed(seal: Seal | None, data: Json, raw: bytes) -> tuple[Json, bytes]:
    """Return a document, and how it is written, with the ids that its client gets."""
    sealed = None if seal is None else seal(data)
    return (data, raw) if sealed is None else (sealed, dump(sealed, len(raw)))


class StreamReader:
    """A stream of events. One of OpenAI's ends with ``[DONE]``, or with its bytes once a choice has
    finished, one of another form with an event of its own, or with either of these once that has
    finished; any other end is a stream that was cut, or of a form that nobody asked for."""

    __slots__ = (
        *("_chat_order", "_closed", "_documents", "_done", "_events", "_finished", "_is_guarded"),
        *("_leg", "_numbers", "_order", "_own", "_rewrites", "_server", "_turn", "close", "feed"),
    )
    holds: ClassVar[bool] = False

    def __init__(  # noqa: PLR0913  # what it reads, how, and for whom
        self,
        leg: int,
        turn: Turn | None,
        server: Server,
        documents: Documents,
        *,
        own: bool = False,
        seal: Seal | None = None,
        ordered: bool = False,
        chat_order: ChatOrder | None = None,
    ) -> None:
        self._own = own  # for a client that reads the upstream's own form
        self._is_guarded = ordered
        self._chat_order = chat_order
        self._numbers: ChunkNumbers | None = None
        made = server.order if ordered or not own else None
        self._order = None if made is None else made()
        self._events = None if server.events is None else server.events(own)
        numbers = None if server.numbers is None else server.numbers()
        self._rewrites = [each for each in (numbers, seal) if each is not None]
        events = sse.EventReader(MAX_EVENT_BYTES)
        self.feed, self.close = events.feed, events.close
        self._leg = leg
        self._turn = turn
        self._server = server
        self._documents = documents
        self._finished = False
        self._closed = False  # nothing more is read
        self._done = False

    def read(self, document: Document) -> list[Chunk]:
        if self._closed:
            return []
        if document == sse.DONE:
            return self._last_of_done()
        raw = document if type(document) is bytes else bytes(document)
        data = self._documents.read(raw)
        if "error" in data or self._server.failure is not None:
            check_error(data, self._server, self._server.failure)
        if self._events is not None:
            return self._read_event(data, raw)
        if not self._finished:
            self._finished = hub.finishes(data)
        if self._is_guarded and any([word in raw for word in _REWRITTEN]):
            data, raw = self._for_guards(data, raw)
        if self._turn is None and len(raw) <= LARGE_BYTES:
            return [Chunk(data, raw, self._leg)]
        return self._turned(data, raw)

    def _for_guards(self, data: Json, raw: bytes) -> tuple[Json, bytes]:
        """Return a chunk without marks of the upstream's, whose calls have numbers of their own:
        guards tell texts by them."""
        if hub.unmark(data):
            raw = dump(data, len(raw))
        if b"tool_calls" not in raw or self._chat_order is not None:
            return data, raw
        if self._numbers is None:
            from proxy.dialects.call_numbers import ChunkNumbers  # noqa: PLC0415  # with calls alone

            self._numbers = ChunkNumbers()
        made = self._numbers.feed(data)
        return (data, raw) if made is data else (made, dump(made, len(raw)))

    def _turned(self, data: Json, raw: bytes) -> list[Chunk]:
        """Return a chunk of a chat in the form of the client's endpoint, or what follows of it."""
        turned = data if self._turn is None else self._turn(data)
        if turned is None:
            return []
        if self._chat_order is not None:
            return self._in_turn(self._chat_order.feed(turned, len(raw)), len(raw))
        return [_chunk(turned, raw if turned is data else None, self._leg, len(raw))]

    def _in_turn(self, made: Iterable[Json], size: int) -> list[Chunk]:
        """Return the chunks whose turn it is, made of a document of ``size`` bytes."""
        return [_chunk(each, None, self._leg, size) for each in made]

    def _read_event(self, event: Json, raw: bytes) -> list[Chunk]:
        """Return what one event of a stream that is none of OpenAI's says."""
        for rewrite in self._rewrites:
            anew = rewrite(event)
            if anew is not None:
                event, raw = anew, dump(anew, len(raw))
        order = self._order
        come = ((event, raw, len(raw)),) if order is None else order.feed(event, raw)
        return self._chunks_of(come)

    def _chunks_of(self, events: Iterable[tuple[Json, bytes | None, int]]) -> list[Chunk]:
        """Return the chunks of events in their turn, see ``OrderedEvent``."""
        chunks: list[Chunk] = []
        for event, raw, size in events:
            kind, before = event.get("type"), len(chunks)
            passed: Untouched | None = None
            if self._own and raw is not None and isinstance(kind, str) and b"\n" not in raw:
                passed = Untouched(raw)
                passed.kind = kind
            for made in self._events(event) if self._events is not None else ():
                self._finished = self._finished or hub.finishes(made)
                turned = made if self._turn is None else self._turn(made)
                if turned is None:
                    continue
                if self._chat_order is not None:
                    chunks += self._in_turn(self._chat_order.feed(turned, size), size)
                elif size <= LARGE_BYTES:
                    chunks.append(Chunk(turned, passed, self._leg))
                else:
                    chunks.append(_chunk(turned, passed, self._leg, size))
            if isinstance(kind, str) and kind in self._server.ends:
                self._closed = self._done = True
                bare = Chunk(None, None if chunks else passed, leg=self._leg)
                final = chunks.pop() if len(chunks) > before else bare
                chunks.append(replace(final, last=True))  # in one write: its client may close then
        return chunks

    def _left(self) -> list[Chunk]:
        """Return what still waits for its turn, as the stream has ended."""
        left = [] if self._order is None else self._chunks_of(self._order.left())
        if self._chat_order is not None:
            left += self._in_turn(self._chat_order.left(), 0)
        return left

    def _last_of_done(self) -> list[Chunk]:
        """Return the last chunks of a stream that says ``[DONE]``: one of chat's may say no more.
        Of one that has not finished it is what waits, if anything does: ``end`` says the rest."""
        self._finished = self._finished or self._events is None
        self._closed = True
        left = self._left()
        if left and not self._finished:
            return left
        last = [*left, *self.end()]
        self._done = True
        return last

    def end(self) -> list[Chunk]:
        if self._done:
            return []
        if left := self._left():
            return left
        if not self._finished:
            early = "The upstream ended the stream before the response was complete."
            raise UpstreamInvalid(early).caused("closed")
        return [Chunk(None, leg=self._leg, last=True)]


class WholeReader:
    """One document, which must be an answer: choices, or vectors for embeddings.

    ``stream`` returns it as the events of a stream, for an upstream that cannot stream. ``limit``
    bounds its bytes.
    """

    __slots__ = (
        *("_chat_order", "_documents", "_leg", "_own", "_seal", "_server", "_stream", "_taken"),
        *("_turn", "close", "feed"),
    )
    holds: ClassVar[bool] = True

    def __init__(  # noqa: PLR0913  # what it reads, how, and for whom
        self,
        leg: int,
        turn: Turn | None,
        server: Server,
        documents: Documents,
        *,
        stream: bool,
        limit: int,
        own: bool = False,
        seal: Seal | None = None,
        chat_order: ChatOrder | None = None,
    ) -> None:
        self._own = own
        self._chat_order = chat_order
        self._seal = seal
        self._leg = leg
        self._turn = turn
        self._server = server
        self._documents = documents
        self._stream = stream
        body = GatheredDocument(limit)
        self.feed, self.close, self._taken = body.feed, body.close, body.taken

    def read(self, document: Document) -> list[Chunk]:
        whole = self._taken(document)
        data = self._documents.read(whole)
        if "error" in data or self._server.failure is not None:
            check_error(data, self._server, self._server.failure)
        wanted = "data" if self._documents.vectors else self._server.answers
        if wanted not in data or type(data[wanted]) is not list:
            raise UpstreamInvalid(f"The upstream's response lacks the field {wanted}.")
        data, whole = _sealed(self._seal, data, whole)
        to_hub = self._server.own_to_hub if self._own else self._server.to_hub
        hubbed = data if to_hub is None else to_hub(data)
        turned = hubbed if self._turn is None else self._turn(hubbed) or hubbed
        if not self._stream:
            raw = whole if turned is data else Untouched(whole) if self._own else None
            if len(whole) <= LARGE_BYTES:
                return [Chunk(turned, raw, self._leg, last=True)]
            return [_chunk(turned, raw, self._leg, len(whole), last=True)]
        made = hub.as_stream(turned)
        if self._chat_order is not None:
            made = [each for event in made for each in self._chat_order.feed(event, len(whole))]
        events = [_chunk(event, None, self._leg, len(whole)) for event in made]
        return [*events, Chunk(None, leg=self._leg, last=True)]

    def end(self) -> list[Chunk]:
        return []
