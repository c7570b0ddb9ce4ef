"""The chunks of a streamed answer with only what may be shown left in them.

Each text of each choice and of each call goes through a window of its own. A chunk waits until all
of its text is clear, and then passes as the very object it was, so that its bytes can be passed on;
one that is masked, or too long to wait for, leaves as a copy without ``raw``. A long text is read
and leaves piece by piece, as if it had come so. Whatever is held of a choice leaves before the
chunk that finishes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import compress
from typing import NamedTuple, Self

from proxy.guardrails.findings.mask import Replace, named
from proxy.guardrails.findings.tally import RuleTally
from proxy.guardrails.stream.arguments import weight_of_parts
from proxy.guardrails.stream.chunk_parts import (
    PlacedText,
    TextPlace,
    begins_anew,
    finished,
    frame,
    going_on,
    is_whole,
    only,
    part_of,
    place_of,
    tail,
    texts_of,
)
from proxy.guardrails.stream.first_values import FirstValues, is_filling
from proxy.guardrails.stream.lane import CONTENT, Lane
from proxy.guardrails.stream.text_filters import RuleFilters, TextFilters
from proxy.guardrails.stream.text_stream import TextStream
from proxy.guardrails.text.replace import moved, replaced
from proxy.guardrails.text.text_walker import EACH, LIGHT, cut, weight_of
from proxy.guardrails.text.walk import MemberName, Path, Text
from proxy.types import Chunk, Json

MOST_STREAMS = 1024  # texts of one answer that are held at once
MOST_NAME = 1024  # characters of the names on the way to one

ARGUMENTS = frozenset({"arguments", "partial_json"})  # JSON inside of a string

_FORMS = frozenset({"delta", "message", "text"})  # where a choice says what it says


class ChunkTexts(NamedTuple):
    """What one chunk brings: its texts, each with where it goes on if it does, and the choices
    that it ends. ``weight`` is how much there is to read for that; ``anew`` says that what is held
    is to leave before it, see ``begins_anew``."""

    chunk: Chunk
    texts: Sequence[tuple[TextPlace | None, Text]]
    ends: set[int]
    weight: int
    anew: bool = False


class StreamFilter:
    """Feed it chunks; it gives those that may be shown. Raises ``GuardBlocked``.

    What it has given before it raises may have been shown; nothing of what blocks is among it.
    While a rule acts, of a name and of a text beside the choices only the first value passes, and
    no tokens beside those that spell the text: put together, they would be read by nobody but the
    client. So no text passes after its choice has finished, nor from a second form of saying it,
    nor from a part of a message with another number than the first.
    """

    __slots__ = (
        *("_ended", "_filters", "_firsts", "_forms", "_fresh", "_lane", "_parts"),
        "_streams",
    )

    def __init__(self, filters: TextFilters) -> None:
        self._filters = filters
        self._streams: dict[TextPlace, TextStream] = {}
        self._fresh: dict[TextStream, None] = {}  # that may hold something; others have let it go
        self._firsts = FirstValues()
        self._ended: set[int] = set()
        self._forms: dict[int, str] = {}
        self._parts: dict[TextPlace, int] = {}
        self._lane: Lane | None = None  # that the next chunk may go on in

    @classmethod
    def under(
        cls, tallies: Sequence[RuleTally], replace: Replace = named, *, to_last: bool = False
    ) -> Self:
        return cls(RuleFilters(tallies, replace, to_last))

    def feed(self, chunk: Chunk) -> list[Chunk]:
        """Take the next chunk, return the chunks it releases."""
        return self.take(self.read(chunk))

    def go_on(self, chunk: Chunk) -> list[Chunk] | None:
        """Take a chunk that goes on as the one before it, where that is little work, and return the
        chunks that it releases; None, and nothing is taken, for any other."""
        lane = self._lane
        if lane is None or chunk.data is None or chunk.last:
            return None
        text = lane.text(chunk.data)
        if not text or EACH + lane.stream.weight(text) > LIGHT:
            return None
        return lane.stream.feed(chunk, CONTENT, text)

    def read(self, chunk: Chunk, texts: Sequence[Text] | None = None) -> ChunkTexts:
        """Return what the next chunk brings; ``texts`` are its own where they are read already."""
        data = chunk.data
        self._lane = None
        if data is None:
            weight = sum(stream.weight_of_end() for stream in self._streams.values())
            return ChunkTexts(chunk, texts=(), ends=set(), weight=weight)
        placed: list[tuple[TextPlace | None, Text]] = []
        weight = 0
        for text in texts_of(data) if texts is None else texts:
            if self._filters.concerns(text):
                place = going_on(data, text)
                placed.append((place, text))
                weight += self._weight(data, place, text)
        ends, anew = finished(data), bool(self._streams) and begins_anew(data)
        if anew:
            weight += sum(stream.weight_of_end() for stream in self._fresh)
        elif ends or chunk.last:
            ending = (chunk.last or place[0] in ends for place in self._streams)
            weight += sum(one.weight_of_end() for one in compress(self._streams.values(), ending))
        return ChunkTexts(chunk=chunk, texts=placed, ends=ends, weight=weight, anew=anew)

    def _weight(self, data: Json, place: TextPlace | None, text: Text) -> int:
        if place is None:  # one that is there a second time is read as said again and again
            again = self._firsts.is_unsure(place_of(data, text.path))
            return EACH + weight_of(text.text) + (LIGHT if again else 0)
        stream = self._streams.get(place)
        if stream is not None:
            return EACH + stream.weight(text.text)
        parts = weight_of_parts(text.text) if _is_arguments(place) else 0
        return EACH + weight_of(text.text) + parts

    def take(self, step: ChunkTexts) -> list[Chunk]:
        """Take the texts of the next chunk, return the chunks they release."""
        return [*self._let_go(), *self._take(step)] if step.anew else self._take(step)

    def _take(self, step: ChunkTexts) -> list[Chunk]:
        chunk, data, ends = step.chunk, step.chunk.data, step.ends
        if data is None:
            return [*self.flush(), chunk]
        chunk, going = self._alone(chunk, step.texts) or self._at_once(chunk, step.texts)
        self._ended |= ends  # of the next chunk on
        if len(going) > 1:
            return [each for released in self._parted(chunk, going, ends) for each in released]
        if not (ends or chunk.last):  # as nearly always: there may be a thousand streams
            if not going:
                return [chunk]
            released = self._fed(*going[0], chunk, going[0][1].path)
            if going[0][1].path == CONTENT and len(step.texts) == 1:
                stream = self._streams.get(going[0][0])
                self._lane = None if stream is None else Lane.of(data, stream)
            return released
        ending = self._ending(chunk, ends)
        if not going:
            return [*self._flushed(ending), chunk]
        (place, text), *_ = going
        out = self._flushed(each for each in ending if each != place)
        out += self._fed(place, text, chunk, text.path)
        return out + self._flushed(each for each in self._ending(chunk, ends) if each == place)

    def take_in_turns(self, step: ChunkTexts) -> Iterator[list[Chunk]]:
        """Take the texts of a chunk with a long one piece by piece, each when it is asked for, and
        return the chunks that it releases. All are to be asked for, in the end."""
        if step.anew:
            yield self._let_go()
        chunk, going = self._at_once(step.chunk, step.texts)
        self._ended |= step.ends
        if going:
            yield from self._parted(chunk, going, step.ends)
        else:
            yield [*self._flushed(self._ending(chunk, step.ends)), chunk]

    def _ending(self, chunk: Chunk, ends: set[int]) -> list[TextPlace]:
        """Return the texts that end with a chunk."""
        if not (ends or chunk.last):
            return []
        streams = self._streams.items()
        return [place for place, one in streams if chunk.last or (one.ends and place[0] in ends)]

    def flush(self) -> list[Chunk]:
        """Return all chunks that are held: the stream has ended."""
        self._lane = None
        return self._flushed(self._streams)

    def _let_go(self) -> list[Chunk]:
        """Return all chunks that are held, as another block is to follow them."""
        fresh, self._fresh = self._fresh, {}
        return [chunk for stream in fresh for chunk in stream.let_go()]

    def _flushed(self, places: Iterable[TextPlace]) -> list[Chunk]:
        return [chunk for place in places for chunk in self._streams[place].flush()]

    def _alone(
        self, chunk: Chunk, texts: Sequence[tuple[TextPlace | None, Text]]
    ) -> tuple[Chunk, list[PlacedText]] | None:
        """Do as ``_at_once`` with a chunk of one text that goes on, as nearly all are."""
        if len(texts) != 1:
            return None
        place, text = texts[0]
        if place is None:
            return None
        if self._is_second(chunk.data or {}, place, text):
            return chunk.rewritten(replaced(chunk.data or {}, {text.path: ""})), []
        return chunk, [(place, text)]

    def _at_once(
        self, chunk: Chunk, texts: Iterable[tuple[TextPlace | None, Text]]
    ) -> tuple[Chunk, list[PlacedText]]:
        """Look at what is never cut; return the chunk with it masked, and the texts that go on."""
        going: dict[TextPlace, list[Text]] = {}
        changes: dict[Path, str] = {}
        for place, text in texts:
            if place is not None:
                if self._is_second(chunk.data or {}, place, text):
                    changes[text.path] = ""
                else:
                    going.setdefault(place, []).append(text)
                continue
            shown = self._shown(text)
            if shown is not None:
                changes[text.path] = shown
            if self._is_unread(chunk.data or {}, text):
                changes[text.path] = ""
        on = [one for place, parts in going.items() for one in self._joined(place, parts, changes)]
        if changes and chunk.data is not None:
            data = replaced(chunk.data, changes)
            if any(isinstance(path[-1], MemberName) for path in changes):
                paths = moved(chunk.data, data, [text.path for _, text in on])
                pairs = zip(on, paths, strict=True)
                on = [(place, text._replace(path=path)) for (place, text), path in pairs]
            chunk = replace(chunk, data=data, raw=None)
        return chunk, on

    def _shown(self, text: Text) -> str | None:
        """Return what may be shown of a text that is never cut; None if that is all of it."""
        text_filter = self._filters.text_filter(text, arguments=False, crowded=False)
        shown: list[str] = []
        changed = False
        for piece in (*cut(text.text), None):  # there may be a finding in each of its words
            released = text_filter.flush() if piece is None else text_filter.feed(piece)
            shown.append("".join(each.text for each in released))
            changed = changed or any(each.changed for each in released)
        return "".join(shown) if changed else None

    def _joined(
        self, place: TextPlace, parts: list[Text], changes: dict[Path, str]
    ) -> list[PlacedText]:
        """Return the parts of one text: as one where they are read as one, and shown so."""
        first, *others = parts
        if not others or not self._filters.acts(first):
            return [(place, part) for part in parts]
        text = first._replace(text="".join(part.text for part in parts))
        changes |= {part.path: "" for part in others}
        changes[first.path] = text.text
        return [(place, text)]

    def _is_second(self, data: Json, place: TextPlace, text: Text) -> bool:
        """True if it would be read together with what was read as a text of its own: a choice has
        one end, and either deltas, or messages, or texts."""
        index, (form, *_) = place
        if not self._filters.acts(text):
            if index in self._ended and self._filters.ends(text):
                self._filters.miss(text)
            return False
        part = part_of(data, text.path)
        first = self._parts.get(place)
        if part is not None and first is None:
            if len(self._parts) < MOST_STREAMS and _size(place) <= MOST_NAME:
                self._parts[place] = part
        elif part is not None and first != part:
            return True
        if form in _FORMS:
            choice = data["choices"][text.path[1]]
            usual = "delta" if isinstance(choice.get("delta"), dict) else str(form)
            if self._forms.setdefault(index, usual) != form:
                return True
        return index in self._ended

    def _is_unread(self, data: Json, text: Text) -> bool:
        """True if what is looked at chunk by chunk may say something across chunks, and is to be
        left out; where no rule acts it is noted."""
        path = text.path
        if isinstance(path[-1], MemberName) or is_whole(path):
            return False
        acts = self._filters.acts(text)
        place = place_of(data, path)
        hides = acts and place is not path and path[-1] == "logprobs"
        across = hides or not self._firsts.passes(place, text, self._filters.says_more)
        if across and not acts and not is_filling(text):
            self._filters.leave_unread(text)
        return across and acts

    def _parted(
        self, chunk: Chunk, going: list[PlacedText], ends: set[int]
    ) -> Iterator[list[Chunk]]:
        """Split a chunk with several texts, or a long one: what is no text first, each text by
        itself, and the end."""
        data = chunk.data or {}
        yield [replace(chunk, data=frame(data, going, ends), raw=None, last=False)]
        for place, text in going:
            beside = ["logprobs"]
            for piece in cut(text.text):
                alone, path = only(data, text.path, piece, *beside)
                part = replace(chunk, data=alone, raw=None, last=False)
                yield self._fed(place, text._replace(text=piece), part, path)
                beside.clear()
        out = self._flushed(self._ending(chunk, ends))
        if ends or chunk.last:
            out.append(replace(chunk, data=tail(data, ends), raw=None))
        yield out

    def _fed(self, place: TextPlace, text: Text, chunk: Chunk, path: Path) -> list[Chunk]:
        """Feed a chunk to the stream of its text; one that there is no room for ends with it."""
        stream = self._streams.get(place)
        if stream is not None:
            self._fresh[stream] = None
            return stream.feed(chunk, path, text.text)
        crowded = len(self._streams) >= MOST_STREAMS or _size(place) > MOST_NAME
        text_filter = self._filters.text_filter(
            text, arguments=_is_arguments(place), crowded=crowded
        )
        stream = TextStream(text_filter, ends=self._filters.ends(text))
        if crowded:
            return [*stream.feed(chunk, path, text.text), *stream.flush()]
        self._streams[place] = stream
        self._fresh[stream] = None
        return stream.feed(chunk, path, text.text)


def _size(place: TextPlace) -> int:
    return sum(len(step) if isinstance(step, str) else 1 for step in place[1])


def _is_arguments(place: TextPlace) -> bool:
    return place[1][-1] in ARGUMENTS
