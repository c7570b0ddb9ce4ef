"""Background tasks, threads, time slices and fair scheduling."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from proxy.runtime import fair_queue
from proxy.runtime.background import MAX_STEP_S, SideTasks, background_task, run_steps_with_pauses
from proxy.runtime.lazy import LazyImportTable
from tests.doubles import PATIENCE_S
from tests.guards.doubles import Ticks


async def forever(ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("ended")


async def test_work_ends_with_the_block() -> None:
    ended: list[str] = []

    async with background_task(forever(ended)):
        await asyncio.sleep(0)
        assert ended == []

    assert ended == ["ended"]


async def test_exception_of_the_block_is_raised_unchanged() -> None:
    ended: list[str] = []

    with pytest.raises(KeyError):
        async with background_task(forever(ended)):
            await asyncio.sleep(0)
            raise KeyError

    assert ended == ["ended"]


async def test_failed_work_ends_the_block() -> None:
    async def failing() -> None:
        raise KeyError

    with pytest.raises(ExceptionGroup) as failed:
        async with background_task(failing()):
            await asyncio.Event().wait()

    assert failed.group_contains(KeyError)


class Clock:
    """Clock that advances with work. ``slept`` is the time given to other tasks."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.time = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def steps(self, count: int) -> Iterator[None]:
        for _ in range(count):
            self.time += self.step_s
            yield


@pytest.mark.parametrize(("is_busy", "remainder"), [(True, 1.0), (False, 0.0)])
async def test_background_work_pauses_between_steps(is_busy: bool, remainder: float) -> None:
    long, short = Clock(3 * MAX_STEP_S), Clock(MAX_STEP_S / 2)

    for clock in (long, short):
        await run_steps_with_pauses(clock.steps(4), lambda: is_busy, clock.now, clock.sleep)

    assert long.slept == pytest.approx([remainder * 3 * MAX_STEP_S] * 4)
    assert short.slept == pytest.approx([remainder * MAX_STEP_S] * 2)


async def test_side_tasks_are_bounded_and_end_with_their_owner() -> None:
    ends: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(name)

    async with SideTasks(max_tasks=2) as side_tasks:
        assert not side_tasks.is_full("a")
        tasks = [side_tasks.start(work(name), "a") for name in ("first", "second")]
        await asyncio.sleep(0)
        assert side_tasks.is_full("a")
        assert not side_tasks.is_full("b")
        assert not any(task.done() for task in tasks)

    assert ends == ["first", "second"]
    assert not side_tasks.is_full("a")


async def test_only_work_on_large_bodies_leaves_the_loop() -> None:
    with ThreadPoolExecutor(1, "bodies") as executor:
        offload = fair_queue.Offload(executor)

        small = await offload.run(fair_queue.LARGE_BYTES, threading.current_thread, "a")
        large = await offload.run(fair_queue.LARGE_BYTES + 1, threading.current_thread, "a")

    assert small is threading.current_thread()
    assert large.name.startswith("bodies")


TABLE: LazyImportTable[object] = LazyImportTable(
    {"sep": "os.path:sep", "gone": "proxy.is_no_module:x", "nameless": "os.path:is_no_name"}
)


def test_lazy_table_returns_the_object_of_a_name() -> None:
    assert TABLE["sep"] == "/"
    assert TABLE.get("other") is None
    assert list(TABLE) == ["sep", "gone", "nameless"]
    assert (len(TABLE), "gone" in TABLE, "other" in TABLE) == (3, True, False)


def test_additional_modules_are_imported_with_any_name() -> None:
    table: LazyImportTable[object] = LazyImportTable(
        {"sep": "os.path:sep"}, companion="proxy.is_no_module"
    )

    assert "sep" in table
    with pytest.raises(ImportError, match="is_no_module"):
        table["sep"]


def test_missing_object_is_reported_on_access() -> None:
    with pytest.raises(ImportError, match="is_no_module"):
        TABLE["gone"]
    with pytest.raises(AttributeError, match="is_no_name"):
        TABLE["nameless"]


def work_for(turn: fair_queue.TimeSlice, clock: Ticks, seconds: float) -> bool:
    clock.now += seconds
    return turn.is_over()


def test_time_slice_ends_after_total_work() -> None:
    clock = Ticks()
    turn = fair_queue.TimeSlice(clock)
    turn.start()

    assert not work_for(turn, clock, fair_queue.TIME_SLICE_S * 0.6)
    assert work_for(turn, clock, fair_queue.TIME_SLICE_S * 0.6)


