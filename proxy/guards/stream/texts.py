"""Texts of a stream: their filters, the frames that wait, and texts that a client may join.

If a rule may withhold findings, a place without a text filter passes only values that equal its
first one. No text passes after its choice has finished, or in a second form of a choice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from proxy.errors import GuardBlocked
from proxy.guards.findings import Replace, RuleTally, replace_by_kind
from proxy.guards.stream.arguments import ArgumentsWindow
from proxy.guards.stream.frame_texts import (
    CHAT,
    FrameText,
    Place,
    choice_of,
    delta_at,
    is_of_event,
    numbered,
    with_changes,
    without,
)
from proxy.guards.stream.text_filter import ReleasedPiece, TextFilter, TextFilters
from proxy.guards.stream.window import Window
from proxy.guards.text.members import is_in_choice
from proxy.guards.text.walk import MemberName, Path, Text
from proxy.runtime.frozen import frozen
from proxy.types.events import CALLS, SHOWN, Attach, Delta, Frame, Part

MAX_PLACES = 1024  # places of a stream whose first value is remembered
_DIGEST_BYTES = 16  # digests bound the memory for long names and values
_FORMS = frozenset({"delta", "message", "text"})
_FORM_OF = {"chat": "delta", "completions": "text"}


class HeldText:
    """A text of a frame that waits until the stream of its part is clear up to ``end``.

    ``path`` is the path of the text in the frame, and ``edits`` are its spans that were replaced.
    ``group`` is None if the frame has no other text.
    """

    __slots__ = ("edits", "end", "frame", "group", "path", "text")

    def __init__(self, frame: Frame, path: Path, text: str) -> None:
        self.frame = frame
        self.path = path
        self.text = text
        self.end = 0
        self.edits: list[tuple[int, int, str]] = []
        self.group: HeldGroup | None = None

    def edited(self, end: int | None = None) -> str:
        """Return the text up to ``end`` with its edits."""
        parts: list[str] = []
        past = 0
        for start, stop, replacement in self.edits:
            parts += (self.text[past:start], replacement)
            past = stop
        return "".join([*parts, self.text[past:end]])


class HeldGroup:
    """The texts of one frame and their streams. The texts are released together."""

    __slots__ = ("_ready", "streams", "texts")

    def __init__(self, texts: Sequence[HeldText], streams: Sequence[PartStream]) -> None:
        self.texts = texts
        self.streams = streams
        self._ready = 0

    def is_ready(self) -> bool:
        """Return True if each text is clear and first in its queue, apart from its group.

        A text stays ready until the group leaves, so it is checked once.
        """
        while self._ready < len(self.texts):
            stream = self.streams[self._ready]
            head = stream.head
            if head is None or head.group is not self or stream.holds(self.texts[self._ready]):
                return False
            self._ready += 1
        return True


class PartStream:
    """One text, and the frames that wait for it. `edited` are the parts whose text has changed."""

    __slots__ = ("_clear", "_edited", "_held", "_ready", "_size", "ends", "filter")

    def __init__(self, text_filter: TextFilter, edited: set[Part], *, ends: bool) -> None:
        self.filter = text_filter
        self._edited = edited
        self._size = self._clear = 0  # characters received and released so far
        self._held: deque[HeldText] = deque()
        self._ready: deque[HeldText] = deque()  # released texts, which precede those of ``_held``
        self.ends = ends

    @property
    def head(self) -> HeldText | None:
        """The text that is released next."""
        queue = self._ready or self._held
        return queue[0] if queue else None

    def holds(self, held_text: HeldText) -> bool:
        """Return True if a text is not clear."""
        return held_text.end > self._clear

    def append(self, held_text: HeldText) -> None:
        """Append a text to the queue. Its characters are fed next."""
        self._size = held_text.end = self._size + len(held_text.text)
        (self._held if held_text.end > self._clear else self._ready).append(held_text)

    def feed(self, text: str) -> list[Frame]:
        """Add characters and return the frames that they release."""
        pieces = self.filter.feed(text)
        return self._released(pieces) if pieces or self._ready else []

    def release(self) -> list[Frame]:
        """Return all waiting frames, because another frame follows. The text may continue."""
        return self._released(self.filter.release())

    def close(self) -> list[Frame]:
        """Return all waiting frames, because the text has ended."""
        return self._released(self.filter.close())

    def _released(self, pieces: Sequence[ReleasedPiece]) -> list[Frame]:
        held = self._held
        for text, size, is_changed in pieces:
            if is_changed:
                self._edit(self._clear, self._clear + size, text)
            self._clear += size
            while held and held[0].end <= self._clear:
                self._ready.append(held.popleft())
        out = self._drain()
        if held and not self._ready:
            cleared = self._clear - (held[0].end - len(held[0].text))
            if cleared > self.filter.lookback:
                out += _split(held[0], cleared)
        return out

    def _edit(self, start: int, end: int, replacement: str) -> None:
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
            delta = delta_at(held_text.frame, held_text.path)
            if delta is not None:
                self._edited.add(delta.part)

    def _drain(self) -> list[Frame]:
        """Return the clear frames at the head, and frames of other streams that they blocked."""
        out: list[Frame] = []
        streams = [self]
        while streams:
            ready = streams[-1]._ready
            group = ready[0].group if ready else None
            if not ready or (group and not group.is_ready()):
                streams.pop()
            elif group is None:
                self._emit([ready.popleft()], out)
            else:
                self._emit(group.texts, out)
                for stream in group.streams:
                    stream._ready.popleft()
                streams += reversed(group.streams)
        return out

    def _emit(self, texts: Sequence[HeldText], out: list[Frame]) -> None:
        """Add the frame of texts that are clear, unless it only has a signature to remove."""
        frame = texts[0].frame
        changes: dict[Path, str] = {}
        for text in texts:
            if text.edits:
                changes[text.path] = text.edited()
        if changes or self._edited:
            out += unsigned(with_changes(frame, changes), self._edited)
        else:
            out.append(frame)


def unsigned(frame: Frame, edited: set[Part]) -> list[Frame]:
    """Return a frame without the signature of a changed part, none if nothing else is in it.

    A frame with text keeps it: the id of a tool call carries the signature of the call.
    """
    if not edited or any(isinstance(event, Delta) for event in frame.events):
        return [frame]
    for event in frame.events:
        if isinstance(event, Attach) and event.name == "signature" and event.part in edited:
            return [] if len(frame.events) == 1 else [without(frame, "signature")]
    return [frame]


def _split(held_text: HeldText, cleared: int) -> list[Frame]:
    """Return a frame with the clear beginning of a text, and leave the rest in ``held_text``.

    The rest has no document if the frame has other events than the text and its values. A
    writer of Responses puts a text without a document into the event that repeats it.
    """
    frame = held_text.frame
    delta = None if held_text.group else delta_at(frame, held_text.path)
    is_delta = all(isinstance(event, Delta | Attach) for event in frame.events)
    if delta is None or delta.part.kind not in SHOWN | CALLS:
        return []
    if frame.family == "responses" and not is_delta:
        return []
    clear_frame = with_changes(frame, {held_text.path: held_text.edited(cleared)})
    if not is_delta:
        events = (Delta(delta.part, ""),)
        held_text.frame = Frame(events, frame.family, model_call=frame.model_call, last=frame.last)
        held_text.path = (0,)
    held_text.text, held_text.edits = held_text.text[cleared:], [(0, 0, "")]
    return [clear_frame._replace(last=False)]


@frozen
class RuleFilters:
    """Makes windows of rules."""

    tallies: Sequence[RuleTally]
    replace: Replace = replace_by_kind
    to_last: bool = False

    def concerns(self, text: Text) -> bool:
        for tally in self.tallies:  # noqa: SIM110  # runs for each chunk, and a generator is slower
            if tally.rule.applies_to(text.role, text.kind):
                return True
        return False

    def text_filter(self, text: Text, *, arguments: bool, crowded: bool) -> TextFilter:
        tallies = inspecting_rules(self.tallies, text)
        if crowded:
            for tally in tallies:
                tally.fail("too_many_texts")
        if arguments:
            return ArgumentsWindow.for_rules(tallies, self.replace)
        return Window(tallies, replace=self.replace)


def inspecting_rules(tallies: Iterable[RuleTally], text: Text) -> list[RuleTally]:
    """Return the rules that inspect a text."""
    return [tally for tally in tallies if tally.rule.applies_to(text.role, text.kind)]


def enforcing_rules(tallies: Iterable[RuleTally], text: Text) -> list[RuleTally]:
    """Return the rules that may withhold findings in a text."""
    return [
        tally
        for tally in inspecting_rules(tallies, text)
        if tally.error is None and tally.rule.enforces
    ]


def has_repeated_finding(text: str, tallies: Sequence[RuleTally]) -> bool:
    """Return True if rules with a lookback find something in consecutive copies of a text.

    A stream may send the same value in one place again and again: ``42`` repeated can make a card
    number.
    """
    copies = [
        RuleTally(tally.rule, tally.clock)
        for tally in tallies
        if tally.detector.lookback is not None
    ]
    if not copies:
        return False
    window = Window(copies)
    try:
        pieces = [*window.feed(text * (2 + window.lookback // len(text))), *window.close()]
    except GuardBlocked:
        return True
    return any(piece.changed for piece in pieces) or any(tally.findings for tally in copies)


class JoinableTexts:
    """Places and forms of the texts of one stream so far. ``ended`` are the finished choices."""

    __slots__ = (
        *("_content_places", "_first_values", "_forms", "_repeated", "_tallies", "_to_last"),
        "ended",
    )

    def __init__(self, filters: TextFilters) -> None:
        self._tallies = filters.tallies
        self._to_last = filters.to_last
        self._first_values: dict[bytes, bytes] = {}  # by place, both as digests
        self._repeated: set[bytes] = set()  # places whose value was inspected as repeated
        self._forms: dict[int, str] = {}
        self._content_places: dict[int, Place | None] = {}  # by choice, None for parts
        self.ended: set[int] = set()

    def ends(self, text: Text) -> bool:
        """Return True if a text ends with its choice, although more may follow."""
        return not self._to_last or bool(enforcing_rules(self._tallies, text))

    def may_repeat(self, frame: Frame, text: Text) -> bool:
        """Return True if copies of a complete text may have to be inspected together."""
        place = _repeated_place(frame, text.path) if self._first_values else None
        key = _digest(repr(place)) if place is not None else b""
        return key in self._first_values and key not in self._repeated

    def omits(self, frame: Frame, text: Text) -> bool:
        """Return True if a complete text must be removed.

        If no rule may withhold findings, record that it was inspected without others.
        """
        acting_rules = enforcing_rules(self._tallies, text)
        if text.kind == "logprobs" and acting_rules:
            return True
        place, rules = (
            _repeated_place(frame, text.path),
            acting_rules or inspecting_rules(self._tallies, text),
        )
        if place is None or self._passes(place, text.text, rules):
            return False
        for tally in () if acting_rules else rules:
            tally.opaque = True
        return bool(acting_rules)

    def _passes(self, place: tuple[object, ...], text: str, tallies: Sequence[RuleTally]) -> bool:
        """Return True for the first text of a place, and for equal texts without a finding."""
        key, digest = _digest(repr(place)), _digest(text)
        if key not in self._first_values:
            if len(self._first_values) < MAX_PLACES:
                self._first_values[key] = digest
        elif self._first_values[key] == digest and key not in self._repeated:
            self._repeated.add(key)
            if has_repeated_finding(text, tallies):
                self._first_values[key] = b""
        return self._first_values.get(key) == digest

    def omits_going(self, frame: Frame, going: FrameText) -> bool:
        """Return True if a continued text must be removed.

        If no rule may withhold findings and its choice has finished, record that it was inspected
        in two parts.
        """
        place, text, choice = going.place, going.text, choice_of(going.place)
        has_ended = choice in self.ended
        if not enforcing_rules(self._tallies, text):
            if has_ended and not self._to_last:
                for tally in inspecting_rules(self._tallies, text):
                    tally.fail("text_after_finish")
            return False
        if has_ended or frame.family not in CHAT:
            return has_ended
        if _is_content(place, text.path) and text.text:
            content_place = None if isinstance(place, Part) else place
            if self._content_places.setdefault(choice, content_place) != content_place:
                # Clients join all content, but each place has a filter of its own.
                return True
        form = _FORM_OF[frame.family] if isinstance(place, Part) else str(text.path[2])
        usual = form
        if isinstance(place, tuple) and form in _FORMS:
            delta = (frame.doc or {})[str(text.path[0])][text.path[1]].get("delta")
            usual = "delta" if isinstance(delta, dict) else form
        return form in _FORMS and self._forms.setdefault(choice, usual) != form


def _is_content(place: Part | Place, path: Path) -> bool:
    """Return True for a text that clients show as content, typed or not."""
    if isinstance(place, Part):
        return place.kind == "text"
    return path[2:4] == ("delta", "content") and all(
        isinstance(step, int) or step == "text" for step in path[4:]
    )


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).digest()


def _repeated_place(frame: Frame, path: Path) -> tuple[object, ...] | None:
    """Return the place of a complete text that later documents may also have, or None."""
    doc = frame.doc
    if doc is None or isinstance(path[-1], MemberName):
        return None
    if frame.family in CHAT and is_in_choice(path) and path[-1] == "name":
        return numbered(doc, path)  # clients join the names of all chunks
    if is_of_event(frame, path):
        return None
    if frame.family in CHAT:
        return numbered(doc, path) if is_in_choice(path) else path
    kind = doc.get("type")
    return (kind, *path) if isinstance(kind, str) and kind.endswith("delta") else None
