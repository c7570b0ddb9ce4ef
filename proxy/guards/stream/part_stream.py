"""Frames of one streamed text, which wait until their part of it is clear."""

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

    def append(self, held_text: HeldText) -> None:
        """Let a text wait, whose characters are fed next."""
        held_text.stream = ref(self)
        if self._unclear is not None:
            self._queue[-1].next = held_text
        elif held_text.unclear:
            self._unclear = held_text
        self._queue.append(held_text)

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
        held_text = self._queue[0] if self._queue else None
        if held_text is not None and held_text.size > self._filter.lookback:
            delta = _splittable(held_text)
            if delta is not None:
                out.append(_split(held_text, delta))
        return out

    def _take(self, piece: ReleasedPiece, out: list[Frame]) -> None:
        """Spread a piece over the texts that it is of. A replacement goes to the first of them."""
        text, size = piece.text, piece.size
        while size:
            held_text = self._unclear
            if held_text is None:
                raise ValueError("A filter released more text than it was fed.")
            length = min(held_text.unclear, size)
            released, text = (text, "") if piece.changed else (text[:length], text[length:])
            held_text.clear.append(released)
            held_text.size += length
            held_text.unclear -= length
            size -= length
            if piece.changed:
                held_text.is_masked = True
                self._note(held_text)
            if not held_text.unclear:
                while self._unclear is not None and not self._unclear.unclear:
                    self._unclear = self._unclear.next
                self._drain(out)

    def _drain(self, out: list[Frame]) -> None:
        """Return the frames at the head that are clear, and those of other streams that these
        held up."""
        stream: PartStream = self
        blocked_streams: list[PartStream] = []
        while True:
            held_text = stream._queue[0] if stream._queue else None
            if (
                held_text is None
                or held_text.unclear
                or (held_text.group and not held_text.group.is_ready())
            ):
                if not blocked_streams:
                    return
                stream = blocked_streams.pop()
            elif held_text.group is None:
                stream._queue.popleft()
                out += stream._frames_of(held_text)
            else:
                out.append(_with_texts(held_text.frame, held_text.group.texts))
                streams = [
                    other_stream
                    for text in held_text.group.texts
                    if (other_stream := _stream_of(text))
                ]
                for other_stream in streams:
                    other_stream._queue.popleft()
                blocked_streams += [
                    stream,
                    *reversed(
                        [other_stream for other_stream in streams if other_stream is not stream]
                    ),
                ]
                stream = blocked_streams.pop()

    def _note(self, held_text: HeldText) -> None:
        event = held_text.frame.events[held_text.event] if held_text.event >= 0 else None
        if isinstance(event, Delta):
            self._edited.add(event.part)

    def _frames_of(self, held_text: HeldText) -> list[Frame]:
        if held_text.is_masked or held_text.is_split:
            text = "".join(held_text.clear)
            if held_text.event < 0:
                return [with_changes(held_text.frame, {held_text.path: text})]
            return [
                with_text(held_text.frame, held_text.event, text, is_masked=held_text.is_masked)
            ]
        return (
            [held_text.frame] if held_text.event >= 0 else unsigned(held_text.frame, self._edited)
        )


def unsigned(frame: Frame, edited: set[Part]) -> list[Frame]:
    """Return a frame without the signature of a part whose text has changed, if anything else is in
    it."""
    for event in frame.events if edited else ():
        if isinstance(event, Attach) and event.name == "signature" and event.part in edited:
            return [] if len(frame.events) == 1 else [without(frame, "signature")]
    return [frame]


def _splittable(held_text: HeldText) -> Delta | None:
    """Return the delta of a text that may leave in two frames, or None. A writer of Responses puts
    a text without a document into the event that repeats it."""
    delta = (
        held_text.frame.events[held_text.event]
        if held_text.event >= 0 and held_text.group is None
        else None
    )
    if not isinstance(delta, Delta) or delta.part.kind not in SHOWN | CALLS:
        return None
    return delta if held_text.frame.family != "responses" or _is_delta(held_text.frame) else None


def _split(held_text: HeldText, delta: Delta) -> Frame:
    """Return a frame with the clear beginning of a text, and leave the rest in ``held``. The rest
    has no document if the frame has other events than the text and its values."""
    frame = held_text.frame
    clear_frame = with_text(
        frame, held_text.event, "".join(held_text.clear), is_masked=True
    )._replace(last=False)
    if not _is_delta(frame):
        empty_delta = Delta(delta.part, "")
        held_text.frame = Frame(
            (empty_delta,), frame.family, model_call=frame.model_call, last=frame.last
        )
    if held_text.frame.doc is None:
        held_text.event = 0
    held_text.clear, held_text.size, held_text.is_split = [], 0, True
    return clear_frame


def _is_delta(frame: Frame) -> bool:
    """Return True if a frame has only a text and its values."""
    return all(isinstance(event, Delta | Attach) for event in frame.events)


def _stream_of(held_text: HeldText) -> PartStream | None:
    return None if held_text.stream is None else held_text.stream()


def _with_texts(frame: Frame, texts: Iterable[HeldText]) -> Frame:
    changes: dict[Path, str] = {}
    for held_text in texts:
        if not held_text.is_masked:
            continue
        text = "".join(held_text.clear)
        if held_text.event >= 0:
            frame = with_text(frame, held_text.event, text, is_masked=True)
        else:
            changes[held_text.path] = text
    return with_changes(frame, changes)
