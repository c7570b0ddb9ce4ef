"""A text that goes on from frame to frame, and the frames that wait until it is clear."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from weakref import ReferenceType, ref

from proxy.guards.stream.edits import is_delta, parted, with_changes, with_text, without
from proxy.guards.stream.text_filter import ReleasedPiece, TextFilter
from proxy.guards.text.walk import Path
from proxy.types.events import CALLS, SHOWN, Attach, Delta, Frame, Part


class HeldText:
    """A text of a frame that waits, of which `unclear` characters are not clear yet.

    `event` is the number of its delta, -1 for a text that only the document has, at `path`. `rest`
    are the other texts of the same frame.
    """

    __slots__ = (
        *("clear", "event", "frame", "is_masked", "is_split", "path", "rest", "size", "stream"),
        "unclear",
    )

    def __init__(self, frame: Frame, event: int, path: Path, unclear: int) -> None:
        self.frame = frame
        self.event = event
        self.path = path
        self.unclear = unclear
        self.clear: list[str] = []
        self.size = 0
        self.is_masked = self.is_split = False
        self.rest: Sequence[HeldText] = ()
        self.stream: ReferenceType[PartStream] | None = None  # weak, as the stream has this text


class PartStream:
    """One text, and the frames that wait for it. `edited` are the parts whose text has changed."""

    __slots__ = ("__weakref__", "_edited", "_filter", "_queue", "ends")

    def __init__(self, text_filter: TextFilter, edited: set[Part], *, ends: bool) -> None:
        self._filter = text_filter
        self._edited = edited
        self._queue: deque[HeldText] = deque()
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
        self._queue.append(held)

    def feed(self, text: str) -> list[Frame]:
        """Take the next characters, return the frames that they release."""
        pieces = self._filter.feed(text)
        return self._released(pieces) if pieces or not self._queue[0].unclear else []

    def let_go(self) -> list[Frame]:
        """Return all frames that wait, because something else follows. The text may go on."""
        return self._released(self._filter.let_go())

    def flush(self) -> list[Frame]:
        """Return all frames that wait, because the text has ended."""
        return self._released(self._filter.flush())

    def _released(self, pieces: Iterable[ReleasedPiece]) -> list[Frame]:
        out: list[Frame] = []
        for piece in pieces:
            self._take(piece, out)
        self._drain(out)
        held = self._queue[0] if self._queue else None
        if held is not None and held.size > self._filter.reach and self._may_part(held):
            first, held.frame = parted(held.frame, held.event, "".join(held.clear))
            if held.frame.doc is None:
                held.event = 0
            held.clear, held.size, held.is_split = [], 0, True
            out.append(first)
        return out

    def _take(self, piece: ReleasedPiece, out: list[Frame]) -> None:
        """Spread a piece over the texts that it is of. A replacement goes to the first of them."""
        text, size = piece.text, piece.size
        while size:
            held = self._queue[0]
            if not held.unclear:  # its frame waits for another text
                held = next(each for each in self._queue if each.unclear)
            taken = min(held.unclear, size)
            shown, text = (text, "") if piece.changed else (text[:taken], text[taken:])
            held.clear.append(shown)
            held.size += taken
            held.unclear -= taken
            size -= taken
            if piece.changed:
                held.is_masked = True
                self._note(held)
            if not held.unclear:
                self._drain(out)

    def _drain(self, out: list[Frame]) -> None:
        """Return the frames at the head that are clear."""
        queue = self._queue
        while queue and not queue[0].unclear:
            held = queue[0]
            if not held.rest:
                queue.popleft()
                out += self._shown(held)
                continue
            texts = (held, *held.rest)
            if not all(_is_next(each, texts) for each in texts):
                return
            streams = [_stream_of(each) for each in texts]
            for stream in streams:
                if stream is not None:
                    stream._queue.popleft()
            out.append(_with_texts(held.frame, texts))
            for stream in streams[1:]:
                if stream is not None and stream is not self:
                    stream._drain(out)

    def _may_part(self, held: HeldText) -> bool:
        """Return True if a text may leave in two frames. A writer of Responses puts a text without
        a document into the event that repeats it."""
        if held.event < 0 or held.rest:
            return False
        delta = held.frame.events[held.event]
        is_written = isinstance(delta, Delta) and delta.part.kind in SHOWN | CALLS
        return is_written and (held.frame.family != "responses" or is_delta(held.frame))

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


def _is_next(held: HeldText, texts: Sequence[HeldText]) -> bool:
    """Return True if a text is clear, and at the head of its queue but for others of its frame."""
    stream = _stream_of(held)
    return not held.unclear and (stream is None or stream._queue[0] in texts)


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
