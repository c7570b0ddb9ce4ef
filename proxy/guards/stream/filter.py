"""Filters a streamed response: holds frames until their texts are clear, and masks texts.

Each part has its text filter. A frame waits until all of its text is clear, and later frames of the
part wait behind it; ``PartEnd``, ``Finish`` and ``ResponseEnd`` release them. A part that follows
an ended one of its kind takes over its filter, because a finding may lie across both.

The weight of a frame is the amount of text that its inspection reads, with held and ended texts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple, Protocol, Self, TypeVar

from proxy.guards.findings import RuleTally
from proxy.guards.stream import frame_texts, part_stream
from proxy.guards.stream.arguments import estimate_splitting_weight
from proxy.guards.stream.frame_texts import KIND_OF, TextKey, UnfinishedText, get_choice_index
from proxy.guards.stream.part_stream import HeldFrameTexts, HeldText, PartStream, WaitingFrameLoad
from proxy.guards.stream.text_filter import TextFilter, TextFilterFactory
from proxy.guards.stream.texts import JoinableTextTracker, RuleFilterFactory
from proxy.guards.text import documents
from proxy.guards.text.documents import LOOP_WEIGHT, TEXT_WEIGHT, split_by_char_count
from proxy.guards.text.replace import map_paths_to_copy
from proxy.guards.text.walk import MemberName, Path, Text, Texts
from proxy.runtime.fair_queue import TimeSlice
from proxy.types.events import (
    Attach,
    Delta,
    Event,
    Fault,
    Finish,
    Frame,
    Kind,
    Part,
    PartEnd,
    ResponseEnd,
    Unmapped,
    has_response_start,
)

MAX_STREAMS = 1024  # texts of a response that may have filters at the same time
MAX_NAME = 1024  # characters of all names in the path of a text
T = TypeVar("T")


class JobRunner(Protocol):
    """Runs a job so that it delays no other call, for example in a thread."""

    def __call__(self, job: Callable[[], T]) -> Awaitable[T]: ...


async def run_on_loop(job: Callable[[], T]) -> T:
    return job()


class FrameTexts(NamedTuple):
    """Texts of a frame and their weight. Later frames may continue the ``open_texts``."""

    frame: Frame
    open_texts: Sequence[UnfinishedText]
    complete_texts: Sequence[Text]
    weight: int


class StreamFilter:
    """Takes the frames of a stream and returns the frames that may be sent.

    Raises ``GuardBlocked``. ``opaque`` becomes True if a frame has unreadable content.
    """

    def __init__(self, filters: TextFilterFactory, run_job: JobRunner = run_on_loop) -> None:
        self.opaque = False
        self._run_job, self._filters = run_job, filters
        self._joinable = JoinableTextTracker(filters)
        self._streams: dict[Part | TextKey, PartStream] = {}
        self._idle: dict[tuple[int, Kind], PartStream] = {}  # streams of ended parts
        self._unknown: dict[TextKey, TextFilter] = {}  # filters for texts of unknown events
        self._latest: Part | TextKey | None = None
        self._edited: set[Part] = set()
        is_bounded = not any(tally.rule.needs_whole_response for tally in filters.tallies)
        self._waiting = WaitingFrameLoad(is_bounded=is_bounded)
        self._early = WaitingFrameLoad(is_bounded=is_bounded)  # the frames in ``_opening``
        self._opening: list[Frame] | None = None  # frames behind a held `ResponseStart`

    @classmethod
    def for_rules(
        cls,
        tallies: Sequence[RuleTally],
        run_job: JobRunner = run_on_loop,
        *,
        texts_continue_after_finish: bool = False,
    ) -> Self:
        return cls(RuleFilterFactory(tallies, texts_continue_after_finish), run_job)

    def feed(self, frame: Frame) -> list[Frame]:
        """Take the next frame and return the frames that it releases."""
        walked_texts = documents.collect_texts(frame_texts.iter_non_delta_texts(frame))
        return self.feed_texts(self.read_texts(frame, walked_texts))

    async def inspect(self, frame: Frame) -> list[Frame]:
        """Take the next frame, and inspect it in a job if that is much work."""
        walk = frame_texts.iter_non_delta_texts(frame)
        walked_texts = await documents.collect_texts_in_steps(walk)
        self.opaque = self.opaque or bool(walked_texts.opaque)
        if TEXT_WEIGHT * len(walked_texts.texts) > LOOP_WEIGHT:
            texts = await self._run_job(partial(self.read_texts, frame, walked_texts))
        else:
            texts = self.read_texts(frame, walked_texts)
        if texts.weight <= LOOP_WEIGHT:
            return self.feed_texts(texts)
        if all(len(item.text.text) <= documents.BATCH_CHARS for item in texts.open_texts):
            return await self._run_job(partial(self.feed_texts, texts))
        # Each piece of a long text has a deadline of its own, as it would have in its own frame.
        steps = self.feed_texts_in_steps(texts)
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
        """Take a frame with one delta that is little work, else take nothing and return None."""
        if len(frame.events) != 1 or frame.last or self._joinable.finished_choices:
            return None
        delta = frame.events[0]
        if not isinstance(delta, Delta):
            return None
        stream, text = self._streams.get(delta.part), delta.text
        if stream is None or TEXT_WEIGHT + stream.filter.estimate_feed_work(text) > LOOP_WEIGHT:
            return None
        self._latest = delta.part
        path = delta.slot if delta.slot and frame.doc is not None else (0,)
        stream.append(HeldText(frame, path, text, part=delta.part))
        released = stream.feed(text)
        return released if self._opening is None else self._hold_until_start(released)

    def read_texts(self, frame: Frame, walked_texts: Texts) -> FrameTexts:
        """Return a frame's texts. ``walked_texts`` are those outside of deltas."""
        must_filter, deltas = self._filters.must_filter, frame_texts.list_delta_texts(frame)
        open_texts = [delta for delta in deltas if must_filter(delta.text)]
        complete_texts: list[Text] = []
        for text in filter(must_filter, walked_texts.texts):
            key = frame_texts.get_text_key(frame, text.path)
            if key is None:
                complete_texts.append(text)
            else:
                open_texts.append(UnfinishedText(text, key))
        ending = chain.from_iterable(map(self._list_ended_streams, frame.events))
        weight = sum(stream.filter.estimate_close_work() for stream in ending)
        weight += sum(map(self._estimate_text_weight, open_texts))
        for text in complete_texts:
            repeated = LOOP_WEIGHT if self._joinable.may_inspect_joined_copies(frame, text) else 0
            weight += TEXT_WEIGHT + documents.estimate_weight(text.text) + repeated
        return FrameTexts(frame, open_texts, complete_texts=complete_texts, weight=weight)

    def feed_texts(self, texts: FrameTexts) -> list[Frame]:
        return [*chain.from_iterable(self.feed_texts_in_steps(texts))]

    def feed_texts_in_steps(self, texts: FrameTexts) -> Iterator[list[Frame]]:
        """Yield the frames that each step releases. A step inspects one batch of a long text."""
        frame, open_texts = self._mask_complete_texts(texts)
        continued_streams = [self._streams.get(item.key) for item in open_texts]
        close_ended = partial(self._close_ended_streams, frame, continued_streams=continued_streams)
        released = [*chain.from_iterable(map(close_ended, frame.events))]
        if frame.last:
            released += self.close()
        if open_texts:
            if self._opening is None and has_response_start(frame):
                self._opening = []
            yield self._hold_until_start(released)
            yield from self._feed_open_texts(frame, open_texts)
            finishes = (event for event in frame.events if isinstance(event, Finish))
            released_last = map(partial(self._close_ended_streams, frame), finishes)
            yield self._hold_until_start([*chain.from_iterable(released_last)])
            return
        waiting = self._get_blocking_stream(frame)
        if waiting is None:
            released += part_stream.remove_broken_signature(frame, self._edited)
        else:
            waiting.append(HeldText(frame, (), ""))
        yield self._hold_until_start(released)

    def close(self) -> list[Frame]:
        """Return all waiting frames, because the response has ended."""
        self._latest = None
        for text_filter in self._unknown.values():
            text_filter.close()
        streams = [*self._streams.values(), *self._idle.values()]
        return self._hold_until_start(part_stream.close_streams(streams))

    def _estimate_text_weight(self, open_text: UnfinishedText) -> int:
        text, stream = open_text.text.text, self._streams.get(open_text.key)
        if stream is not None:
            return TEXT_WEIGHT + stream.filter.estimate_feed_work(text)
        is_json = frame_texts.is_json_text(open_text.key)
        parts = estimate_splitting_weight(text) if is_json else 0
        return TEXT_WEIGHT + documents.estimate_weight(text) + parts

    def _mask_complete_texts(self, texts: FrameTexts) -> tuple[Frame, list[UnfinishedText]]:
        """Return a frame with its complete texts masked or removed, and the texts to inspect."""
        frame, open_texts, changes = texts.frame, list[UnfinishedText](), dict[Path, str]()
        for text in texts.complete_texts:
            masked_text = self._mask_complete_text(frame, text)
            if masked_text is not None:
                changes[text.path] = masked_text
            if self._joinable.must_remove_complete_text(frame, text):
                changes[text.path] = ""
        for item in texts.open_texts:
            if self._joinable.must_remove_open_text(frame, item):
                changes[item.text.path] = ""
            else:
                open_texts.append(item)
        changed = frame_texts.replace_frame_texts(frame, changes)
        if any(isinstance(path[-1], MemberName) for path in changes):
            open_paths = [item.text.path for item in open_texts]
            paths = map_paths_to_copy(frame.doc or {}, changed.doc or {}, open_paths)
            open_texts = [
                item._replace(text=item.text._replace(path=path))
                for item, path in zip(open_texts, paths, strict=True)
            ]
        return changed, open_texts

    def _mask_complete_text(self, frame: Frame, text: Text) -> str | None:
        """Return a complete text with its findings masked, None if nothing was masked.

        Texts of unknown events with one key are also inspected as one text, because a client may
        join them.
        """
        key = frame_texts.get_unknown_event_text_key(frame, text.path)
        text_filter = None if key is None else self._unknown.get(key)
        if text_filter is None:
            text_filter = self._filters.make_filter(text, is_arguments=False, is_over_limit=False)
        released = [*chain.from_iterable(map(text_filter.feed, split_by_char_count(text.text)))]
        if key is not None and (key in self._unknown or len(self._unknown) < MAX_STREAMS):
            self._unknown[key] = text_filter
            released += text_filter.flush()
        else:
            released += text_filter.close()
        is_changed = any(piece.is_changed for piece in released)
        return "".join(piece.text for piece in released) if is_changed else None

    def _feed_open_texts(
        self, frame: Frame, open_texts: Sequence[UnfinishedText]
    ) -> Iterator[list[Frame]]:
        texts = [
            HeldText(frame, text.path, text.text, part=key if isinstance(key, Part) else None)
            for text, key in open_texts
        ]
        streams = [self._get_or_create_stream(item) for item in open_texts]
        group = HeldFrameTexts(texts, streams) if len(texts) > 1 else None
        for held_text, stream in zip(texts, streams, strict=True):
            held_text.group = group
            stream.append(held_text)
        for item, stream in zip(open_texts, streams, strict=True):
            self._latest = item.key
            for piece in split_by_char_count(item.text.text):
                yield self._hold_until_start(stream.feed(piece))
            if item.key not in self._streams:
                yield self._hold_until_start(stream.close())

    def _get_or_create_stream(self, open_text: UnfinishedText) -> PartStream:
        """Return the stream of a text. Above ``MAX_STREAMS`` each text has its own."""
        key = open_text.key
        stream = self._streams.get(key)
        if stream is None and isinstance(key, Part):
            stream = self._idle.pop((key.choice, key.kind), None)
        elif stream is None and not self._joinable.ends_with_choice(open_text.text):
            stream = self._find_finished_choice_stream(get_choice_index(key), open_text.text.kind)
        names = () if isinstance(key, Part) else (s for s in key[1] if isinstance(s, str))
        is_over_limit = len(self._streams) >= MAX_STREAMS or sum(map(len, names)) > MAX_NAME
        if stream is None:
            is_json = frame_texts.is_json_text(key)
            text_filter = self._filters.make_filter(
                open_text.text, is_arguments=is_json, is_over_limit=is_over_limit
            )
            stream = PartStream(
                text_filter,
                self._edited,
                self._waiting,
                ends_with_choice=self._joinable.ends_with_choice(open_text.text),
            )
        if not is_over_limit:
            self._streams[key] = stream
        return stream

    def _find_finished_choice_stream(self, choice: int, kind: str) -> PartStream | None:
        """Return the stream that a text of one kind continues after its choice has finished."""
        has_finished = choice in self._joinable.finished_choices
        for key, stream in self._streams.items() if has_finished else ():
            if isinstance(key, Part) and (key.choice, KIND_OF[key.kind]) == (choice, kind):
                return stream
        return None

    def _get_blocking_stream(self, frame: Frame) -> PartStream | None:
        """Return the stream whose waiting frames must be sent before a frame without text."""
        latest = self._latest
        is_untyped = frame.doc is not None and not frame.events
        stream = self._streams.get(latest) if latest is not None and is_untyped else None
        for event in frame.events:
            if isinstance(event, Attach | Unmapped) and event.part is not None:
                is_parent = isinstance(latest, Part) and latest.parent is event.part
                stream = self._streams.get(latest if latest and is_parent else event.part)
        return stream if stream is not None and stream.head is not None else None

    def _list_choice_streams(self, choice: int) -> list[PartStream]:
        return [
            *(stream for key, stream in self._streams.items() if get_choice_index(key) == choice),
            *(stream for key, stream in self._idle.items() if key[0] == choice),
        ]

    def _list_ended_streams(self, event: Event) -> Iterable[PartStream]:
        """Return the streams that an event ends: of its part, of its choice, or all."""
        if isinstance(event, PartEnd):
            return filter(None, (self._streams.get(event.part),))
        if isinstance(event, Finish):
            return self._list_choice_streams(event.choice)
        return self._streams.values() if isinstance(event, ResponseEnd | Fault) else ()

    def _close_ended_streams(
        self, frame: Frame, event: Event, continued_streams: Sequence[object] = ()
    ) -> list[Frame]:
        """Return frames that an event releases. ``Finish`` keeps ``continued_streams`` open."""
        if isinstance(event, PartEnd):
            return self._release_and_park_part(frame, event.part)
        if isinstance(event, Finish):
            self._joinable.finished_choices.add(event.choice)
            streams = self._list_choice_streams(event.choice)
            ended = (s for s in streams if s.ends_with_choice and s not in continued_streams)
            return part_stream.close_streams(ended)
        return self.close() if isinstance(event, ResponseEnd | Fault) else []

    def _release_and_park_part(self, frame: Frame, part: Part) -> list[Frame]:
        released: list[Frame] = []
        if frame.family not in frame_texts.CHAT_FAMILIES:  # earlier documents without a type
            for key, stream in self._streams.items():
                if not isinstance(key, Part):
                    released += stream.flush()
        if (ended := self._streams.pop(part, None)) is not None:
            released += ended.flush()
            if (idle_stream := self._idle.get((part.choice, part.kind))) is not None:
                released += idle_stream.close()
            self._idle[part.choice, part.kind] = ended
        self._edited.discard(part)
        return released

    def _hold_until_start(self, frames: list[Frame]) -> list[Frame]:
        """Hold frames until one has the ``ResponseStart``. Then return all, that one first."""
        if self._opening is None:
            return frames
        self._opening += frames
        starts = [frame for frame in frames if has_response_start(frame)]
        if not starts:
            for frame in frames:
                self._early.add_frame(frame)
            return []
        opening, self._opening = self._opening, None
        return [*starts, *(frame for frame in opening if frame not in starts)]
