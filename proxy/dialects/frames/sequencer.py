"""Reorders interleaved parts: one part ends before another begins.

Clients of Messages and Responses read one block or item after the other, and guards read each text
as one. An upstream may interleave its parts: chat does so in its chunks, Messages and Responses
between the events that begin and end a part. A part passes until it ends; the frames of others wait
for that, within bounds.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from proxy.errors import ResponseTooLarge, UpstreamInvalid
from proxy.types.events import (
    VISIBLE_KINDS,
    Delta,
    Event,
    Finish,
    Frame,
    Kind,
    Part,
    PartEnd,
    PartStart,
    ResponseEnd,
    replace_only_delta_text,
)

MAX_FRAMES = 4096
"""Maximum number of waiting frames. Consecutive deltas of one part count as one frame."""
MAX_BYTES = 8 * 1024 * 1024
"""Maximum size of the waiting frames in bytes."""
FRAME_BYTES = 256
"""Memory of a frame in addition to its text."""
JSON_SPACE = " \t\r\n"
_MARK = re.compile(r'["{}\[\]]')
_IN_STRING = re.compile(r'["\\]')
_OUTSIDE = re.compile(rf"[^{JSON_SPACE}]")


class JsonEndDetector:
    """Detects in linear time whether a JSON object that arrives in pieces is complete."""

    def __init__(self) -> None:
        self._begun = False
        self._broken = False  # True if there is anything but one object
        self._depth = 0
        self._in_string = False
        self._escaped = False

    @property
    def is_object_complete(self) -> bool:
        """True if the object is whole, and nothing but space follows it."""
        return self._begun and self._depth == 0 and not self._broken

    def feed(self, member: str, text: str) -> None:
        """Read the next piece of a tool call's ``arguments``. Its ``input`` is not JSON."""
        self._broken = self._broken or member != "arguments"
        position = 0
        while position < len(text) and not self._broken:
            if self._escaped:
                self._escaped = False
                position += 1
                continue
            pattern = _IN_STRING if self._in_string else _MARK if self._depth else _OUTSIDE
            match = pattern.search(text, position)
            if match is None:
                return
            position, mark = match.end(), match[0]
            if self._in_string:
                self._in_string = self._escaped = mark == "\\"
            elif not self._depth:
                self._broken = self._begun or mark != "{"
                self._begun = True
                self._depth = 1
            elif mark == '"':
                self._in_string = True
            else:
                self._depth += 1 if mark in "{[" else -1


class _PartQueue:
    """Waiting frames of one part. Consecutive deltas are joined when they are released."""

    __slots__ = ("frames", "size")

    def __init__(self) -> None:
        self.frames: deque[tuple[Frame, list[str]]] = deque()
        self.size = 0

    def add_frame(self, frame: Frame) -> None:
        delta = frame.events[0] if len(frame.events) == 1 else None
        if type(delta) is not Delta:
            self.frames.append((frame, []))
        elif self.frames and self.frames[-1][1] and _can_join_deltas(self.frames[-1][0], frame):
            self.frames[-1][1].append(delta.text)
        else:
            self.frames.append((frame, [delta.text]))

    def __iter__(self) -> Iterator[Frame]:
        while self.frames:
            frame, texts = self.frames.popleft()
            yield replace_only_delta_text(frame, "".join(texts)) if len(texts) > 1 else frame


