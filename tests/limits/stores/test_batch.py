"""Questions that share a round trip; the trips end when the test lets them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from proxy.limits.stores.batch import MOST_WAITING, Batcher, Reply, ScriptCall
from proxy.limits.stores.store import StoreUnavailable
from tests.servers import eventually


@dataclass
class Trips:
    """What was asked in each trip; ``go`` lets them end, ``failing`` makes them fail."""

    asked: list[list[str]] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    failing: bool = False

    async def trip(self, questions: Sequence[ScriptCall]) -> list[Reply]:
        self.asked.append([question.text for question in questions])
        self.begun.set()
        await self.go.wait()
        if self.failing:
            return [StoreUnavailable("down")] * len(questions)
        return [[int(question.text)] for question in questions]


def ask(batches: Batcher, *texts: str) -> list[asyncio.Future[Sequence[int]]]:
    return [batches.put(ScriptCall(("key",), text)) for text in texts]


async def test_what_is_asked_during_a_trip_shares_the_next_and_each_gets_its_answer() -> None:
    trips = Trips()
    async with Batcher(trips.trip) as batches:
        first = ask(batches, "1")
        await trips.begun.wait()
        rest = ask(batches, "2", "3", "4")
        trips.go.set()

        assert await asyncio.gather(*first, *rest) == [[1], [2], [3], [4]]

    assert trips.asked == [["1"], ["2", "3", "4"]]


async def test_what_nobody_waits_for_rides_with_the_next_question_and_before_it() -> None:
    trips = Trips()
    trips.go.set()
    async with Batcher(trips.trip) as batches:
        heard: list[Reply] = []
        for text in "12":
            batches.piggyback(ScriptCall(("key",), text), heard.append)

        assert await ask(batches, "3")[0] == [3]
        assert heard == [[1], [2]]

    assert trips.asked == [["1", "2", "3"]]


async def test_what_rides_goes_by_itself_when_nobody_asks_and_on_the_way_out() -> None:
    trips = Trips()
    trips.go.set()
    async with Batcher(trips.trip) as batches:
        heard: list[Reply] = []
        batches.piggyback(ScriptCall(("key",), "1"), heard.append)
        await eventually(lambda: heard == [[1]])
        batches.piggyback(ScriptCall(("key",), "2"), heard.append)

    assert heard == [[1], [2]]
    assert trips.asked == [["1"], ["2"]]


async def test_who_waits_behind_a_trip_that_failed_fails_with_it() -> None:
    trips = Trips(failing=True)
    async with Batcher(trips.trip) as batches:
        first = ask(batches, "1")
        await trips.begun.wait()
        behind = ask(batches, "2")
        trips.go.set()
        done = await asyncio.gather(*first, *behind, return_exceptions=True)

        assert [type(each) for each in done] == [StoreUnavailable] * 2
        trips.failing = False
        assert await ask(batches, "3")[0] == [3]

    assert trips.asked == [["1"], ["3"]]


async def test_one_who_leaves_takes_no_answer_from_the_others() -> None:
    trips = Trips()
    async with Batcher(trips.trip) as batches:
        gone, stays = ask(batches, "1", "2")
        gone.cancel()
        trips.go.set()

        assert await stays == [2]


async def test_leaving_asks_what_still_waits_and_takes_no_more() -> None:
    trips = Trips()
    trips.go.set()
    async with Batcher(trips.trip) as batches:
        last = ask(batches, "1")

    assert await last[0] == [1]
    with pytest.raises(StoreUnavailable):
        ask(batches, "2")


async def test_the_queue_is_bounded() -> None:
    batches = Batcher(Trips().trip)
    ask(batches, *["1"] * MOST_WAITING)

    with pytest.raises(StoreUnavailable):
        ask(batches, "2")
