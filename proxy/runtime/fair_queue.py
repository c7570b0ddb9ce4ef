"""Fair use of threads and of the event loop: a caller with much work delays only itself.

Awaiting data that is already available does not yield. A call with such data works for a time
slice, then pauses. Waiting for I/O does not count, so a stream at a model's pace never pauses.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from proxy.runtime.frozen import frozen

MAX_CHARGED_CALLERS = 1024


class FairSemaphore:
    """Semaphore that favors callers that have used the least time.

    Among equals the longest waiting caller is first. The caller that just finished is last.
    Requests of one caller are served in order. A returning caller starts at the level of the last
    served one, so idle time earns no credit.
    """

    def __init__(self, max_slots: int) -> None:
        self._free = self._max_slots = max_slots
        self._waiting: dict[object, deque[asyncio.Future[None]]] = {}
        self._charged: dict[object, float] = {}
        self._level = 0.0  # charge of the caller that was served last, before its work

    def charge(self, caller: object, seconds: float) -> None:
        """Charge a caller for the work of a slot that it still holds."""
        self._charged[caller] = self._get_charge(caller) + seconds
        if len(self._charged) > MAX_CHARGED_CALLERS:
            charges = self._charged.items()
            self._charged = {other: charge for other, charge in charges if charge > self._level}

    def _get_charge(self, caller: object) -> float:
        return max(self._charged.get(caller, 0.0), self._level)

    def make_slot(self, caller: object) -> FairSlot:
        """Return a reusable context manager that waits for a slot of the caller and holds it."""
        return FairSlot(self, caller)

    def try_take(self) -> bool:
        """Take a slot if one is free and no caller waits. Return True if it was taken."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def take(self, caller: object) -> None:
        if self.try_take():
            self._level = self._get_charge(caller)
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(caller)
            raise

    def release(self, caller: object) -> None:
        """Release a slot of ``caller`` to the next caller."""
        while self._waiting:
            following = min(self._waiting, key=lambda one: (self._get_charge(one), one == caller))
            self._level = self._get_charge(following)
            queue = self._waiting.pop(following)
            waiter = queue.popleft()
            if queue:
                self._waiting[following] = queue  # the caller goes to the end of the queue
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1
        if self._free == self._max_slots:
            self._charged.clear()
            self._level = 0.0


class FairQuota:
    """Counts slots per caller. When all are taken, only callers below an equal share get one."""

    def __init__(self, max_slots: int) -> None:
        self._max_slots = max_slots
        self._taken: Counter[object] = Counter()

    def is_full(self, caller: object) -> bool:
        """Return True if the caller cannot get another slot."""
        taken = self._taken[caller]
        share = self._max_slots // (len(self._taken) + (not taken))
        return self._taken.total() >= self._max_slots and taken >= max(1, share)

    def take(self, caller: object) -> None:
        self._taken[caller] += 1

    def release(self, caller: object) -> None:
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]


@frozen
class FairSlot:
    """Context manager that holds a slot of the semaphore for one caller."""

    semaphore: FairSemaphore
    caller: object

    async def __aenter__(self) -> FairSlot:
        await self.semaphore.take(self.caller)
        return self

    async def __aexit__(self, *ended: object) -> None:
        self.semaphore.release(self.caller)

    def charge(self, seconds: float) -> None:
        self.semaphore.charge(self.caller, seconds)


T = TypeVar("T")
LARGE_BYTES = 64 * 1024  # any body of this size is parsed within about 10 ms
TIME_SLICE_S = 0.005


class PauseScheduler:
    """Schedules the pauses of all callers: each loop iteration resumes one call per caller.

    A hundred busy streams of one key then take a hundred iterations instead of one long iteration.
    """

    __slots__ = ("_is_due", "_paused")

    def __init__(self) -> None:
        self._paused: dict[object, deque[asyncio.Future[None]]] = {}
        self._is_due = False

    async def pause(self, caller: object) -> None:
        """Pause until other callers, and earlier pauses of this caller, have continued."""
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._paused.setdefault(caller, deque()).append(waiter)
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._resume_one_per_caller)
        await waiter

    def _resume_one_per_caller(self) -> None:
        for caller, waiters in [*self._paused.items()]:
            while waiters:
                waiter = waiters.popleft()
                if not waiter.done():  # done if the task was cancelled
                    waiter.set_result(None)
                    break
            if not waiters:
                del self._paused[caller]
        self._is_due = bool(self._paused)
        if self._is_due:
            asyncio.get_running_loop().call_soon(self._resume_one_per_caller)


class TimeSlice:
    """Measures the work of one call. ``scheduler`` orders its pauses by ``caller``."""

    __slots__ = ("_began", "_caller", "_now", "_scheduler", "_worked")

    def __init__(
        self,
        now: Callable[[], float],
        scheduler: PauseScheduler | None = None,
        caller: object = None,
    ) -> None:
        self._now = now
        self._scheduler = scheduler
        self._caller = caller
        self._began = self._worked = 0.0

    def start(self) -> float:
        """Start or resume the measurement of work. Return the current time."""
        self._began = now = self._now()
        return now

    def is_over(self) -> bool:
        """Add the work since the last measurement. Return True if the slice is used up."""
        now = self._now()
        self._worked += now - self._began
        self._began = now
        return self._worked > TIME_SLICE_S

    async def pause(self) -> None:
        """Yield to other calls and start a new slice."""
        if self._scheduler is None:
            await asyncio.sleep(0)
        else:
            await self._scheduler.pause(self._caller)
        self._worked = 0.0
        self._began = self._now()


@frozen
class Offload:
    """Runs work on large bodies in ``executor`` (default: the loop's), and on small ones inline."""

    executor: Executor | None = None
    semaphore: FairSemaphore | None = None

    async def run(self, size: int, work: Callable[[], T], caller: object) -> T:
        """Return the result of work on a body of ``size`` bytes."""
        if size <= LARGE_BYTES:
            return work()
        if self.semaphore is None:
            return await self._run_in_thread(work)
        async with self.semaphore.make_slot(caller):
            return await self._run_in_thread(work)

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)
