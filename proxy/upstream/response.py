"""Response of an upstream as frames."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Self

from proxy.dialects import DIALECTS
from proxy.dialects.findings import (
    DETECTIONS_MEMBER,
    HOOKS_MEMBER,
    merge_findings,
    read_upstream_findings,
)
from proxy.dialects.frames.reader import FrameReader
from proxy.dialects.wire.strict_json import Document
from proxy.errors import ProxyError
from proxy.ports import Feed
from proxy.runtime.fair_queue import LARGE_BYTES, Offload, PauseScheduler
from proxy.types import ResponseHead
from proxy.types.events import Delta, Event, Extension, Fault, Finish, Frame, PartStart, ResponseEnd
from proxy.upstream.attempt import OpenAttempt
from proxy.upstream.reply import MemoryShare, Reply

BURST_BYTES = 16 * 1024
READ_BATCH_SIZE = 64  # documents per read
MAX_PREAMBLE_FRAMES = 16
ClaimBackgroundBill = Callable[[OpenAttempt, Sequence[Frame]], Awaitable[None]]


@dataclass(slots=True)
class HttpUpstreamResponse:
    """An ``UpstreamResponse``. Leaving its context ends the attempt.

    Once its context is entered, it releases the reply; before that, its creator must.

    - ``offload``: reads large documents.
    - ``share``: counts the memory of the response, None if it is not counted.
    - ``pause_scheduler``: orders pauses between large reads that contain no frame.
    - ``claim_background_bill``: called with the first frames, decides which call pays.
    """

    head: ResponseHead
    reply: Reply
    reader: FrameReader
    open_attempt: OpenAttempt
    offload: Offload
    share: MemoryShare | None
    pause_scheduler: PauseScheduler
    claim_background_bill: ClaimBackgroundBill | None = None
    _documents: deque[Document] = field(default_factory=deque)
    _frames: Sequence[Frame] = field(default_factory=list)
    _fault: ProxyError | None = None  # raised after the frames
    _may_be_ping: bool = False  # bytes have arrived since the last frame
    _is_burst: bool = False
    _state: Literal["open", "closed", "over"] = "open"
    _preamble: Sequence[Frame] = ()
    _has_begun: bool = False
    _is_finished: bool = False
    _feed: Feed | None = None
    _pending: Coroutine[Any, Any, None] | None = None

    async def wait_for_content(self) -> None:
        """Wait for the first content.

        An upstream announces a response before its model has generated anything. While the client
        has received nothing, another target may still respond. The caller records failures of
        ``wait_for_content``; later failures are recorded here. Raises ``UpstreamError``.
        """
        frames: Sequence[Frame] = ()
        try:
            frames = await self.__anext__()
            while not self.reader.buffers_whole_body and is_short_preamble(frames):
                frames = [*frames, *await self.__anext__()]
        except StopAsyncIteration:
            pass
        except BaseException:
            for frame in frames:  # the upstream may have reported usage
                self.open_attempt.attempt.meter.feed(frame, self.open_attempt.record.now())
            self._release_memory()
            raise
        self._preamble = frames
        self._has_begun = True
        slot = self.open_attempt.slot
        if slot.is_probe or slot.is_caller_probe:
            slot.record_probe_success()

    def frames(self, feed: Feed | None = None) -> Self:
        self._feed = None if self.reader.buffers_whole_body else feed
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[Frame]:
        """Return the next frames. A generator would cost more, because the loop tracks it."""
        if self._preamble:
            frames, self._preamble = self._preamble, ()
            if self.claim_background_bill is not None:
                await self.claim_background_bill(self.open_attempt, frames)
            return frames
        while True:
            try:
                frames = await self._next_frames()
            except ProxyError as error:
                raise self.open_attempt.fail(error) if self._has_begun else error from None
            if frames:
                return frames
            if self._pending is None:
                raise StopAsyncIteration
            pending, self._pending = self._pending, None
            await pending

    async def _next_frames(self) -> Sequence[Frame]:
        """Return the next frames: none at the end, or if ``feed`` returned an awaitable."""
        while not (frames := self._take_arrived_frames()):
            if self._documents:
                await self._read_in_thread(self._documents.popleft())
            elif self._is_burst:  # reads without frames are not counted elsewhere
                self._is_burst = False
                await self.pause_scheduler.pause(self.open_attempt.call.scheduling_key)
            elif self._state == "over" or self.open_attempt.attempt.finished:
                return ()
            elif self._state == "closed":
                self._read_final_frames()
            else:
                data = await self.reply.read(self._on_data if self._feed is not None else None)
                if data is not None:
                    self._split_into_documents(data)
                elif self._pending is not None:
                    return ()
        return frames

    def _take_arrived_frames(self) -> Sequence[Frame]:
        """Return the frames that have arrived. A fault is raised after the frames before it."""
        if self._documents and not self._frames and self._fault is None:
            self._read_until_large_document()
        if self._frames:
            if self._frames[-1].last and self._state == "open":
                self.reply.release_after_last_frame()
            return self._take_batch()
        if self._fault is not None:
            fault, self._fault = self._fault, None  # its traceback will refer to this object
            try:
                raise fault
            finally:
                del fault
        if self._may_be_ping and not self._documents:
            self._may_be_ping = False
            self.open_attempt.record.has_ping = True
        return ()

    def _split_into_documents(self, data: bytes) -> None:
        """Split received bytes into documents. Empty bytes mark the end of the body."""
        if not data:
            self._state = "closed"
            self._documents.extend(self.reader.close())
            return
        size = len(data)
        self._is_burst, self._may_be_ping = size > BURST_BYTES, True
        if self.share is not None:
            self.share.take(size)
        self._documents.extend(self.reader.feed(data))

    def _read_final_frames(self) -> None:
        self._state = "over"
        try:
            self._frames = self.reader.end()
        except ProxyError as fault:
            self._frames, self._fault = self.reader.pop_frames_before_error(), fault

    def _on_data(self, data: bytes) -> bool:
        """Pass the frames in received bytes to ``feed``. Return False to wake the call's task."""
        try:
            self._split_into_documents(data)
        except ProxyError as fault:
            self._fault = fault
            return False
        self._read_until_large_document()
        frames = self._frames
        if not frames or self._documents or self._fault is not None or self._is_burst:
            return False
        if self._feed is None or any(map(_is_last_or_has_findings, frames)):
            return False
        self._frames, self._may_be_ping = [], False
        self._pending = self._feed(frames)
        return self._pending is None

    def _read_until_large_document(self) -> None:
        """Read the documents that have arrived, up to a large one."""
        documents, read = self._documents, self.reader.read
        frames = self._frames = list(self._frames)
        for _ in range(READ_BATCH_SIZE):
            if not documents or len(documents[0]) > LARGE_BYTES:
                return
            try:
                new_frames = read(documents.popleft())
            except ProxyError as fault:
                frames += self.reader.pop_frames_before_error()
                self._fault = fault
                return
            frames += new_frames
            if new_frames and new_frames[-1].last:
                return

    async def _read_in_thread(self, document: Document) -> None:
        read = partial(self.reader.read, document)
        scheduling_key = self.open_attempt.call.scheduling_key
        try:
            self._frames = await self.offload.run(len(document), read, scheduling_key)
        except ProxyError as fault:
            self._frames, self._fault = self.reader.pop_frames_before_error(), fault

    def _take_batch(self) -> Sequence[Frame]:
        """Return the frames before the next one that needs a batch for itself, or that frame."""
        self._may_be_ping = False
        frames = self._frames
        for index, frame in enumerate(frames):
            if _is_last_or_has_findings(frame):
                if index:
                    self._frames = frames[index:]
                    return frames[:index]
                self._frames = frames[1:]
                return (self._record_upstream_findings_and_end(frame),)
        self._frames = []
        return frames

    def _record_upstream_findings_and_end(self, frame: Frame) -> Frame:
        """Record findings, and the attempt's end before guards process the last frame."""
        attempt = self.open_attempt.attempt
        members = {event.name: event.value for event in frame.events if type(event) is Extension}
        if members and (findings := read_upstream_findings(members)):
            attempt.findings = merge_findings((*attempt.findings, *findings))
        if not frame.last:
            return frame
        self.open_attempt.slot.has_worked = True
        attempt.finished = self._is_finished = True
        self.open_attempt.finish_attempt()
        client = DIALECTS[self.open_attempt.call.head.dialect].client
        if not client.reports_latency or frame.doc is None:
            return frame
        elapsed_ms = round((self.open_attempt.record.now() - attempt.started) * 1000)
        *events, stop = frame.events
        doc = {**frame.doc, "prediction_time_ms": elapsed_ms}
        timed = (*events, Extension("prediction_time_ms", elapsed_ms), stop)
        return frame._replace(events=timed, doc=doc, raw=None)

    def _release_memory(self) -> None:
        if self.share is not None:
            self.share.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._pending is not None:
            self._pending.close()
        if not self._is_finished:
            self._is_finished = True
            self.open_attempt.finish_attempt()
        self._release_memory()
        self.reply.release()


def _is_last_or_has_findings(frame: Frame) -> bool:
    """Return True for the last frame, and frames with findings of the upstream's guards."""
    if frame.last:
        return True
    for event in frame.events:
        if type(event) is Extension and event.name in (DETECTIONS_MEMBER, HOOKS_MEMBER):
            return True
    return False


def is_short_preamble(frames: Sequence[Frame]) -> bool:
    """Return True if the frames have no content and no end, and are few enough to be held."""
    return len(frames) <= MAX_PREAMBLE_FRAMES and not any(map(_contains_preamble_end, frames))


def _contains_preamble_end(frame: Frame) -> bool:
    is_unread = frame.doc is None and frame.raw is not None
    return bool(frame.size) or is_unread or any(map(_ends_preamble, frame.events))


def _ends_preamble(event: Event) -> bool:
    if type(event) is Delta:
        return bool(event.text)
    if type(event) is PartStart:
        return event.part.kind == "opaque"
    return type(event) in (Finish, Fault, ResponseEnd)
