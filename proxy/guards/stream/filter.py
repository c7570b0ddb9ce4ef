"""Filters a streamed response: holds frames until their texts are clear, and masks texts.

Each part has its text filter. A frame waits until all of its text is clear, and later frames of the
part wait behind it; `End`, `Finish` and `Stop` release them. A part that follows an ended one of
its kind takes over its filter, because a finding may lie across both.

The weight of a frame is the amount of text that its inspection reads. This includes held text and,
at the end of a text, the whole text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple, Protocol, Self, TypeVar

from proxy.guards.findings import Replace, RuleTally, replace_by_kind
from proxy.guards.stream.arguments import weigh_arguments
from proxy.guards.stream.frame_texts import (
    CHAT,
    KIND_OF,
    FrameText,
    Place,
    get_choice,
    get_place,
    get_unknown_place,
    is_json,
    iter_other_texts,
    list_delta_texts,
    replace_frame_texts,
)
from proxy.guards.stream.part_stream import (
    HeldGroup,
    HeldText,
    PartStream,
    WaitingFrames,
    close_streams,
    remove_broken_signature,
)
from proxy.guards.stream.text_filter import TextFilter, TextFilters
from proxy.guards.stream.texts import JoinableTexts, RuleFilters
from proxy.guards.text.documents import (
    LIGHT,
    SHEET,
    TEXT_WEIGHT,
    collect_in_steps,
    collect_texts,
    split_batches,
    weigh,
)
from proxy.guards.text.replace import map_paths_to_copy
from proxy.guards.text.walk import MemberName, Path, Text, Texts
from proxy.runtime.fair_queue import TimeSlice
from proxy.types.events import (
    Attach,
    Begin,
    Delta,
    End,
    Event,
    Extension,
    Fault,
    Finish,
    Frame,
    Kind,
    Native,
    Part,
    Start,
    Stop,
)

MAX_STREAMS = 1024  # texts of a response that may have filters at the same time
MAX_NAME = 1024  # characters of all names in the path of a text
_WALKED = (Start, Begin, Attach, Extension, Native)  # events that carry texts outside of deltas
T = TypeVar("T")


class JobRunner(Protocol):
    """Runs a job so that it delays no other call, for example in a thread."""

    def __call__(self, job: Callable[[], T]) -> Awaitable[T]: ...


async def run_on_loop(job: Callable[[], T]) -> T:
    """Run a job on the event loop."""
    return job()


class FrameTexts(NamedTuple):
    """Texts of a frame and their weight. Later frames may continue the texts in `going`."""

    frame: Frame
    going: Sequence[FrameText]
    complete: Sequence[Text]
    weight: int


class StreamFilter:
    """Takes the frames of a stream and returns the frames that may be sent.

    Raises ``GuardBlocked``. ``opaque`` becomes True if a frame has a value without text.
    """

    __slots__ = (
        *("_early", "_edited", "_filters", "_idle", "_joinable", "_latest", "_opening", "_run_job"),
        *("_streams", "_unknown", "_waiting", "opaque"),
    )

    def __init__(self, filters: TextFilters, run_job: JobRunner = run_on_loop) -> None:
        self.opaque = False
        self._run_job = run_job
        self._filters = filters
        self._joinable = JoinableTexts(filters)
        self._streams: dict[Part | Place, PartStream] = {}
        self._idle: dict[tuple[int, Kind], PartStream] = {}  # streams of ended parts
        self._unknown: dict[Place, TextFilter] = {}  # filters for texts of unknown events
        self._latest: Part | Place | None = None
        self._edited: set[Part] = set()
        bounded = not any(tally.rule.needs_whole_response for tally in filters.tallies)
        self._waiting = WaitingFrames(bounded=bounded)
        self._early = WaitingFrames(bounded=bounded)  # the frames in ``_opening``
        self._opening: list[Frame] | None = None  # frames behind a held `Start`

    @classmethod
    def for_rules(
        cls,
        tallies: Sequence[RuleTally],
        replace: Replace = replace_by_kind,
        run_job: JobRunner = run_on_loop,
        *,
        to_last: bool = False,
    ) -> Self:
        return cls(RuleFilters(tallies, replace, to_last), run_job)

    def feed(self, frame: Frame) -> list[Frame]:
        """Take the next frame and return the frames that it releases."""
        return self.feed_texts(self.read_texts(frame))

    async def inspect(self, frame: Frame) -> list[Frame]:
        """Take the next frame, and inspect it in a job if that is much work."""
        walked_texts = None
        if any(isinstance(event, _WALKED) for event in frame.events):
            walked_texts = await collect_in_steps(iter_other_texts(frame))
            self.opaque = self.opaque or bool(walked_texts.opaque)
        if walked_texts is not None and TEXT_WEIGHT * len(walked_texts.texts) > LIGHT:
            texts = await self._run_job(partial(self.read_texts, frame, walked_texts))
        else:
            texts = self.read_texts(frame, walked_texts)
        if texts.weight <= LIGHT:
            return self.feed_texts(texts)
        if all(len(going.text.text) <= SHEET for going in texts.going):
            return await self._run_job(partial(self.feed_texts, texts))
        # Each piece of a long text has a deadline of its own, as it would have in its own frame.
        steps = self.feed_in_steps(texts)
        released: list[Frame] = []
        while (frames := await self._run_job(partial(next, steps, None))) is not None:
            released += frames
        return released

    async def inspect_all(self, frames: Sequence[Frame], now: Callable[[], float]) -> list[Frame]:
        """Take many frames; other tasks run in between."""
        turn = TimeSlice(now)
        turn.start()
        released: list[Frame] = []
        for frame in frames:
            released += await self.inspect(frame)
            if turn.is_over():
                await turn.pause()
        return released

    def try_inspect(self, frame: Frame) -> list[Frame] | None:
        """Take a frame with one cheap delta of a known part, else return None."""
        if len(frame.events) != 1 or frame.last or self._joinable.ended:
            return None
        delta = frame.events[0]
        if not isinstance(delta, Delta):
            return None
        stream = self._streams.get(delta.part)
        if stream is None or TEXT_WEIGHT + stream.filter.weight(delta.text) > LIGHT:
            return None
        self._latest = delta.part
        path = delta.slot if delta.slot and frame.doc is not None else (0,)
        stream.append(HeldText(frame, path, delta.text))
        released = stream.feed(delta.text)
        return released if self._opening is None else self._start_first(released)

    def read_texts(self, frame: Frame, walked_texts: Texts | None = None) -> FrameTexts:
        """Return a frame's texts. ``walked_texts`` are those outside of deltas, if known."""
        concerns = self._filters.has_filter
        going = [delta_text for delta_text in list_delta_texts(frame) if concerns(delta_text.text)]
        complete: list[Text] = []
        walked_texts = walked_texts or collect_texts(iter_other_texts(frame))
        for text in filter(concerns, walked_texts.texts):
            place = get_place(frame, text.path)
            if place is None:
                complete.append(text)
            else:
                going.append(FrameText(text, place))
        ending = chain.from_iterable(map(self._list_ended_streams, frame.events))
        weight = sum(stream.filter.weight_of_end() for stream in ending)
        weight += sum(map(self._weigh_text, going))
        for text in complete:
            repeated = LIGHT if self._joinable.may_repeat(frame, text) else 0
            weight += TEXT_WEIGHT + weigh(text.text) + repeated
        return FrameTexts(frame, going, complete=complete, weight=weight)

    def feed_texts(self, step: FrameTexts) -> list[Frame]:
        """Take a frame with its texts, and return the frames that it releases."""
        return [*chain.from_iterable(self.feed_in_steps(step))]

    def feed_in_steps(self, step: FrameTexts) -> Iterator[list[Frame]]:
        """Yield the frames that each step releases. A step inspects one batch of a long text."""
        frame, going = self._mask_complete_texts(step)
        finish = partial(self._finish, frame, carried=[self._streams.get(g.place) for g in going])
        released = [*chain.from_iterable(map(finish, frame.events))]
        if frame.last:
            released += self.close()
        if going:
            if self._opening is None and any(isinstance(event, Start) for event in frame.events):
                self._opening = []
            yield self._start_first(released)
            yield from self._feed_texts(frame, going)
            finishes = (event for event in frame.events if isinstance(event, Finish))
            yield self._start_first([f for finish in finishes for f in self._finish(frame, finish)])
            return
        waiting = self._get_blocking_stream(frame)
        if waiting is None:
            released += remove_broken_signature(frame, self._edited)
        else:
            waiting.append(HeldText(frame, (), ""))
        yield self._start_first(released)

    def close(self) -> list[Frame]:
        """Return all waiting frames, because the response has ended."""
        self._latest = None
        for text_filter in self._unknown.values():
            text_filter.close()
        return self._start_first(close_streams([*self._streams.values(), *self._idle.values()]))

    def _weigh_text(self, going: FrameText) -> int:
        text, stream = going.text.text, self._streams.get(going.place)
        if stream is not None:
            return TEXT_WEIGHT + stream.filter.weight(text)
        parts = weigh_arguments(text) if is_json(going.place) else 0
        return TEXT_WEIGHT + weigh(text) + parts

    def _list_ended_streams(self, event: Event) -> Iterable[PartStream]:
        """Return the streams that an event ends: of its part, of its choice, or all."""
        if isinstance(event, End):
            return filter(None, (self._streams.get(event.part),))
        if isinstance(event, Finish):
            return self._list_choice_streams(event.choice)
        return self._streams.values() if isinstance(event, Stop | Fault) else ()

    def _mask_complete_texts(self, step: FrameTexts) -> tuple[Frame, list[FrameText]]:
        """Return a frame with its complete texts masked or removed, and the texts to inspect."""
        frame, going, changes = step.frame, list[FrameText](), dict[Path, str]()
        for text in step.complete:
            masked_text = self._mask_text(frame, text)
            if masked_text is not None:
                changes[text.path] = masked_text
            if self._joinable.must_remove(frame, text):
                changes[text.path] = ""
        for item in step.going:
            if self._joinable.must_remove_continued(frame, item):
                changes[item.text.path] = ""
            else:
                going.append(item)
        changed = replace_frame_texts(frame, changes)
        if any(isinstance(path[-1], MemberName) for path in changes):
            going_paths = [item.text.path for item in going]
            paths = map_paths_to_copy(frame.doc or {}, changed.doc or {}, going_paths)
            going = [
                item._replace(text=item.text._replace(path=path))
                for item, path in zip(going, paths, strict=True)
            ]
        return changed, going

    def _mask_text(self, frame: Frame, text: Text) -> str | None:
        """Return a complete text with its findings masked, None if it has none.

        Texts at one place of unknown events are also inspected as one text, because a client may
        join them.
        """
        place = get_unknown_place(frame, text.path)
        text_filter = None if place is None else self._unknown.get(place)
        if text_filter is None:
            text_filter = self._filters.make_filter(text, arguments=False, crowded=False)
        released = [*chain.from_iterable(map(text_filter.feed, split_batches(text.text)))]
        if place is not None and (place in self._unknown or len(self._unknown) < MAX_STREAMS):
            self._unknown[place] = text_filter
            released += text_filter.release()
        else:
            released += text_filter.close()
        if not any(piece.changed for piece in released):
            return None
        return "".join(piece.text for piece in released)

    def _feed_texts(self, frame: Frame, going: Sequence[FrameText]) -> Iterator[list[Frame]]:
        """Feed the texts of a frame to their filters."""
        texts = [HeldText(frame, item.text.path, item.text.text) for item in going]
        streams = [self._get_stream(item) for item in going]
        group = HeldGroup(texts, streams) if len(texts) > 1 else None
        for held_text, stream in zip(texts, streams, strict=True):
            held_text.group = group
            stream.append(held_text)
        for item, stream in zip(going, streams, strict=True):
            self._latest = item.place
            for piece in split_batches(item.text.text):
                yield self._start_first(stream.feed(piece))
            if item.place not in self._streams:
                yield self._start_first(stream.close())

    def _get_stream(self, going: FrameText) -> PartStream:
        """Return the stream of a text. Above `MAX_STREAMS` each text has its own."""
        place = going.place
        stream = self._streams.get(place)
        if stream is None and isinstance(place, Part):
            stream = self._idle.pop((place.choice, place.kind), None)
        elif stream is None and not self._joinable.is_complete(going.text):
            stream = self._get_ended_stream(get_choice(place), going.text.kind)
        names = () if isinstance(place, Part) else (s for s in place[1] if isinstance(s, str))
        crowded = len(self._streams) >= MAX_STREAMS or sum(map(len, names)) > MAX_NAME
        if stream is None:
            arguments = is_json(place)
            text_filter = self._filters.make_filter(
                going.text, arguments=arguments, crowded=crowded
            )
            ends = self._joinable.is_complete(going.text)
            stream = PartStream(text_filter, self._edited, self._waiting, ends=ends)
        if not crowded:
            self._streams[place] = stream
        return stream

    def _get_ended_stream(self, choice: int, kind: str) -> PartStream | None:
        """Return the stream of a text that continues after its choice has finished."""
        if choice not in self._joinable.ended:
            return None
        streams = (
            stream
            for place, stream in self._streams.items()
            if isinstance(place, Part) and (place.choice, KIND_OF[place.kind]) == (choice, kind)
        )
        return next(streams, None)

    def _get_blocking_stream(self, frame: Frame) -> PartStream | None:
        """Return the stream whose waiting frames must be sent before a frame without text."""
        latest = self._latest
        is_untyped = frame.doc is not None and not frame.events
        stream = self._streams.get(latest) if latest is not None and is_untyped else None
        for event in frame.events:
            if isinstance(event, Attach | Native) and event.part is not None:
                is_parent = isinstance(latest, Part) and latest.parent is event.part
                stream = self._streams.get(latest if latest and is_parent else event.part)
        return stream if stream is not None and stream.head is not None else None

    def _list_choice_streams(self, choice: int) -> list[PartStream]:
        return [
            *(stream for place, stream in self._streams.items() if get_choice(place) == choice),
            *(stream for place, stream in self._idle.items() if place[0] == choice),
        ]

    def _finish(self, frame: Frame, event: Event, carried: Sequence[object] = ()) -> list[Frame]:
        """Return the frames that an event releases. `Finish` ends no text in `carried`."""
        if isinstance(event, End):
            return self._end_part(frame, event.part)
        if isinstance(event, Finish):
            self._joinable.ended.add(event.choice)
            streams = self._list_choice_streams(event.choice)
            return close_streams(s for s in streams if s.ends and s not in carried)
        return self.close() if isinstance(event, Stop | Fault) else []

    def _end_part(self, frame: Frame, part: Part) -> list[Frame]:
        released: list[Frame] = []
        if frame.family not in CHAT:  # release the texts of earlier documents without a type
            for place, stream in self._streams.items():
                if not isinstance(place, Part):
                    released += stream.release()
        if (ended := self._streams.pop(part, None)) is not None:
            released += ended.release()
            if (idle_stream := self._idle.get((part.choice, part.kind))) is not None:
                released += idle_stream.close()
            self._idle[part.choice, part.kind] = ended
        self._edited.discard(part)
        return released

    def _start_first(self, frames: list[Frame]) -> list[Frame]:
        """Return the released frames with the `Start` event first."""
        if self._opening is None:
            return frames
        self._opening += frames
        starts = [frame for frame in frames if any(type(event) is Start for event in frame.events)]
        if not starts:
            for frame in frames:
                self._early.add(frame)
            return []
        opening, self._opening = self._opening, None
        return [*starts, *(frame for frame in opening if frame not in starts)]
