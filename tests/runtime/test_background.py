"""What goes on beside the calls ends with who owns it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from proxy.runtime.background import STEPS_S, SideTasks, between_calls, run_in_background


async def forever(ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("ended")


async def test_work_ends_with_the_block() -> None:
    ended: list[str] = []

    async with run_in_background(forever(ended)):
        await asyncio.sleep(0)
        assert ended == []

    assert ended == ["ended"]


async def test_what_the_block_raises_comes_through_as_it_is() -> None:
    ended: list[str] = []

    with pytest.raises(KeyError):
        async with run_in_background(forever(ended)):
            await asyncio.sleep(0)
            raise KeyError

    assert ended == ["ended"]


async def test_work_that_fails_ends_the_block() -> None:
    async def failing() -> None:
        raise KeyError

    with pytest.raises(ExceptionGroup) as failed:
        async with run_in_background(failing()):
            await asyncio.Event().wait()

    assert failed.group_contains(KeyError)


class Clock:
    """Time passes by steps of work alone; ``slept`` is how long others have had their turn."""

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
async def test_background_work_rests_between_calls(is_busy: bool, remainder: float) -> None:
    long, short = Clock(3 * STEPS_S), Clock(STEPS_S / 2)

    for clock in (long, short):
        await between_calls(clock.steps(4), lambda: is_busy, clock.now, clock.sleep)

    assert long.slept == pytest.approx([remainder * 3 * STEPS_S] * 4)
    assert short.slept == pytest.approx([remainder * STEPS_S] * 2)


async def test_work_between_calls_ends_with_who_owns_it() -> None:
    clock = Clock(STEPS_S)

    async with run_in_background(between_calls(cycle_of(clock), lambda: False, clock.now)):
        await asyncio.sleep(0)

    assert clock.time <= 2 * STEPS_S


def cycle_of(clock: Clock) -> Iterator[None]:
    """Return work without an end."""
    while True:
        yield from clock.steps(1)


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
