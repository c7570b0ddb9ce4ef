"""One attempt at a target, and the response of its upstream as frames."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Self

from proxy.call.attempts import Attempt
from proxy.call.record import Record
from proxy.dialects import DIALECTS
from proxy.dialects.documents import Document
from proxy.dialects.findings import DETECTIONS, HOOKS, find_findings, merge_findings
from proxy.dialects.frame_reader import FrameReader
from proxy.dialects.upstream_request import UpstreamRequest
from proxy.errors import (
    ProxyError,
    RequestTimeout,
    StaleConnection,
    UpstreamRejected,
    UpstreamTimeout,
)
from proxy.errors.words import MAX_ID, ascii_word
from proxy.money.usage import read_usage
from proxy.ports import HandOn
from proxy.runtime.frozen import frozen
from proxy.runtime.offload import LARGE_BYTES, Offload
from proxy.runtime.turn import LoopTurns
from proxy.types import Call, Json, ResponseHead, Target
from proxy.types.events import Delta, Extension, Frame
from proxy.upstream.health import TargetSlot
from proxy.upstream.own_secrets import conceal
from proxy.upstream.preamble import is_preamble
from proxy.upstream.refusal import blame
from proxy.upstream.reply import MemoryShare, Reply

BURST = 16 * 1024  # bytes of events that arrive at once
NOTHING: Json = {}
TOGETHER = 64  # documents that are read at a time


@frozen
class OpenAttempt:
    """An open attempt: the call, its target and request, the slot it holds and its record.

    Call ``leave`` exactly once, however the attempt ends.
    """

    call: Call
    target: Target
    request: UpstreamRequest
    attempt: Attempt
    record: Record
    slot: TargetSlot

    def fail(self, error: BaseException) -> BaseException:
        """Record the failure of the attempt. Return the error to raise, without any part of our
        credential. Call it at most once.

        A timeout that the client has set does not count against the target.
        """
        is_late = isinstance(error, UpstreamTimeout) and error.code == "upstream_total_timeout"
        allowed, own = self.call.timeout_s, self.target.upstream.timeouts.total
        if is_late and allowed is not None and allowed < own:
            error = RequestTimeout("The timeout that the request set has passed.")
            self.attempt.error = error.code
            return error
        if isinstance(error, UpstreamRejected):
            error = blame(error, self.call, self.target)
        if isinstance(error, ProxyError):
            conceal(error, self.target.upstream)
            self._name_by_client(error)
            self.attempt.error = error.code
            self.attempt.cause, self.attempt.system_text = error.cause, error.system_text
            self.attempt.findings = error.findings or self.attempt.findings
            if error.usage is not None:  # the final usage
                self.attempt.meter.report(read_usage(error.usage))
                self.attempt.finished = self.attempt.meter.reported is not None
                self.attempt.bill = None
        else:
            self.attempt.error = "cancelled"
        if isinstance(error, StaleConnection):
            return error  # the target is not at fault
        if not is_late or self.record.now() - self.attempt.started > own / 2:
            self.slot.failed(error)  # otherwise earlier attempts used up the time
        return error

    def _name_by_client(self, error: ProxyError) -> None:
        """Replace the provider's ids of stored objects in a message by those of the client."""
        pin = self.call.state_ref
        if pin is not None and pin.id:
            error.message = error.message.replace(pin.id, pin.client_id)
        for given, own in self.call.item_ids:
            if own in error.message:  # a client may send an id as long as a body
                error.message = error.message.replace(own, ascii_word(given, MAX_ID))

    def sent(self) -> None:
        """Record that the upstream has the whole request and may work on it."""
        self.attempt.sent_at = self.record.now()

    def leave(self) -> None:
        """Record the end of the attempt and release its slot."""
        self.attempt.ended = self.record.now()
        self.slot.give_back()


Settle = Callable[[OpenAttempt, Sequence[Frame]], Awaitable[None]]


