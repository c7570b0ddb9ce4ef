"""The chunks of a streamed answer with only what may be shown left in them.

Each text of each choice and of each call goes through a window of its own. A chunk waits until all
of its text is clear, and then passes as the very object it was, so that its bytes can be passed on;
one that is masked, or too long to wait for, leaves as a copy without ``raw``. Whatever is held of a
choice leaves before the chunk that finishes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, Self

from proxy.guardrails.findings.mask import Replace, named
from proxy.guardrails.findings.tally import Tally
from proxy.guardrails.stream.arguments import ArgumentsWindow, weight_of_parts
from proxy.guardrails.stream.chunk_parts import (
    Spot,
    finished,
    frame,
    going_on,
    only,
    part_of,
    place_of,
    put,
    tail,
    texts_of,
)
from proxy.guardrails.stream.first_values import FirstValues, acting, is_filling, says_more
from proxy.guardrails.stream.window import Pane, Piece, Window
from proxy.guardrails.text.replace import moved, replaced
from proxy.guardrails.text.walk import Key, Path, Text
from proxy.guardrails.text.weight import EACH, LIGHT, weight_of
from proxy.types import Chunk, Json

MOST_LANES = 1024  # texts of one answer that are held at once
MOST_NAME = 1024  # characters of the names on the way to one

_FORMS = frozenset({"delta", "message", "text"})  # where a choice says what it says


@dataclass(slots=True)
class _Held:
    """A chunk that waits: ``left`` characters of the text at ``path`` are not clear."""

    chunk: Chunk
    path: Path
    left: int
    clear: list[str] = field(default_factory=list)
    size: int = 0
    masked: bool = False
    split: bool = False


class _Lane:
    """One text that goes on from chunk to chunk, and the chunks that wait for it."""

    __slots__ = ("_queue", "_window", "ends")

    def __init__(self, window: Pane, *, ends: bool) -> None:
        self._window = window
        self.ends = ends
        self._queue: deque[_Held] = deque()

    def weight(self, text: str) -> int:
        return self._window.weight(text)

    def weight_of_end(self) -> int:
        return self._window.weight_of_end()

    def feed(self, chunk: Chunk, path: Path, text: str) -> list[Chunk]:
        self._queue.append(_Held(chunk, path, len(text)))
        return self._taken(self._window.feed(text))

    def flush(self) -> list[Chunk]:
        return self._taken(self._window.flush())

    def _taken(self, pieces: Iterable[Piece]) -> list[Chunk]:
        out: list[Chunk] = []
        for piece in pieces:
            self._take(piece, out)
        if self._queue and self._queue[0].size > self._window.reach:
            out.append(_first_part(self._queue[0]))
        return out

    def _take(self, piece: Piece, out: list[Chunk]) -> None:
        """Spread a piece over the chunks that it is of; a replacement goes to the first of them."""
        text, size = piece.text, piece.size
        while size:
            held = self._queue[0]
            taken = min(held.left, size)
            here, text = (text, "") if piece.changed else (text[:taken], text[taken:])
            held.clear.append(here)
            held.size += taken
            held.left -= taken
            held.masked = held.masked or piece.changed
            size -= taken
            if not held.left:
                out.append(_whole(self._queue.popleft()))


def _whole(held: _Held) -> Chunk:
    if not (held.masked or held.split) or held.chunk.data is None:
        return held.chunk
    text = "".join(held.clear)
    if held.masked:
        return replace(held.chunk, data=replaced(held.chunk.data, {held.path: text}), raw=None)
    return replace(held.chunk, data=put(held.chunk.data, held.path, text), raw=None)


def _first_part(held: _Held) -> Chunk:
    """Give what is clear of a chunk that is too long to wait for; the rest keeps all else."""
    data, _ = only(held.chunk.data or {}, held.path, "".join(held.clear))
    held.clear, held.size, held.split = [], 0, True
    return replace(held.chunk, data=data, raw=None, last=False)


class Panes(Protocol):
    """What the texts of a stream go through, each through one of its own."""

    def concerns(self, text: Text) -> bool:
        """Say whether a text goes through one at all."""

    def acts(self, text: Text) -> bool:
        """True if what is found in a text may be kept back."""

    def says_more(self, text: Text) -> bool:
        """True if a text again and again says what is kept back, and once does not."""

    def ends(self, text: Text) -> bool:
        """True if a text ends where its choice does, though more may come."""

    def miss(self, text: Text) -> None:
        """Note that a text that has ended goes on, and is read in two."""

    def leave_unread(self, text: Text) -> None:
        """Note that what several chunks say in the place of a text is not read together."""

    def pane(self, text: Text, *, arguments: bool, crowded: bool) -> Pane:
        """Make one; ``crowded`` where there are as many texts as may be held at once."""


@dataclass(frozen=True, slots=True)
class Ruled:
    """Windows of rules."""

    tallies: Sequence[Tally]
    replace: Replace = named
    to_last: bool = False  # all that is shown of a text is read as one, whether it has ended or not

    def concerns(self, text: Text) -> bool:
        return any(each.rule.applies(text.role, text.kind) for each in self.tallies)

    def acts(self, text: Text) -> bool:
        return bool(acting(self.tallies, text))

    def says_more(self, text: Text) -> bool:
        return says_more(text.text, acting(self.tallies, text) or self._applying(text))

    def ends(self, text: Text) -> bool:
        return not self.to_last or self.acts(text)

    def miss(self, text: Text) -> None:
        for tally in self._applying(text):
            tally.fail("text_after_finish")

    def leave_unread(self, text: Text) -> None:
        for tally in self._applying(text):
            tally.opaque = True

    def _applying(self, text: Text) -> list[Tally]:
        return [each for each in self.tallies if each.rule.applies(text.role, text.kind)]

    def pane(self, text: Text, *, arguments: bool, crowded: bool) -> Pane:
        tallies = self._applying(text)
        if crowded:
            for tally in tallies:
                tally.fail("too_many_texts")
        if arguments:
            return ArgumentsWindow.under(tallies, self.replace)
        return Window(tallies, replace=self.replace)


class Step(NamedTuple):
    """What one chunk brings: its texts, each with where it goes on if it does, and the choices
    that it ends. ``weight`` is how much there is to read for that."""

    chunk: Chunk
    texts: Sequence[tuple[Spot | None, Text]]
    ends: set[int]
    weight: int


class Deltas:
    """Feed it chunks; it gives those that may be shown. Raises ``GuardBlocked``.

    What it has given before it raises may have been shown; nothing of what blocks is among it.
    While a rule acts, of a name and of a text beside the choices only the first value passes, and
    no tokens beside those that spell the text: put together, they would be read by nobody but the
    client. So no text passes after its choice has finished, nor from a second form of saying it,
    nor from a part of a message with another number than the first.
    """

    __slots__ = ("_ended", "_firsts", "_forms", "_lanes", "_panes", "_parts")

    def __init__(self, panes: Panes) -> None:
        self._panes = panes
        self._lanes: dict[Spot, _Lane] = {}
        self._firsts = FirstValues()
        self._ended: set[int] = set()
        self._forms: dict[int, str] = {}
        self._parts: dict[Spot, int] = {}

    @classmethod
    def under(
        cls, tallies: Sequence[Tally], replace: Replace = named, *, to_last: bool = False
    ) -> Self:
        return cls(Ruled(tallies, replace, to_last))

    def feed(self, chunk: Chunk) -> list[Chunk]:
        """Take the next chunk, give what it releases."""
        return self.take(self.read(chunk))

    def read(self, chunk: Chunk, texts: Sequence[Text] | None = None) -> Step:
        """Return what the next chunk brings; ``texts`` are its own where they are read already."""
        data = chunk.data
        if data is None:
            lanes = () if chunk.is_keepalive else self._lanes.values()
            weight = sum(lane.weight_of_end() for lane in lanes)
            return Step(chunk, texts=(), ends=set(), weight=weight)
        placed: list[tuple[Spot | None, Text]] = []
        weight = 0
        for text in texts_of(data) if texts is None else texts:
            if self._panes.concerns(text):
                spot = going_on(data, text)
                placed.append((spot, text))
                weight += self._weight(data, spot, text)
        ends = finished(data)
        if ends or chunk.last:
            weight += sum(
                lane.weight_of_end()
                for spot, lane in self._lanes.items()
                if chunk.last or spot[0] in ends
            )
        return Step(chunk=chunk, texts=placed, ends=ends, weight=weight)

    def _weight(self, data: Json, spot: Spot | None, text: Text) -> int:
        if spot is None:  # one that is there a second time is read as said again and again
            again = self._firsts.is_unsure(place_of(data, text.path))
            return EACH + weight_of(text.text) + (LIGHT if again else 0)
        lane = self._lanes.get(spot)
        if lane is not None:
            return EACH + lane.weight(text.text)
        parts = weight_of_parts(text.text) if _is_arguments(spot) else 0
        return EACH + weight_of(text.text) + parts

    def take(self, step: Step) -> list[Chunk]:
        """Take what the next chunk brings, give what it releases."""
        chunk, data, ends = step.chunk, step.chunk.data, step.ends
        if data is None:  # a sign of life ends no text
            return [chunk] if chunk.is_keepalive else [*self.flush(), chunk]
        chunk, going = self._at_once(chunk, step.texts)
        self._ended |= ends  # of the next chunk on
        if len(going) > 1:
            return self._parted(chunk, going, ends)
        ending = self._ending(chunk, ends)
        if not going:
            return [*self._flushed(ending), chunk]
        (spot, text), *_ = going
        out = self._flushed(each for each in ending if each != spot)
        out += self._fed(spot, text, chunk, text.path)
        return out + self._flushed(each for each in self._ending(chunk, ends) if each == spot)

    def _ending(self, chunk: Chunk, ends: set[int]) -> list[Spot]:
        """Return the texts that end with a chunk."""
        if not (ends or chunk.last):  # as nearly always: there may be a thousand lanes
            return []
        lanes = self._lanes.items()
        return [spot for spot, lane in lanes if chunk.last or (lane.ends and spot[0] in ends)]

    def flush(self) -> list[Chunk]:
        """Give all that is held, as no more of it comes."""
        return self._flushed(self._lanes)

    def _flushed(self, spots: Iterable[Spot]) -> list[Chunk]:
        return [chunk for spot in spots for chunk in self._lanes[spot].flush()]

    def _at_once(
        self, chunk: Chunk, texts: Iterable[tuple[Spot | None, Text]]
    ) -> tuple[Chunk, list[tuple[Spot, Text]]]:
        """Look at what is never cut; give the chunk with it masked, and the texts that go on."""
        going: dict[Spot, list[Text]] = {}
        changes: dict[Path, str] = {}
        for spot, text in texts:
            if spot is not None:
                if self._is_second(chunk.data or {}, spot, text):
                    changes[text.path] = ""
                else:
                    going.setdefault(spot, []).append(text)
                continue
            pane = self._panes.pane(text, arguments=False, crowded=False)
            pieces = [*pane.feed(text.text), *pane.flush()]
            if any(piece.changed for piece in pieces):
                changes[text.path] = "".join(piece.text for piece in pieces)
            if self._goes_unread(chunk.data or {}, text):
                changes[text.path] = ""
        on = [each for spot, parts in going.items() for each in self._joined(spot, parts, changes)]
        if changes and chunk.data is not None:
            data = replaced(chunk.data, changes)
            if any(isinstance(path[-1], Key) for path in changes):
                paths = moved(chunk.data, data, [text.path for _, text in on])
                on = [
                    (spot, text._replace(path=path))
                    for (spot, text), path in zip(on, paths, strict=True)
                ]
            chunk = replace(chunk, data=data, raw=None)
        return chunk, on

    def _joined(
        self, spot: Spot, parts: list[Text], changes: dict[Path, str]
    ) -> list[tuple[Spot, Text]]:
        """Return the parts of one text: as one where they are read as one, and shown so."""
        first, *others = parts
        if not others or not self._panes.acts(first):
            return [(spot, part) for part in parts]
        text = first._replace(text="".join(part.text for part in parts))
        changes |= {part.path: "" for part in others}
        changes[first.path] = text.text
        return [(spot, text)]

    def _is_second(self, data: Json, spot: Spot, text: Text) -> bool:
        """True if it would be read together with what was read as a text of its own: a choice has
        one end, and either deltas, or messages, or texts."""
        index, (form, *_) = spot
        if not self._panes.acts(text):
            if index in self._ended and self._panes.ends(text):
                self._panes.miss(text)
            return False
        part = part_of(data, text.path)
        if part is not None and self._parts.get(spot, part) != part:
            return True
        if part is not None and len(self._parts) < MOST_LANES and _size(spot) <= MOST_NAME:
            self._parts[spot] = part
        if form in _FORMS:
            told = data["choices"][text.path[1]]
            first = "delta" if isinstance(told.get("delta"), dict) else str(form)
            if self._forms.setdefault(index, first) != form:
                return True
        return index in self._ended

    def _goes_unread(self, data: Json, text: Text) -> bool:
        """True if what is looked at chunk by chunk may say something across chunks, and is to be
        left out; where no rule acts it is noted."""
        path = text.path
        if isinstance(path[-1], Key):
            return False
        acts = self._panes.acts(text)
        place = place_of(data, path)
        hides = acts and place is not path and path[-1] == "logprobs"
        across = hides or not self._firsts.passes(place, text, self._panes.says_more)
        if across and not acts and not is_filling(text):
            self._panes.leave_unread(text)
        return across and acts

    def _parted(self, chunk: Chunk, going: list[tuple[Spot, Text]], ends: set[int]) -> list[Chunk]:
        """Part a chunk with several texts: what is no text first, each text, and the end."""
        data = chunk.data or {}
        out = [replace(chunk, data=frame(data, going, ends), raw=None, last=False)]
        for spot, text in going:
            alone, path = only(data, text.path, text.text, "logprobs")
            part = replace(chunk, data=alone, raw=None, last=False)
            out += self._fed(spot, text, part, path)
        out += self._flushed(self._ending(chunk, ends))
        if ends or chunk.last:
            out.append(replace(chunk, data=tail(data, ends), raw=None))
        return out

    def _fed(self, spot: Spot, text: Text, chunk: Chunk, path: Path) -> list[Chunk]:
        """Feed a chunk to the lane of its text; one that there is no room for ends with it."""
        lane = self._lanes.get(spot)
        if lane is not None:
            return lane.feed(chunk, path, text.text)
        crowded = len(self._lanes) >= MOST_LANES or _size(spot) > MOST_NAME
        pane = self._panes.pane(text, arguments=_is_arguments(spot), crowded=crowded)
        lane = _Lane(pane, ends=self._panes.ends(text))
        if crowded:
            return [*lane.feed(chunk, path, text.text), *lane.flush()]
        self._lanes[spot] = lane
        return lane.feed(chunk, path, text.text)


def _size(spot: Spot) -> int:
    return sum(len(step) if isinstance(step, str) else 1 for step in spot[1])


def _is_arguments(spot: Spot) -> bool:
    return spot[1][-1] == "arguments"
