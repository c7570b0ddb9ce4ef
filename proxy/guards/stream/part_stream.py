"""Texts of the parts of a stream, and the frames that wait until their texts are clear."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from proxy.errors import ResponseTooLarge
from proxy.guards.stream.frame_texts import (
    CHAT_FAMILIES,
    remove_attachment,
    replace_frame_texts,
)
from proxy.guards.stream.text_filter import ReleasedText, TextFilter
from proxy.guards.text.walk import Path
from proxy.types.events import TOOL_CALL_KINDS, VISIBLE_KINDS, Attach, Delta, Frame, Part

MAX_WAITING = 4096
"""Frames that wait although none of their own text is held."""
BYTES_PER_FRAME = 2048  # a larger frame counts as several


@dataclass(slots=True, eq=False)
class HeldText:
    """A text of a frame that waits until the filter of its part has released it up to ``end``.

    ``path`` is its path in the frame, ``part`` that of a delta. ``edits`` are replaced spans.
    ``group`` is None if the frame has no other text. ``load`` is None until ``WaitingFrameLoad``
    counts the text.
    """

    frame: Frame
    path: Path
    text: str
    part: Part | None = None
    end: int = 0
    edits: list[tuple[int, int, str]] = field(default_factory=list)
    group: HeldFrameTexts | None = None
    load: int | None = None

    def apply_edits(self, end: int | None = None) -> str:
        """Return the text up to ``end`` with its edits."""
        parts, past = list[str](), 0
        for start, stop, replacement in self.edits:
            parts += (self.text[past:start], replacement)
            past = stop
        return "".join([*parts, self.text[past:end]])


@dataclass(slots=True, eq=False)
class HeldFrameTexts:
    """The texts of one frame and their streams. The texts are released together."""

    texts: Sequence[HeldText]
    streams: Sequence[PartStream]
    _ready: int = 0

    def is_ready(self) -> bool:
        """Return True if each text has been released by its filter and heads the queue of its part.

        A text stays ready until the frame is released, so each text is checked once.
        """
        while self._ready < len(self.texts):
            stream = self.streams[self._ready]
            head = stream.head
            if head is None or head.group is not self or stream.is_held(self.texts[self._ready]):
                return False
            self._ready += 1
        return True


@dataclass(slots=True)
class WaitingFrameLoad:
    """Load of the frames of a response that wait although their own text is clear.

    Frames whose own text is held do not count, because filters hold a bounded text. The load is not
    bounded if a rule holds the response to its end: ``MemoryShare`` counts it. Raises
    ``ResponseTooLarge``.
    """

    is_bounded: bool
    _load: int = 0

    def add_frame(self, frame: Frame) -> int:
        """Count a frame and return its load, in units of ``BYTES_PER_FRAME``."""
        load = 1 + max(frame.size, len(frame.raw or b"")) // BYTES_PER_FRAME
        self._load += load
        if self.is_bounded and self._load > MAX_WAITING:
            raise ResponseTooLarge("The upstream sent too many events while text was withheld.")
        return load

    def remove(self, load: int) -> None:
        self._load -= load


@dataclass(slots=True, eq=False, repr=False)
class PartStream:
    """One text, and the frames that wait for it.

    ``edited_parts`` are the parts whose text has changed.
    """

    filter: TextFilter
    edited_parts: set[Part]
    waiting: WaitingFrameLoad
    ends_with_choice: bool
    _size: int = 0  # characters received
    _clear: int = 0  # characters released
    _held: deque[HeldText] = field(default_factory=deque)
    _ready: deque[HeldText] = field(default_factory=deque)  # released, before those of ``_held``

    @property
    def head(self) -> HeldText | None:
        """The text that is released next."""
        queue = self._ready or self._held
        return queue[0] if queue else None

    def is_held(self, held_text: HeldText) -> bool:
        """Return True if the filter has not yet released all of a text."""
        return held_text.end > self._clear

    def append(self, held_text: HeldText) -> None:
        """Append a text to the queue. Its characters are fed next.

        A frame without content is dropped if it would have to wait.
        """
        if not held_text.text:
            if self.head is not None and not _must_keep_frame(held_text):
                return
            self._count_waiting_frame(held_text)
        self._size = held_text.end = self._size + len(held_text.text)
        (self._held if held_text.end > self._clear else self._ready).append(held_text)

    def feed(self, text: str) -> list[Frame]:
        """Add characters and return the frames that they release."""
        pieces = self.filter.feed(text)
        return self._release_pieces(pieces) if pieces or self._ready else []

    def flush(self) -> list[Frame]:
        """Return all waiting frames, because another frame follows. The text may continue."""
        return self._release_pieces(self.filter.flush())

    def close(self) -> list[Frame]:
        """Return all waiting frames, because the text has ended."""
        return self._release_pieces(self.filter.close())

    def _release_pieces(self, pieces: Sequence[ReleasedText]) -> list[Frame]:
        held = self._held
        for text, size, is_changed in pieces:
            if is_changed:
                self._record_edit(self._clear, self._clear + size, text)
            self._clear += size
            while held and held[0].end <= self._clear:
                self._ready.append(held.popleft())
        out = self._drain_ready_frames()
        for held_text in reversed(self._ready):  # their frames wait for other texts
            if held_text.load is not None:
                break
            self._count_waiting_frame(held_text)
        if held and not self._ready:
            cleared_chars = self._clear - (held[0].end - len(held[0].text))
            if cleared_chars > self.filter.lookback:
                out += _split_off_cleared_frame(held[0], cleared_chars)
        return out

    def _count_waiting_frame(self, held_text: HeldText) -> None:
        """Count the frame of a text once."""
        group = held_text.group
        is_first = group is None or group.texts[0] is held_text
        held_text.load = self.waiting.add_frame(held_text.frame) if is_first else 0

    def _record_edit(self, start: int, end: int, replacement: str) -> None:
        """Replace a span of the stream, in the first text that the span covers."""
        for held_text in self._held:
            begin = held_text.end - len(held_text.text)
            if begin >= end:
                return
            if begin == held_text.end:
                continue
            span = max(start, begin) - begin, min(end, held_text.end) - begin
            held_text.edits.append((*span, replacement))
            replacement = ""
            if held_text.part is not None:
                self.edited_parts.add(held_text.part)

    def _drain_ready_frames(self) -> list[Frame]:
        """Return the clear frames at the head, and frames of other streams that they blocked."""
        out: list[Frame] = []
        streams = [self]
        while streams:
            ready = streams[-1]._ready
            group = ready[0].group if ready else None
            if not ready or (group and not group.is_ready()):
                streams.pop()
            elif group is None:
                self._emit_frame([ready.popleft()], out)
            else:
                self._emit_frame(group.texts, out)
                for stream in group.streams:
                    stream._ready.popleft()
                streams += reversed(group.streams)
        return out

    def _emit_frame(self, texts: Sequence[HeldText], released_frames: list[Frame]) -> None:
        """Add the frame of texts that are clear, unless it only has a signature to remove."""
        for text in texts:
            if text.load:
                self.waiting.remove(text.load)
        frame, edited_parts = texts[0].frame, self.edited_parts
        changes = {text.path: text.apply_edits() for text in texts if text.edits}
        if changes or edited_parts:
            frame = replace_frame_texts(frame, changes)
            released_frames += remove_broken_signature(frame, edited_parts)
        else:
            released_frames.append(frame)


def close_streams(streams: Iterable[PartStream]) -> list[Frame]:
    return [frame for stream in streams for frame in stream.close()]


def _must_keep_frame(held_text: HeldText) -> bool:
    """Return False for the frame of an empty delta, and of a chat chunk without events."""
    frame, events = held_text.frame, held_text.frame.events
    if held_text.group is not None or frame.last or len(events) > 1:
        return True
    if not events:
        return frame.family not in CHAT_FAMILIES  # an event of Responses may repeat a text
    return type(events[0]) is not Delta or bool(events[0].text)


def remove_broken_signature(frame: Frame, edited_parts: set[Part]) -> list[Frame]:
    """Return a frame without the signature of a changed part, none if nothing else is in it.

    A frame with text keeps it: the id of a tool call carries the signature of the call.
    """
    if not edited_parts or any(isinstance(event, Delta) for event in frame.events):
        return [frame]
    for event in frame.events:
        if isinstance(event, Attach) and event.name == "signature" and event.part in edited_parts:
            return [] if len(frame.events) == 1 else [remove_attachment(frame, "signature")]
    return [frame]


def _split_off_cleared_frame(held_text: HeldText, cleared_chars: int) -> list[Frame]:
    """Return a frame with the clear beginning of a text, and leave the rest in ``held_text``.

    The rest has no document if the frame has other events than the text and its values. A
    writer of Responses puts a text without a document into the event that repeats it.
    """
    frame, part = held_text.frame, None if held_text.group else held_text.part
    is_delta = all(isinstance(event, Delta | Attach) for event in frame.events)
    if part is None or part.kind not in VISIBLE_KINDS | TOOL_CALL_KINDS:
        return []
    if frame.family == "responses" and not is_delta:
        return []
    clear_frame = replace_frame_texts(frame, {held_text.path: held_text.apply_edits(cleared_chars)})
    if not is_delta:
        events = (Delta(part, ""),)
        held_text.frame = Frame(events, frame.family, model_call=frame.model_call, last=frame.last)
        held_text.path = (0,)
    held_text.text, held_text.edits = held_text.text[cleared_chars:], [(0, 0, "")]
    return [clear_frame._replace(last=False)]
