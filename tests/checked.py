"""Checks the order of events in frames, as documented in `proxy.types.events`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from proxy.types.events import (
    Attach,
    Delta,
    Event,
    Fault,
    Finish,
    Frame,
    Part,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseStart,
    UsageReport,
)


def checked(
    frames: Iterable[Frame], *, split: bool = False, sequenced: bool = False
) -> list[Frame]:
    """Return the frames of a model call. Raise ``AssertionError`` if their order breaks a rule.

    `split`: a frame has at most one delta, and a delta has no `PartEnd`, `Finish` or
    `ResponseEnd` beside it.
    `sequenced`: at most one part and its parent are open at a time.
    """
    checker = OrderChecker(split=split, sequenced=sequenced)
    return list(checker.each(frames))


class OrderChecker:
    """Checks the order of the frames of one model call."""

    def __init__(self, *, split: bool = False, sequenced: bool = False) -> None:
        self.split = split
        self.sequenced = sequenced
        self.started = self.stopped = False
        self.open: list[Part] = []
        self.seen: set[Part] = set()
        self.begun: set[int] = set()
        self.finished: set[int] = set()

    def each(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        for frame in frames:
            self.feed(frame)
            yield frame

    def feed(self, frame: Frame) -> None:
        kinds = [type(event) for event in frame.events]
        assert frame.raw is None or frame.doc is not None or kinds == [ResponseEnd], (
            "raw without doc"
        )
        if self.split and Delta in kinds:
            assert kinds.count(Delta) == 1, "two deltas in a frame"
            assert not {PartEnd, Finish, ResponseEnd} & {*kinds}, f"a delta beside an end: {kinds}"
        for event in frame.events:
            assert not self.stopped, "an event after ResponseEnd"
            self._check(event)

    def _check(self, event: Event) -> None:
        match event:
            case ResponseStart():
                assert not self.started, "second ResponseStart"
                self.started = True
            case PartStart(part):
                self._begin(part)
            case Delta(part) | Attach(part):
                assert part in self.open, f"{event} of a part that is not open"
            case PartEnd(part):
                assert part in self.open, f"{event} of a part that is not open"
                assert not any(item.parent is part for item in self.open), "a child is open"
                self.open.remove(part)
            case UsageReport():
                assert self.started, "UsageReport before ResponseStart"
            case _:
                self._close(event)

    def _close(self, event: Event) -> None:
        match event:
            case Finish(choice):
                self._finish(choice)
            case ResponseEnd():
                assert self.begun <= self.finished, "ResponseEnd before Finish"
                self.stopped = True
            case Fault():
                self.finished = self.begun
            case _:
                pass

    def _begin(self, part: Part) -> None:
        assert self.started, "PartStart before ResponseStart"
        assert part not in self.seen, "second PartStart"
        assert part.choice not in self.finished, "PartStart after Finish"
        assert part.parent is None or part.parent in self.open, "the parent is not open"
        if self.sequenced:
            assert self.open == ([part.parent] if part.parent else []), "two parts are open"
        self.open.append(part)
        self.seen.add(part)
        self.begun.add(part.choice)

    def _finish(self, choice: int) -> None:
        assert choice not in self.finished, "second Finish"
        mine = [part for part in self.open if part.choice == choice]
        assert not [part for part in mine if part.closing == "marked"], "a marked part is open"
        self.finished.add(choice)
        self.begun.add(choice)
        self.open = [part for part in self.open if part.choice != choice]