@dataclass(slots=True)
class HttpUpstreamResponse:
    """The response of an upstream. Its attempt ends when the response is left.

    ``offload`` reads large documents. ``share`` is its share of the memory for responses, None if
    that is not counted. It rests among ``turns`` after a large read without frames. ``settle`` gets
    the first frames before anything else, and decides who is billed.

    The response owns the reply once it is entered; before that, its creator does.
    """

    head: ResponseHead
    reply: Reply
    reader: FrameReader
    asked: OpenAttempt
    offload: Offload
    share: MemoryShare | None
    turns: LoopTurns
    settle: Settle | None = None
    _documents: deque[Document] = field(default_factory=deque)
    _frames: Sequence[Frame] = field(default_factory=list)
    _fault: ProxyError | None = None  # raised after the frames
    _is_bare: bool = False  # the last read made no frame
    _is_burst: bool = False
    _ends: Literal["open", "closed", "over"] = "open"
    _first: Sequence[Frame] = ()
    _has_begun: bool = False
    _left: bool = False
    _hand_on: HandOn | None = None
    _is_taken: bool = False  # the piece was passed on without waking the reader

    async def begin(self) -> None:
        """Wait for the frames up to the first content. Raises ``UpstreamError`` if the upstream
        fails before: another target may answer then. The caller records that failure; later ones
        are recorded here."""
        held: Sequence[Frame] = ()
        try:
            held = await self.__anext__()
            while not self.reader.holds and is_preamble(held):
                held = [*held, *await self.__anext__()]
        except StopAsyncIteration:
            pass
        except BaseException:
            for frame in held:  # the upstream has reported its usage all the same
                self.asked.attempt.meter.feed(frame, self.asked.record.now())
            self._give_back()
            raise
        self._first = held
        self._has_begun = True
        slot = self.asked.slot
        if slot.probe or slot.own_probe:
            slot.begun()

    def frames(self, hand_on: HandOn | None = None) -> Self:
        self._hand_on = None if self.reader.holds else hand_on
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[Frame]:
        """Return the frames that have arrived, or wait for more. A generator would cost more, as
        the event loop keeps track of each."""
        if self._first:
            first, self._first = self._first, ()
            return first if self.settle is None else await self._settled(first)
        try:
            while not (frames := self._ready()):
                if self._documents:
                    await self._read_in_thread(self._documents.popleft())
                elif self._is_burst:  # a read without frames is counted nowhere else
                    self._is_burst = False
                    await self.turns.rest(self.asked.call.scheduling_key)
                elif self._ends == "over" or self.asked.attempt.finished:
                    raise StopAsyncIteration
                elif self._ends == "closed":
                    self._close()
                else:
                    await self._next()
        except ProxyError as error:
            raise self.asked.fail(error) if self._has_begun else error from None
        return frames

    async def _settled(self, first: Sequence[Frame]) -> Sequence[Frame]:
        if self.settle is not None:
            await self.settle(self.asked, first)
        return first

    def _ready(self) -> Sequence[Frame]:
        """Return the frames that have arrived, none if there is more to wait for. Frames ahead of
        a fault are returned before it is raised."""
        if self._documents and not self._frames and self._fault is None:
            self._read()
        if self._frames:
            if self._frames[-1].last and self._ends == "open":
                self.reply.finish()
            return self._take_frames()
        if self._fault is not None:
            raise self._failure(self._fault)
        if self._is_bare and not self._documents:
            self._is_bare = False
            self.asked.record.has_ping = True
        return ()

    async def _next(self) -> None:
        """Wait for the next piece and take it."""
        if self._hand_on is None:
            self._take(await self.reply.read())
            return
        piece = await self.reply.read(self._pass_on)
        if not self._is_taken:
            self._take(piece)
        self._is_taken = False

    def _take(self, piece: bytes) -> None:
        """Take a piece, or the end of the bytes."""
        if not piece:
            self._ends = "closed"
            self._documents.extend(self.reader.close())
            return
        size = len(piece)
        self._is_burst, self._is_bare = size > BURST, True
        if self.share is not None:
            self.share.take(size)
        self._documents.extend(self.reader.feed(piece))

    def _close(self) -> None:
        """Take the frames after the last document."""
        self._ends = "over"
        try:
            self._frames = self.reader.end()
        except ProxyError as fault:
            self._frames, self._fault = self.reader.left(), fault

    def _pass_on(self, piece: bytes) -> bool:
        """Take a piece without waking the reader and hand its frames on. Return True if nothing
        else is left to do."""
        self._is_taken = True
        try:
            self._take(piece)
        except ProxyError as fault:
            self._fault = fault
            return False
        self._read()
        frames = self._frames
        if not frames or self._documents or self._fault is not None or self._is_burst:
            return False
        for frame in frames:
            data = _members(frame)
            if data is None or frame.last or DETECTIONS in data or HOOKS in data:
                return False
        if self._hand_on is None or not self._hand_on(frames):
            return False
        self._frames, self._is_bare, self._is_taken = [], False, False
        return True

    def _failure(self, fault: ProxyError) -> ProxyError:
        """Return the fault to raise, and drop it: its traceback will refer to this object."""
        self._fault = None
        return fault

    def _read(self) -> None:
        """Read the documents that have arrived, up to a large one."""
        documents, read = self._documents, self.reader.read
        frames = self._frames = list(self._frames)
        for _ in range(TOGETHER):
            if not documents or len(documents[0]) > LARGE_BYTES:
                return
            try:
                made = read(documents.popleft())
            except ProxyError as fault:
                frames += self.reader.left()
                self._fault = fault
                return
            frames += made
            if made and made[-1].last:
                return

    async def _read_in_thread(self, document: Document) -> None:
        """Read a large document in a thread."""
        read = partial(self.reader.read, document)
        try:
            self._frames = await self.offload.run(
                len(document), read, self.asked.call.scheduling_key
            )
        except ProxyError as fault:
            self._frames, self._fault = self.reader.left(), fault

    def _take_frames(self) -> Sequence[Frame]:
        """Return the frames that have arrived. A frame with findings of the upstream's guards, and
        the last frame, come alone."""
        self._is_bare = False
        frames = self._frames
        for place, frame in enumerate(frames):
            data = _members(frame)
            if frame.last or (data is not None and (DETECTIONS in data or HOOKS in data)):
                if place:
                    self._frames = frames[place:]
                    return frames[:place]
                self._frames = frames[1:]
                return (self._record(frame),)
        self._frames = []
        return frames

    def _record(self, frame: Frame) -> Frame:
        """Record findings, and the end of the attempt at the last frame: the target is free for
        others while guards still work."""
        data = _members(frame)
        if data is not None and (found := find_findings(data)):
            attempt = self.asked.attempt
            attempt.findings = merge_findings((*attempt.findings, *found))
        if frame.last:
            self.asked.slot.worked = True
            self.asked.attempt.finished = self._left = True
            self.asked.leave()
            if DIALECTS[self.asked.call.head.dialect].client.reads_times:
                return self._with_time(frame)
        return frame

    def _with_time(self, frame: Frame) -> Frame:
        """Return the frame with the time that the model took."""
        if frame.doc is None:
            return frame
        spent = round((self.asked.record.now() - self.asked.attempt.started) * 1000)
        *events, stop = frame.events
        doc = {**frame.doc, "prediction_time_ms": spent}
        timed = (*events, Extension("prediction_time_ms", spent), stop)
        return frame._replace(events=timed, doc=doc, raw=None)

    def _give_back(self) -> None:
        if self.share is not None:
            self.share.give_back()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if not self._left:
            self._left = True
            self.asked.leave()
        self._give_back()
        self.reply.leave()


def _members(frame: Frame) -> Json | None:
    """Return the vendor's members in a frame, by name; None for a keep-alive."""
    events = frame.events
    if len(events) == 1 and type(events[0]) is Delta:
        return NOTHING
    return {each.name: each.value for each in events if type(each) is Extension} if events else None
