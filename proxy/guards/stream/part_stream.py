"""A text that goes on from frame to frame, and the frames that wait until it is clear."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from weakref import ReferenceType, ref

from proxy.guards.stream.frame_texts import with_changes, with_text, without
from proxy.guards.stream.text_filter import ReleasedPiece, TextFilter
from proxy.guards.text.walk import Path
from proxy.types.events import CALLS, SHOWN, Attach, Delta, Frame, Part


class HeldText:
    """A text of a frame that waits, of which `unclear` characters are not clear yet.

    `event` is the number of its delta, -1 for a text that only the document has, at `path`.
    `group` are all texts of the frame if it has several. `next` waits behind it in its stream.
    """

    __slots__ = (
        *("clear", "event", "frame", "group", "is_masked", "is_split", "next", "path", "size"),
        *("stream", "unclear"),
    )

    def __init__(self, frame: Frame, event: int, path: Path, unclear: int) -> None:
        self.frame = frame
        self.event = event
        self.path = path
        self.unclear = unclear
        self.clear: list[str] = []
        self.size = 0
        self.is_masked = self.is_split = False
        self.group: HeldGroup | None = None
        self.next: HeldText | None = None
        self.stream: ReferenceType[PartStream] | None = None  # weak, as the stream has this text


class HeldGroup:
    """The texts of one frame, which leave together."""

    __slots__ = ("_ready", "texts")

    def __init__(self, texts: Sequence[HeldText]) -> None:
        self.texts = texts
        self._ready = 0

    def is_ready(self) -> bool:
        """Return True if each text is clear, and at the head of its queue but for others of the
        group. A text stays so until the group leaves, so it is checked once."""
        while self._ready < len(self.texts):
            text = self.texts[self._ready]
            stream = _stream_of(text)
            if text.unclear or (stream is not None and stream._queue[0].group is not self):
                return False
            self._ready += 1
        return True


class PartStream:
    """One text, and the frames that wait for it. `edited` are the parts whose text has changed."""

    __slots__ = ("__weakref__", "_edited", "_filter", "_queue", "_unclear", "ends")

    def __init__(self, text_filter: TextFilter, edited: set[Part], *, ends: bool) -> None:
        self._filter = text_filter
        self._edited = edited
        self._queue: deque[HeldText] = deque()
        self._unclear: HeldText | None = None  # the first of the queue that is not clear
        self.ends = ends

    @property
    def is_waiting(self) -> bool:
        return bool(self._queue)

    def weight(self, text: str) -> int:
        return self._filter.weight(text)

    def weight_of_end(self) -> int:
        return self._filter.weight_of_end()

    def append(self, held: HeldText) -> None:
        """Let a text wait, whose characters are fed next."""
        held.stream = ref(self)
        if self._unclear is not None:
            self._queue[-1].next = held
        elif held.unclear:
            self._unclear = held
        self._queue.append(held)

    def feed(self, text: str) -> list[Frame]:
        """Take the next characters, return the frames that they release."""
        pieces = self._filter.feed(text)
        return self._released(pieces) if pieces or not self._queue[0].unclear else []

    def release(self) -> list[Frame]:
        """Return all frames that wait, because something else follows. The text may go on."""
        return self._released(self._filter.release())

    def close(self) -> list[Frame]:
        """Return all frames that wait, because the text has ended."""
        return self._released(self._filter.close())

    def _released(self, pieces: Iterable[ReleasedPiece]) -> list[Frame]:
        out: list[Frame] = []
        for piece in pieces:
            self._take(piece, out)
        self._drain(out)
        held = self._queue[0] if self._queue else None
        if held is not None and held.size > self._filter.lookback:
            delta = _splittable(held)
            if delta is not None:
                out.append(_split(held, delta))
        return out

    def _take(self, piece: ReleasedPiece, out: list[Frame]) -> None:
        """Spread a piece over the texts that it is of. A replacement goes to the first of them."""
        text, size = piece.text, piece.size
        while size:
            held = self._unclear
            if held is None:
                raise ValueError("A filter released more text than it was fed.")
            length = min(held.unclear, size)
            released, text = (text, "") if piece.changed else (text[:length], text[length:])
            held.clear.append(released)
            held.size += length
            held.unclear -= length
            size -= length
            if piece.changed:
                held.is_masked = True
                self._note(held)
            if not held.unclear:
                while self._unclear is not None and not self._unclear.unclear:
                    self._unclear = self._unclear.next
                self._drain(out)

    def _drain(self, out: list[Frame]) -> None:
        """Return the frames at the head that are clear, and those of other streams that these
        held up."""
        stream: PartStream = self
        blocked_streams: list[PartStream] = []
        while True:
            held = stream._queue[0] if stream._queue else None
            if held is None or held.unclear or (held.group and not held.group.is_ready()):
                if not blocked_streams:
                    return
                stream = blocked_streams.pop()
            elif held.group is None:
                stream._queue.popleft()
                out += stream._shown(held)
            else:
                out.append(_with_texts(held.frame, held.group.texts))
                streams = [each for text in held.group.texts if (each := _stream_of(text))]
                for each in streams:
                    each._queue.popleft()
                blocked_streams += [
                    stream,
                    *reversed([each for each in streams if each is not stream]),
                ]
                stream = blocked_streams.pop()

    def _note(self, held: HeldText) -> None:
        event = held.frame.events[held.event] if held.event >= 0 else None
        if isinstance(event, Delta):
            self._edited.add(event.part)

    def _shown(self, held: HeldText) -> list[Frame]:
        if held.is_masked or held.is_split:
            text = "".join(held.clear)
            if held.event < 0:
                return [with_changes(held.frame, {held.path: text})]
            return [with_text(held.frame, held.event, text, is_masked=held.is_masked)]
        return [held.frame] if held.event >= 0 else unsigned(held.frame, self._edited)


def unsigned(frame: Frame, edited: set[Part]) -> list[Frame]:
    """Return a frame without the signature of a part whose text has changed, if anything else is in
    it."""
    for event in frame.events if edited else ():
        if isinstance(event, Attach) and event.name == "signature" and event.part in edited:
            return [] if len(frame.events) == 1 else [without(frame, "signature")]
    return [frame]


def _splittable(held: HeldText) -> Delta | None:
    """Return the delta of a text that may leave in two frames, or None. A writer of Responses puts
    a text without a document into the event that repeats it."""
    delta = held.frame.events[held.event] if held.event >= 0 and held.group is None else None
    if not isinstance(delta, Delta) or delta.part.kind not in SHOWN | CALLS:
        return None
    return delta if held.frame.family != "responses" or _is_delta(held.frame) else None


def _split(held: HeldText, delta: Delta) -> Frame:
    """Return a frame with the clear beginning of a text, and leave the rest in ``held``. The rest
    has no document if the frame has other events than the text and its values."""
    frame = held.frame
    first = with_text(frame, held.event, "".join(held.clear), is_masked=True)._replace(last=False)
    if not _is_delta(frame):
        rest = Delta(delta.part, "")
        held.frame = Frame((rest,), frame.family, model_call=frame.model_call, last=frame.last)
    if held.frame.doc is None:
        held.event = 0
    held.clear, held.size, held.is_split = [], 0, True
    return first


def _is_delta(frame: Frame) -> bool:
    """Return True if a frame has a text and its values alone."""
    return all(isinstance(event, Delta | Attach) for event in frame.events)


def _stream_of(held: HeldText) -> PartStream | None:
    return None if held.stream is None else held.stream()


def _with_texts(frame: Frame, texts: Iterable[HeldText]) -> Frame:
    changes: dict[Path, str] = {}
    for held in texts:
        if not held.is_masked:
            continue
        text = "".join(held.clear)
        if held.event >= 0:
            frame = with_text(frame, held.event, text, is_masked=True)
        else:
            changes[held.path] = text
    return with_changes(frame, changes)
