"""Frames of one streamed text, which wait until their part of it is clear."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from proxy.guards.stream.frame_texts import delta_at, with_changes, without
from proxy.guards.stream.text_filter import ReleasedPiece, TextFilter
from proxy.guards.text.walk import Path
from proxy.types.events import CALLS, SHOWN, Attach, Delta, Frame, Part


class HeldText:
    """A text of a frame that waits, of which `unclear` characters are not clear yet.

    `path` is its path in the frame. `group` is None if the frame has no other text.
    """

    __slots__ = ("clear", "frame", "group", "is_changed", "path", "size", "unclear")

    def __init__(self, frame: Frame, path: Path, unclear: int) -> None:
        self.frame = frame
        self.path = path
        self.unclear = unclear
        self.clear: list[str] = []
        self.size = 0
        self.is_changed = False
        self.group: HeldGroup | None = None


class HeldGroup:
    """The texts of one frame and their streams. The texts leave together."""

    __slots__ = ("_ready", "streams", "texts")

    def __init__(self, texts: Sequence[HeldText], streams: Sequence[PartStream]) -> None:
        self.texts = texts
        self.streams = streams
        self._ready = 0

    def is_ready(self) -> bool:
        """Return True if each text is clear, and at the head of its queue but for others of the
        group. A text stays so until the group leaves, so it is checked once."""
        while self._ready < len(self.texts):
            head = self.streams[self._ready].head
            if self.texts[self._ready].unclear or head is None or head.group is not self:
                return False
            self._ready += 1
        return True


class PartStream:
    """One text, and the frames that wait for it. `edited` are the parts whose text has changed."""

    __slots__ = ("_edited", "_filter", "_queue", "_unclear", "ends")

    def __init__(self, text_filter: TextFilter, edited: set[Part], *, ends: bool) -> None:
        self._filter = text_filter
        self._edited = edited
        self._queue: deque[HeldText] = deque()
        self._unclear: deque[HeldText] = deque()  # those of the queue that are not clear
        self.ends = ends

    @property
    def head(self) -> HeldText | None:
        """The text that leaves next."""
        return self._queue[0] if self._queue else None

    def weight(self, text: str) -> int:
        return self._filter.weight(text)

    def weight_of_end(self) -> int:
        return self._filter.weight_of_end()

    def append(self, held_text: HeldText) -> None:
        """Let a text wait, whose characters are fed next."""
        self._queue.append(held_text)
        if held_text.unclear:
            self._unclear.append(held_text)

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

    def _released(self, pieces: Sequence[ReleasedPiece]) -> list[Frame]:
        out: list[Frame] = []
        for piece in pieces:
            self._take(piece, out)
        self._drain(out)
        held_text = self.head
        if held_text is not None and held_text.size > self._filter.lookback:
            out += _split(held_text)
        return out

    def _take(self, piece: ReleasedPiece, out: list[Frame]) -> None:
        """Spread a piece over the texts that it is of. A replacement goes to the first of them."""
        text, size = piece.text, piece.size
        while size:
            held_text = self._unclear[0]
            length = min(held_text.unclear, size)
            released, text = (text, "") if piece.changed else (text[:length], text[length:])
            held_text.clear.append(released)
            held_text.size += length
            held_text.unclear -= length
            size -= length
            if piece.changed:
                held_text.is_changed = True
                delta = delta_at(held_text.frame, held_text.path)
                if delta is not None:
                    self._edited.add(delta.part)
            if not held_text.unclear:
                self._unclear.popleft()
                self._drain(out)

    def _drain(self, out: list[Frame]) -> None:
        """Return the frames at the head that are clear, and those of other streams that these
        held up."""
        streams = [self]
        while streams:
            held_text = streams[-1].head
            group = None if held_text is None else held_text.group
            if held_text is None or held_text.unclear or (group and not group.is_ready()):
                streams.pop()
                continue
            texts, of_texts = (
                (group.texts, group.streams) if group else ((held_text,), streams[-1:])
            )
            changes = {text.path: "".join(text.clear) for text in texts if text.is_changed}
            out += unsigned(with_changes(held_text.frame, changes), self._edited)
            for stream in of_texts:
                stream._queue.popleft()
            streams += [stream for stream in reversed(of_texts) if stream is not streams[-1]]


def unsigned(frame: Frame, edited: set[Part]) -> list[Frame]:
    """Return a frame without the signature of a part whose text has changed, if anything else is in
    it."""
    for event in frame.events if edited else ():
        if isinstance(event, Attach) and event.name == "signature" and event.part in edited:
            return [] if len(frame.events) == 1 else [without(frame, "signature")]
    return [frame]


def _split(held_text: HeldText) -> list[Frame]:
    """Return a frame with the clear beginning of a text, and leave the rest in ``held_text``. The
    rest has no document if the frame has other events than the text and its values. A writer of
    Responses puts a text without a document into the event that repeats it."""
    frame = held_text.frame
    delta = None if held_text.group else delta_at(frame, held_text.path)
    is_delta = all(isinstance(event, Delta | Attach) for event in frame.events)
    if delta is None or delta.part.kind not in SHOWN | CALLS:
        return []
    if frame.family == "responses" and not is_delta:
        return []
    clear_frame = with_changes(frame, {held_text.path: "".join(held_text.clear)})
    if not is_delta:
        events = (Delta(delta.part, ""),)
        held_text.frame = Frame(events, frame.family, model_call=frame.model_call, last=frame.last)
        held_text.path = (0,)
    held_text.clear, held_text.size, held_text.is_changed = [], 0, True
    return [clear_frame._replace(last=False)]