class Sequencer:
    """Reorders the frames of one response. Frames have at most one delta.

    ``feed`` and ``end`` raise ``ResponseTooLarge`` above a bound, and ``UpstreamInvalid`` if a tool
    call continues after its arguments are complete. ``end`` then returns the frames before that
    fault. After the first frame that waited, frames have no ``raw``. If clients join texts by the
    indexes of their parts (``is_joined_by_index``), texts in another order raise
    ``UpstreamInvalid``.
    """

    def __init__(self, *, is_joined_by_index: bool = False) -> None:
        self._is_joined_by_index = is_joined_by_index
        self._indexes: dict[Kind, tuple[int, ...]] = {}  # indexes of the last text of a kind
        self._root: Part | None = None  # the open part without a parent
        self._child: Part | None = None  # its open child
        self._roots: dict[Part, _PartQueue] = {}
        self._children: dict[Part, _PartQueue] = {}  # children of the open root
        self._closed: set[Part] = set()  # parts that the sequencer has closed
        self._continuations: dict[Part, Part] = {}  # of closed parts, by original part
        self._json: JsonEndDetector | None = None  # end of the JSON text of the open root
        self._finishes: dict[int, Frame] = {}  # finish frames of choices with waiting parts
        self._ready: list[Frame] = []  # frames to return with the next call
        self._moved = False
        self._count = self._bytes = 0

    def feed(self, frame: Frame) -> list[Frame]:
        """Add a frame. Return the frames that can be released in order."""
        events = frame.events
        if len(events) == 1:
            event = events[0]
            if type(event) is Delta:
                part = event.part
                is_open = part is self._child or (part is self._root and self._child is None)
                if is_open and self._json is None and part not in self._continuations:
                    return [frame if not self._moved else frame._replace(raw=None)]
        self._order_frame(frame)
        out, self._ready = self._ready, []
        return out

    def end(self) -> list[Frame]:
        """Return all waiting frames at the end of the response."""
        self._release_all_frames()
        out, self._ready = self._ready, []
        return out

    def _release_all_frames(self) -> None:
        """Release all waiting frames. End a part that is still open before the next begins."""
        self._end_open_part_unless_marked()
        while self._children or self._roots:
            if self._child is not None:
                self._ready.append(Frame((PartEnd(self._child),)))
                self._child = None
            if self._children:
                self._release_child_parts()
                continue
            if self._root is not None:
                self._ready.append(Frame((PartEnd(self._root),)))
            self._root = self._json = None
            self._release_root_parts()
            self._end_open_part_unless_marked()
        self._pass_held_finishes()

    def _order_frame(self, frame: Frame) -> None:
        for event in frame.events:
            if type(event) is Finish:
                self._end_choice_parts(event.choice)
            elif type(event) is ResponseEnd:
                self._release_all_frames()
        part = find_innermost_part(frame)
        if part is None:
            self._pass_partless_frame(frame)
            return
        self._pass_or_hold_frame(frame, part)
        self._release_root_parts()

    def _pass_or_hold_frame(self, frame: Frame, part: Part) -> None:
        root = part.parent or part
        if self._root is not None and root is not self._root:
            if self._root.closing != "implicit":
                self._hold_frame(self._roots, root, frame)
                return
            self._end_open_part_unless_marked()
        if self._root is None and part in self._closed and part.closing == "json":
            if any(type(event) is Delta and event.text.strip(JSON_SPACE) for event in frame.events):
                raise UpstreamInvalid("The upstream continued a tool call that had ended.")
            return
        if part is not root and self._child is not None and part is not self._child:
            self._hold_frame(self._children, part, frame)
            return
        self._pass_frame(frame, part, root)

    def _pass_frame(self, frame: Frame, part: Part, root: Part) -> None:
        events = frame.events
        if part in self._closed:  # the text continues after another part
            self._closed.discard(part)
            continuation = Part(part.kind, part.number, choice=part.choice, closing="implicit")
            continuation.continues = self._continuations.get(part, part)
            self._continuations[part] = continuation
            events = (PartStart(part), *events)
        self._check_index_order(events)
        is_new = root is not self._root
        self._root = root
        if part is not root:
            self._child = part
        if is_new:
            self._json = JsonEndDetector() if root.closing == "json" else None
        ended = [event.part for event in events if type(event) is PartEnd]
        if root in ended:
            self._release_child_parts(all_of_them=True)
        self._ready.append(self._replace_continued_parts(frame, events))
        if self._child in ended:
            self._child = None
        if root in ended:
            self._root = self._child = self._json = None
        elif self._json is not None:
            self._feed_json_arguments(self._json, part, events)

    def _check_index_order(self, events: tuple[Event, ...]) -> None:
        begun = [event.part for event in events if type(event) is PartStart]
        for part in begun if self._is_joined_by_index else ():
            indexes = (part.number,) if part.parent is None else (part.parent.number, part.number)
            if part.kind in VISIBLE_KINDS and indexes < self._indexes.get(part.kind, ()):
                raise UpstreamInvalid(
                    "The upstream sent texts in another order than their indexes."
                )
            self._indexes[part.kind] = indexes

    def _feed_json_arguments(
        self, json: JsonEndDetector, part: Part, events: tuple[Event, ...]
    ) -> None:
        for event in events:
            if type(event) is Delta:
                json.feed(part.kind, event.text)
        if json.is_object_complete:
            self._end_open_part_unless_marked()

    def _end_open_part_unless_marked(self) -> None:
        """End the open part unless an event of the upstream will end it."""
        root = self._root
        if root is not None and root.closing == "marked":
            return
        self._root = self._child = self._json = None
        if root is not None:
            self._closed.add(root)
            self._ready.append(Frame((PartEnd(self._continuations.get(root, root)),)))

    def _release_root_parts(self) -> None:
        self._release_child_parts()
        while self._roots and (self._root is None or self._root.closing == "implicit"):
            self._end_open_part_unless_marked()
            self._replay_root_part(next(iter(self._roots)))
            self._pass_held_finishes()

    def _replay_root_part(self, root: Part) -> None:
        for frame in self._remove_queue(self._roots, root):
            self._pass_or_hold_frame(frame, find_innermost_part(frame) or root)
            self._release_child_parts()

    def _release_child_parts(self, *, all_of_them: bool = False) -> None:
        while self._children and (self._child is None or all_of_them):
            self._child = None
            part = next(iter(self._children))
            for frame in self._remove_queue(self._children, part):
                self._pass_or_hold_frame(frame, part)

    def _remove_queue(self, queues: dict[Part, _PartQueue], part: Part) -> _PartQueue:
        waiting = queues.pop(part)
        self._count -= len(waiting.frames)
        self._bytes -= waiting.size
        return waiting

    def _hold_frame(self, queues: dict[Part, _PartQueue], part: Part, frame: Frame) -> None:
        self._moved = True
        waiting = queues.setdefault(part, _PartQueue())
        count_before = len(waiting.frames)
        waiting.add_frame(frame)
        added = len(waiting.frames) - count_before
        size = sum(len(event.text) for event in frame.events if type(event) is Delta)
        if added:
            size = max(size + FRAME_BYTES, frame.size, len(frame.raw or b""))
        waiting.size += size
        self._count += added
        self._bytes += size
        if self._count > MAX_FRAMES or self._bytes > MAX_BYTES:
            raise ResponseTooLarge("The upstream interleaved too many output items.")

    def _end_choice_parts(self, choice: int) -> None:
        if self._root is not None and self._root.choice == choice:
            self._end_open_part_unless_marked()
        while self._root is None or self._root.closing == "implicit":
            root = next((part for part in self._roots if part.choice == choice), None)
            if root is None:
                return
            self._end_open_part_unless_marked()
            self._replay_root_part(root)
            self._end_open_part_unless_marked()

    def _pass_partless_frame(self, frame: Frame) -> None:
        """Pass a frame without a part; hold a ``Finish`` while parts of its choice wait."""
        for event in frame.events:
            if type(event) is Finish and any(part.choice == event.choice for part in self._roots):
                self._finishes[event.choice] = frame
                return
        self._ready.append(self._replace_continued_parts(frame, frame.events))

    def _pass_held_finishes(self) -> None:
        for choice in [*self._finishes]:
            if not any(part.choice == choice for part in self._roots):
                if self._root is not None and self._root.choice == choice:
                    self._end_open_part_unless_marked()
                frame = self._finishes.pop(choice)
                self._ready.append(self._replace_continued_parts(frame, frame.events))

    def _replace_continued_parts(self, frame: Frame, events: tuple[Event, ...]) -> Frame:
        """Return the frame with ``events``; a part that ended early becomes its continuation."""
        if self._continuations:
            events = tuple(
                event._replace(part=self._continuations.get(event.part, event.part))  # type: ignore[union-attr,call-arg]
                if type(event) not in _WITHOUT_PART and event.part is not None  # type: ignore[union-attr]
                else event
                for event in events
            )
        if events is frame.events and not self._moved:
            return frame
        return frame._replace(events=events, raw=None if self._moved else frame.raw)


_WITHOUT_PART = frozenset(kind for kind in Event.__args__ if "part" not in kind._fields)


def find_innermost_part(frame: Frame) -> Part | None:
    """Return the first part that has a parent, otherwise the first part of the frame."""
    root: Part | None = None
    for event in frame.events:
        if type(event) not in _WITHOUT_PART:
            part: Part | None = event.part  # type: ignore[union-attr]
            if part is not None and part.parent is not None:
                return part
            root = root or part
    return root


def _can_join_deltas(previous: Frame, frame: Frame) -> bool:
    """Return True if the documents of two deltas differ only in their texts, or are not sent."""
    delta, next_delta = previous.events[0], frame.events[0]
    if not (type(delta) is Delta and type(next_delta) is Delta):
        return False
    if delta.part is not next_delta.part or delta.slot != next_delta.slot:
        return False
    if previous.doc is None or frame.doc is None:
        return previous.doc is frame.doc
    return bool(delta.slot) and previous.doc.keys() == frame.doc.keys()
