"""Reads the bytes of an upstream response into frames, however the bytes were cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Protocol

from proxy.call.meter import frame_quarters
from proxy.dialects import sse
from proxy.dialects.base import UpstreamDialect
from proxy.dialects.documents import Document, Documents, GatheredDocument
from proxy.dialects.family import Family, ReadOptions
from proxy.dialects.pieces import dump
from proxy.dialects.statuses import error_of, meaning_of_error, parse_error
from proxy.dialects.surrogates import SurrogateJoiner, without_halves
from proxy.errors import ProxyError, UpstreamInvalid
from proxy.runtime.offload import LARGE_BYTES
from proxy.types import Json
from proxy.types.events import Frame, Stop

MAX_EVENT_BYTES = 8 * 1024 * 1024
Rewrite = Callable[[Json], Json | None]
"""Returns a changed document, or None if there is nothing to change."""


class FrameReader(Protocol):
    """Reads the bytes of one answer.

    `feed` returns the documents that a piece completes, `close` those at the end of the bytes.
    `read` takes a document, which may take long, and returns its frames. `end` returns the frames
    after the last document. All raise `ProxyError`. After one of `read` or `end`, `left` returns
    the frames ahead of the fault, which are the same however the bytes were cut. A reader that
    `holds` keeps all bytes up to the end.
    """

    holds: ClassVar[bool]

    def feed(self, piece: bytes) -> Sequence[Document]: ...

    def close(self) -> Sequence[Document]: ...

    def read(self, document: Document) -> Sequence[Frame]: ...

    def end(self) -> Sequence[Frame]: ...

    def left(self) -> Sequence[Frame]: ...


class FrameOrder(Protocol):
    """Puts frames in sequence. `end` returns those that still wait."""

    def feed(self, frame: Frame) -> Iterable[Frame]: ...

    def end(self) -> Iterable[Frame]: ...


def check_error(
    doc: Json, server: UpstreamDialect, failure: Callable[[Json], Json | None] | None
) -> None:
    """Raise the error that a document reports, if it reports one."""
    if failure is not None:
        failed = failure(doc)
        if failed is None:
            return
        doc = failed
    if doc["error"] and not doc.get("choices"):
        error = parse_error(doc)
        meaning = meaning_of_error(server.statuses, server.denials, error, error.status)
        reported = error_of(meaning, error, error.status)
        usage = doc.get("usage")
        reported.usage = usage if isinstance(usage, dict) else None
        raise reported


class StreamFrameReader:
    """Reads server-sent events. `server` knows the vendor's errors, `rewrite` changes documents
    before they are read, `order` puts frames in sequence."""

    __slots__ = (
        *("_documents", "_failure", "_is_checked", "_is_over", "_joiner", "_order", "_placed"),
        *("_reader", "_rewrite", "_server", "close", "feed"),
    )
    holds: ClassVar[bool] = False

    def __init__(  # all that decides how a response is read
        self,
        family: Family,
        options: ReadOptions,
        server: UpstreamDialect,
        documents: Documents,
        *,
        rewrite: Rewrite | None = None,
        order: FrameOrder | None = None,
    ) -> None:
        events = sse.EventReader(MAX_EVENT_BYTES)
        self.feed, self.close = events.feed, events.close
        self._reader = family.reader(options)
        self._failure = family.failure
        self._server = server
        self._documents = documents
        self._rewrite = rewrite
        self._order = order
        self._joiner: SurrogateJoiner | None = None
        self._is_checked = self._failure is not None or rewrite is not None
        self._is_over = False
        self._placed: list[Frame] = []  # of the current document

    def read(self, document: Document) -> Sequence[Frame]:
        if self._is_over or document == sse.DONE:
            return () if self._is_over else self._end(done=True)
        raw = document if type(document) is bytes else bytes(document)
        try:
            doc = self._documents.read(raw)
        except UpstreamInvalid:
            if (halves := self._read_halves(raw)) is None:
                raise
            doc = halves
        if "error" in doc or self._is_checked or b"\n" in raw:
            doc, raw = self._checked(doc, raw)
        frames = self._reader.read(doc, raw)
        if self._order is not None or self._joiner is not None:
            frames = self._in_place(frames)
        if len(raw) > LARGE_BYTES:
            frames = _sized(frames, len(raw))
        if frames and (events := frames[-1].events) and type(events[-1]) is Stop:
            self._is_over = True
            return _with_last(frames)
        return frames

    def _checked(self, doc: Json, raw: bytes) -> tuple[Json, bytes]:
        """Return a document as it is to be read, in one line. Raise the error that it reports."""
        if "error" in doc or self._failure is not None:
            checked = doc if self._joiner is None else without_halves(doc)
            check_error(checked, self._server, self._failure)
        doc, raw = _rewritten(self._rewrite, doc, raw)
        if b"\n" in raw and self._joiner is None:  # an event of several data lines
            raw = dump(doc, len(raw))
        return doc, raw

    def _in_place(self, frames: Iterable[Frame]) -> Sequence[Frame]:
        """Return the frames that follow now, with whole surrogate pairs."""
        for frame in frames:
            whole = frame if self._joiner is None else self._joiner.feed(frame)
            self._placed += (whole,) if self._order is None else self._order.feed(whole)
        placed, self._placed = self._placed, []
        return placed

    def _read_halves(self, raw: bytes) -> Json | None:
        """Return a document with halves of surrogate pairs, which are joined from now on. None for
        any other invalid document."""
        doc = self._documents.read_halves(raw)
        if doc is not None and self._joiner is None:
            self._joiner = SurrogateJoiner()
        return doc

    def end(self) -> Sequence[Frame]:
        return () if self._is_over else self._end(done=False)

    def left(self) -> Sequence[Frame]:
        placed, self._placed = self._placed, []
        try:
            return placed if self._order is None else [*placed, *self._order.end()]
        except ProxyError:  # the first fault is the one to report
            return placed

    def _end(self, *, done: bool) -> Sequence[Frame]:
        frames = [*self._in_place(self._reader.end(done=done))]
        frames += () if self._order is None else self._order.end()
        self._is_over = True
        return _with_last(frames)


class WholeFrameReader:
    """Reads one document of at most `limit` bytes, which must be a whole answer."""

    __slots__ = (*("_documents", "_family", "_order", "_reader", "_rewrite", "_server", "_taken"),
                 *("close", "feed"))  # fmt: skip
    holds: ClassVar[bool] = True

    def __init__(  # noqa: PLR0913  # all that decides how a response is read
        self,
        family: Family,
        options: ReadOptions,
        server: UpstreamDialect,
        documents: Documents,
        *,
        limit: int,
        rewrite: Rewrite | None = None,
        order: FrameOrder | None = None,
    ) -> None:
        body = GatheredDocument(limit)
        self.feed, self.close, self._taken = body.feed, body.close, body.taken
        self._family = family
        self._reader = family.reader(options)
        self._server = server
        self._documents = documents
        self._rewrite = rewrite
        self._order = order

    def read(self, document: Document) -> Sequence[Frame]:
        raw = self._taken(document)
        doc = self._documents.read(raw)
        family = self._family
        if "error" in doc or family.failure is not None:
            check_error(doc, self._server, family.failure)
        if family.answers and type(doc.get(family.answers)) is not list:
            raise UpstreamInvalid(f"The upstream's response lacks the field {family.answers}.")
        doc, raw = _rewritten(self._rewrite, doc, raw)
        frames = self._reader.read(doc, raw)
        if self._order is not None:
            frames = [each for frame in frames for each in self._order.feed(frame)]
        if len(raw) > LARGE_BYTES:
            frames = _sized(frames, len(raw))
        return _with_last(frames)

    def end(self) -> Sequence[Frame]:
        return ()

    def left(self) -> Sequence[Frame]:
        return ()


def _rewritten(rewrite: Rewrite | None, doc: Json, raw: bytes) -> tuple[Json, bytes]:
    changed = None if rewrite is None else rewrite(doc)
    return (doc, raw) if changed is None else (changed, dump(changed, len(raw)))


def _sized(frames: Sequence[Frame], size: int) -> Sequence[Frame]:
    """Return the frames of a large document with their estimates, which take long."""
    return [
        frame._replace(
            size=size,
            quarters=frame_quarters(frame) if frame.quarters is None else frame.quarters,
        )
        for frame in frames
    ]


def _with_last(frames: Sequence[Frame]) -> Sequence[Frame]:
    return [*frames[:-1], frames[-1]._replace(last=True)]