async def test_pause_lets_others_run_and_starts_a_new_slice() -> None:
    clock = Ticks()
    turn = fair_queue.TimeSlice(clock)
    turn.start()
    other_event = asyncio.Event()
    asyncio.get_running_loop().call_soon(other_event.set)
    assert work_for(turn, clock, 2 * fair_queue.TIME_SLICE_S)

    await turn.pause()

    assert other_event.is_set()
    assert not work_for(turn, clock, fair_queue.TIME_SLICE_S / 2)


async def rounds(
    turns: fair_queue.PauseScheduler, caller: str, went_on: list[str], *, times: int = 1
) -> None:
    for _ in range(times):
        await turns.pause(caller)
        went_on.append(caller)


async def test_one_job_of_a_caller_runs_per_loop_iteration() -> None:
    turns, went_on = fair_queue.PauseScheduler(), list[str]()
    tasks = [asyncio.ensure_future(rounds(turns, "search", went_on, times=3)) for _ in range(50)]
    other_task = asyncio.ensure_future(rounds(turns, "support", went_on, times=3))

    await other_task

    assert went_on.count("search") <= 4  # without turns there would be fifty times as many
    await asyncio.gather(*tasks)
    assert went_on.count("search") == 150


async def test_work_cancelled_during_a_pause_delays_nobody() -> None:
    turns, went_on = fair_queue.PauseScheduler(), list[str]()
    remaining = asyncio.ensure_future(rounds(turns, "search", went_on))
    stays = asyncio.ensure_future(rounds(turns, "search", went_on))
    await asyncio.sleep(0)
    remaining.cancel()

    await stays

    assert went_on == ["search"]
    await asyncio.gather(remaining, return_exceptions=True)
    assert remaining.cancelled()


async def take(turns: fair_queue.FairSemaphore, caller: str, order: list[str]) -> None:
    async with turns.make_slot(caller):
        order.append(caller)
        await asyncio.sleep(0)


async def test_single_job_follows_one_job_of_a_busy_caller() -> None:
    turns, order = fair_queue.FairSemaphore(1), list[str]()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for caller in "aaaaaaaaabac":
            group.create_task(take(turns, caller, order))

    assert "".join(order) == "abacaaaaaaaa"


async def test_cancelled_waiters_lose_no_slot() -> None:
    turns, order = fair_queue.FairSemaphore(1), list[str]()
    await turns.take("a")
    tasks = [asyncio.ensure_future(take(turns, caller, order)) for caller in "bbcd"]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[2].cancel()
    await asyncio.sleep(0)
    turns.release("a")
    tasks[1].cancel()  # which already has the slot
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*tasks, return_exceptions=True)
        await take(turns, "e", order)

    assert order == ["d", "e"]


async def work(
    turns: fair_queue.FairSemaphore, caller: str, seconds: float, order: list[str]
) -> None:
    async with turns.make_slot(caller) as turn:
        order.append(caller)
        turn.charge(seconds)
        await asyncio.sleep(0)


async def test_caller_with_less_work_is_served_first() -> None:
    """A caller whose work takes three times as long is served a third as often."""
    turns, order = fair_queue.FairSemaphore(1), list[str]()
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(work(turns, "large", 3, order))
        for _ in range(8):
            group.create_task(work(turns, "small", 1, order))

    assert order[:9].count("small") >= 6


async def test_idle_caller_saves_no_credit() -> None:
    """A caller that worked alone for long is not behind a new one."""
    turns, order = fair_queue.FairSemaphore(2), list[str]()
    await turns.take("holder")
    for _ in range(100):
        await work(turns, "busy", 1, order)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for caller in [*"nbnbnbnbnbnbnbnbnbnb"]:
            group.create_task(work(turns, {"n": "new", "b": "busy"}[caller], 1, order))
    turns.release("holder")

    assert order[100:110].count("new") in (4, 5, 6)


async def test_charges_of_idle_callers_are_dropped() -> None:
    turns = fair_queue.FairSemaphore(1)
    for number in range(3 * fair_queue.MAX_CHARGED_CALLERS):
        async with turns.make_slot(number) as turn:
            turn.charge(1)

    assert not turns._charged


def test_queue_is_bounded_and_each_caller_has_one_slot() -> None:
    places = fair_queue.FairQuota(32)
    taken_items: list[int] = []
    for caller in range(100):
        taken_items.append(0)
        while not places.is_full(caller):
            places.take(caller)
            taken_items[caller] += 1

    assert (taken_items[:3], min(taken_items), sum(taken_items)) == ([32, 16, 10], 1, 187)
    places.release(99)
    assert not places.is_full("another")
