"""The way of an answer's frames: each is accounted and looked at once, whoever is woken for it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.app.context import new_record
from proxy.call.record import Record
from proxy.errors import GuardBlocked, ProxyError, UpstreamInvalid
from proxy.ports import Feed
from proxy.relay import relay
from proxy.runtime.fair_queue import SLICE_S, TimeSlices
from proxy.types import ResponseHead, Target, Upstream
from proxy.types.events import Delta, Frame, Part
from tests.doubles import Unguarded

TEXT = Part("text", 0)
TARGET = Target(Upstream("openai", "openai", "http://127.0.0.1:9"), "gpt-4o-mini")
DOES = ("pass", "pass", "pass", "hold", "wait", "block")
Batch = tuple[bool, list[str]]
"""Whether frames come while they are waited for, and what a guard does with each of them."""


class Coming:
    """An answer whose frames come in batches; it breaks off after them where it does not end."""

    def __init__(self, batches: Sequence[tuple[bool, Sequence[Frame]]], *, ends: bool) -> None:
        self.head = ResponseHead(streamed=True)
        self._batches = batches
        self._ends = ends
        self.returned = 0

    async def frames(self, feed: Feed | None = None) -> AsyncIterator[Sequence[Frame]]:
        for waited, frames in self._batches:
            if not waited or feed is None:
                self.returned += 1
                yield frames
            elif (pending := feed(frames)) is not None:
                self.returned += 1
                await pending
        if not self._ends:
            raise UpstreamInvalid("It broke off.")
        yield (Frame((), last=True),)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *left_by: object) -> None:
        return None


class Guarding(Unguarded):
    """A guard that does with each frame what that says."""

    def __init__(self) -> None:
        self._held: list[Frame] = []

    def try_inspect(self, frame: Frame) -> Sequence[Frame] | None:
        does = "pass" if frame.doc is None else frame.doc["does"]
        return None if does == "wait" else self._looked(frame, does)

    async def inspect(self, frame: Frame) -> Sequence[Frame]:
        return self._looked(frame, "pass")

    def _looked(self, frame: Frame, does: str) -> Sequence[Frame]:
        if does == "block":
            raise GuardBlocked("No.", guard="house", kind="word")
        self._held.append(frame)
        if does == "hold":
            return ()
        released, self._held = self._held, []
        return released

    def abort(self) -> Sequence[Frame]:
        return self._held


class Shown:
    """Where frames are shown, some of them ``at_once``."""

    def __init__(self, at_once: Sequence[bool] = ()) -> None:
        self.frames: list[Frame] = []
        self._at_once = list(at_once)

    async def start(self, head: ResponseHead, record: Record) -> None:
        """A head is not shown here."""

    async def send(self, frames: Sequence[Frame]) -> None:
        self.frames += frames

    def try_send(self, frames: Sequence[Frame]) -> bool:
        is_sent = self._at_once.pop(0) if self._at_once else True
        self.frames += frames if is_sent else ()
        return is_sent


def said(does: str, number: int = 1) -> Frame:
    return Frame((Delta(TEXT, "x" * number),), "chat", {"does": does})


async def relayed(answer: Coming, output: Shown) -> tuple[list[Frame], int, str | None]:
    record = new_record()
    attempt = record.start_attempt(TARGET, 0, "")
    record.use_attempt(0, attempt)
    ended = None
    try:
        await relay(answer, Guarding(), record, output, TimeSlices())
    except ProxyError as error:
        ended = error.code
    return output.frames, attempt.meter.output_quarters, ended


async def test_what_a_guard_lets_pass_before_it_blocks_is_shown() -> None:
    frames = [said("pass"), said("pass"), said("block")]

    outputs, accounted, ended = await relayed(Coming([(False, frames)], ends=True), Shown())

    assert (outputs, accounted, ended) == (frames[:2], 3, "guardrail_blocked")


async def test_chunks_that_are_clear_go_on_without_waking_who_waits_for_them() -> None:
    answer = Coming([(True, [said("pass")]), (True, [said("hold"), said("pass")])], ends=True)

    frames, accounted, ended = await relayed(answer, Shown())

    assert (len(frames), accounted, ended) == (4, 3, None)
    assert answer.returned == 0


@pytest.mark.parametrize("does", ["wait", "block"])
async def test_who_waits_is_woken_where_a_guard_takes_time_or_stops_the_answer(does: str) -> None:
    answer = Coming([(True, [said("pass"), said(does), said("pass")])], ends=True)

    frames, accounted, ended = await relayed(answer, Shown())

    blocked = does == "block"
    assert answer.returned == 1
    assert (len(frames), accounted) == ((1, 2) if blocked else (4, 3))
    assert ended == ("guardrail_blocked" if blocked else None)


batches = st.lists(
    st.tuples(st.booleans(), st.lists(st.sampled_from(DOES), min_size=1, max_size=4)), max_size=6
)


@given(given=batches, at_once=st.lists(st.booleans(), max_size=8), ends=st.booleans())
async def test_wakes_change_nothing(given: list[Batch], at_once: list[bool], ends: bool) -> None:
    number = 0
    coming: list[tuple[bool, Sequence[Frame]]] = []
    for waited, does in given:
        frames = [said(doe, number := number + 1) for doe in does]
        coming.append((waited, frames))
    plain: list[Any] = [(False, frames) for _, frames in coming]

    matches = await relayed(Coming(coming, ends=ends), Shown(at_once))

    assert matches == await relayed(Coming(plain, ends=ends), Shown())


def worked_by(caller: str) -> Record:
    """Return the record of a call each of whose frames takes a turn on the loop."""
    clock = itertools.count(0, 2 * SLICE_S)
    record = replace(new_record(), now=lambda: float(next(clock)))
    record.key = caller
    record.use_attempt(0, record.start_attempt(TARGET, 0, ""))
    return record


async def test_many_streams_of_one_key_hold_up_no_other_for_longer_than_one_of_them() -> None:
    turns, theirs, own_shown = TimeSlices(), Shown(), Shown()
    batches = [(False, [said("pass")])] * 20
    tasks = [
        asyncio.ensure_future(
            relay(Coming(batches, ends=True), Guarding(), worked_by("search"), theirs, turns)
        )
        for _ in range(50)
    ]

    await relay(Coming(batches, ends=True), Guarding(), worked_by("support"), own_shown, turns)

    assert len(own_shown.frames) == 21
    assert len(theirs.frames) <= 50 + 21 + 2  # the first of each, then one in a round
    await asyncio.gather(*tasks)
    assert len(theirs.frames) == 50 * 21
