"""Reads the bytes of an upstream response, in pieces of any size, into frames.

Surrogate pairs are joined: a server that cuts text into UTF-16 units escapes each half of a
character in a separate event, and strict JSON parsers reject a single half.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import orjson

from proxy.call.meter import estimate_frame_quarters
from proxy.dialects.base import UpstreamDialect
from proxy.dialects.family import Family, ReadOptions
from proxy.dialects.frames.sequencer import Sequencer
from proxy.dialects.statuses import classify_error, make_client_error, parse_error_body
from proxy.dialects.wire import sse
from proxy.dialects.wire.strict_json import Document, DocumentBuffer, DocumentParser, dump
from proxy.errors import ProxyError, UpstreamInvalid
from proxy.runtime.fair_queue import LARGE_BYTES
from proxy.types import Json
from proxy.types.events import (
    RESPONSE_END,
    Delta,
    Event,
    Finish,
    Frame,
    Part,
    PartEnd,
    ResponseEnd,
    replace_at_slot,
)

MAX_EVENT_BYTES = 8 * 1024 * 1024
Rewrite = Callable[[Json], Json | None]
"""Returns a changed document, or None if nothing changes."""


class FrameReader(Protocol):
    """Reads the bytes of one response. All methods raise ``ProxyError``."""

    @property
    def buffers_whole_body(self) -> bool:
        """True if the reader keeps all bytes until the end."""
        ...

    def feed(self, piece: bytes) -> Sequence[Document]:
        """Return the documents that a piece completes."""
        ...

    def close(self) -> Sequence[Document]:
        """Return the documents at the end of the bytes."""
        ...

    def read(self, document: Document) -> Sequence[Frame]:
        """Return the frames of a document, which takes long for a large one."""
        ...

    def end(self) -> Sequence[Frame]:
        """Return the frames after the last document."""
        ...

    def pop_frames_before_error(self) -> Sequence[Frame]:
        """Return the complete frames ahead of the error that ``read`` or ``end`` has raised."""
        ...


class FamilyFrameReader:
    """Reads server-sent events, or one document of at most ``limit`` bytes.

    ``upstream`` declares the errors of the vendor, ``rewrite`` changes documents before they are
    read, and ``sequencer`` reorders frames.
    """

    def __init__(  # noqa: PLR0913  # all settings that decide how a response is read
        self,
        family: Family,
        options: ReadOptions,
        upstream: UpstreamDialect,
        documents: DocumentParser,
        *,
        limit: int | None = None,
        rewrite: Rewrite | None = None,
        sequencer: Sequencer | None = None,
    ) -> None:
        self._body = None if limit is None else DocumentBuffer(limit)
        source = self._body or sse.EventReader(MAX_EVENT_BYTES)
        self.feed, self.close = source.feed, source.close
        self._family = family
        self._reader = family.reader(options)
        self._upstream = upstream
        self._documents = documents
        self._rewrite = rewrite
        self._sequencer = sequencer
        self._joiner: SurrogateJoiner | None = None
        self._is_checked = not (limit is None and family.find_failure is None and rewrite is None)
        self._is_over = False
        self._placed: list[Frame] = []  # frames of the current document

    @property
    def buffers_whole_body(self) -> bool:
        return self._body is not None

    def read(self, document: Document) -> Sequence[Frame]:
        if self._is_over:
            return ()
        if self._body is not None:
            raw = self._body.pop_document(document)
            doc = self._documents.read(raw)
        elif document == sse.DONE:
            return self._end_response(has_done_marker=True)
        else:
            raw = document if type(document) is bytes else bytes(document)
            doc = self._parse_event(raw)
        if "error" in doc or self._is_checked or b"\n" in raw:
            doc, raw = self._check_and_rewrite_document(doc, raw)
        frames = self._reader.read(doc, raw)
        if self._sequencer is not None or self._joiner is not None:
            frames = self._order_frames(frames, len(raw))
        # Estimating its tokens takes long, so it is done here, in a thread.
        if len(raw) > LARGE_BYTES:
            frames = [
                frame._replace(size=len(raw), quarters=estimate_frame_quarters(frame))
                if frame.quarters is None
                else frame._replace(size=len(raw))
                for frame in frames
            ]
        if self._body is not None or (frames and RESPONSE_END in frames[-1].events[-1:]):
            self._is_over = True
            return _mark_last_frame(frames)
        return frames

    def end(self) -> Sequence[Frame]:
        return () if self._is_over else self._end_response(has_done_marker=False)

    def pop_frames_before_error(self) -> Sequence[Frame]:
        if self._body is not None:
            return ()
        placed, self._placed = self._placed, []
        try:
            return placed if self._sequencer is None else [*placed, *self._sequencer.end()]
        except ProxyError:  # report the first error
            return placed

    def _parse_event(self, raw: bytes) -> Json:
        """Return the document of an event. Start joining at the first half of a surrogate pair."""
        try:
            return self._documents.read(raw)
        except UpstreamInvalid:
            doc = self._documents.read_with_surrogates(raw)
            if doc is None:
                raise
            self._joiner = self._joiner or SurrogateJoiner()
            return doc

    def _check_and_rewrite_document(self, doc: Json, raw: bytes) -> tuple[Json, bytes]:
        """Return the rewritten document, and its bytes in one line.

        Raise any error that it reports.
        """
        family = self._family
        if "error" in doc or family.find_failure is not None:
            checked = doc
            if self._joiner is not None:  # unpaired surrogates become question marks
                plain = json.dumps(doc, ensure_ascii=False).encode("utf-8", "replace")
                checked = orjson.loads(plain)
            raise_reported_error(checked, self._upstream, family)
        if (
            self._body is not None
            and family.result_list
            and type(doc.get(family.result_list)) is not list
        ):
            raise UpstreamInvalid(f"The upstream's response lacks the field {family.result_list}.")
        rewritten = None if self._rewrite is None else self._rewrite(doc)
        if rewritten is not None:
            return rewritten, dump(rewritten, len(raw))
        # The event had several data lines.
        if self._body is None and self._joiner is None and b"\n" in raw:
            raw = dump(doc, len(raw))
        return doc, raw

    def _order_frames(self, frames: Iterable[Frame], size: int = 0) -> Sequence[Frame]:
        if size > LARGE_BYTES:  # counts while a frame waits
            frames = [frame._replace(size=size) for frame in frames]
        for frame in frames:
            joined = frame if self._joiner is None else self._joiner.feed(frame)
            self._placed += (joined,) if self._sequencer is None else self._sequencer.feed(joined)
        placed, self._placed = self._placed, []
        return placed

    def _end_response(self, *, has_done_marker: bool) -> Sequence[Frame]:
        frames = [*self._order_frames(self._reader.end(has_done_marker=has_done_marker))]
        frames += () if self._sequencer is None else self._sequencer.end()
        self._is_over = True
        return _mark_last_frame(frames)


def raise_reported_error(doc: Json, upstream: UpstreamDialect, family: Family) -> None:
    """Raise the error that a document reports, if any."""
    if family.find_failure is not None:
        failed = family.find_failure(doc)
        if failed is None:
            return
        doc = failed
    if doc["error"] and not (family.allows_error_with_results and doc.get(family.result_list)):
        error = parse_error_body(doc)
        meaning = classify_error(upstream.statuses, upstream.denial_codes, error, error.status)
        reported = make_client_error(meaning, error, error.status)
        usage = doc.get("usage")
        reported.usage = usage if isinstance(usage, dict) else None
        raise reported


def _mark_last_frame(frames: Sequence[Frame]) -> Sequence[Frame]:
    *first, (events, family, doc, raw, model_call, size, _, quarters) = frames
    fields = events, family, doc, raw, model_call, size, True, quarters
    return [*first, tuple.__new__(Frame, fields)]  # ``_replace`` takes four times as long


_SURROGATE = re.compile("[\ud800-\udfff]")
_HIGH_AT_END = re.compile("[\ud800-\udbff]\\Z")


class SurrogateJoiner:
    """Joins surrogate pairs that a stream cuts in two.

    A high surrogate at the end of a delta moves to the next delta of the same part.
    """

    def __init__(self) -> None:
        self._halves: dict[Part, str] = {}

    def feed(self, frame: Frame) -> Frame:
        """Return a frame whose texts have complete surrogate pairs.

        Raises ``UpstreamInvalid`` for a half without its counterpart, or outside of a delta's text.
        """
        events, doc = list(frame.events), frame.doc
        is_changed = False
        for position, event in enumerate(events):
            if self._halves and self._ends_part_with_half_character(event):
                raise _make_invalid_json_error()
            if type(event) is not Delta:
                continue
            text = self._join_surrogates(event)
            if text != event.text:
                is_changed = True
                events[position] = Delta(event.part, text, event.slot)
                if doc is not None and event.slot:
                    doc = replace_at_slot(doc, event.slot, text)
        try:
            orjson.dumps((doc, events), default=lambda v: v.id if isinstance(v, Part) else [*v])
        except TypeError:
            raise _make_invalid_json_error() from None
        if not is_changed and b"\n" not in (frame.raw or b""):
            return frame
        return frame._replace(events=tuple(events), doc=doc, raw=None)

    def _ends_part_with_half_character(self, event: Event) -> bool:
        if isinstance(event, PartEnd):
            return event.part in self._halves
        if isinstance(event, Finish):
            return any(part.choice == event.choice for part in self._halves)
        return isinstance(event, ResponseEnd)

    def _join_surrogates(self, event: Delta) -> str:
        text = self._halves.pop(event.part, "") + event.text
        if _SURROGATE.search(text) is None:
            return text
        if _HIGH_AT_END.search(text) is not None:
            self._halves[event.part], text = text[-1], text[:-1]
        try:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            raise _make_invalid_json_error() from None


def _make_invalid_json_error() -> UpstreamInvalid:
    return UpstreamInvalid("The upstream sent invalid JSON.")
