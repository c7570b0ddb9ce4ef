"""Budgets that begin anew are first charged with what their window has seen, as a ledger knows it.

Each is asked about once, by itself: calls under it wait for that, calls of others do not. What one
call began goes on when its client leaves, for those who wait with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self

from proxy.limits.stores.store import CounterStore
from proxy.types.limit import Claim

AGAIN_S = 5.0
MOST_MISSED = 10_000
Name = tuple[str, str]
SpentBefore = Callable[[Claim, int | None], Awaitable[int | None]]


class BackfillUnavailable(Exception):
    """What a budget has seen cannot be told now; another try may do."""


class MissedBackfill(NamedTuple):
    """A budget that began without what its window had seen before: when a call first claimed it
    and when its window began, in milliseconds of UTC, the id of its charge, so that it is charged
    once however often that is tried, and when to try again, in seconds."""

    at_ms: int
    begin_ms: int
    charge_id: str
    again: float = 0.0


@dataclass(slots=True)
class Backfill:
    """Entering makes it the owner of the questions that are under way; leaving ends them.

    ``spent_before`` returns the nano-USD spent in a claim's window by calls before a moment, if
    one is given, in milliseconds of UTC; None where nobody will ever know. It may raise
    ``BackfillUnavailable``: then it is asked again, with the first call after ``AGAIN_S``.
    ``failed`` gets any other exception.
    """

    store: CounterStore
    spent_before: SpentBefore
    failed: Callable[[Exception], None]
    monotonic: Callable[[], float]
    utc: Callable[[], float]
    _begun: int = 0
    _under_way: dict[Name, asyncio.Task[bool]] = field(default_factory=dict)
    _missed: dict[Name, MissedBackfill] = field(default_factory=dict)
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)

    def begin(self, claim: Claim, at_ms: int) -> None:
        """Have a budget recalled that begins anew with the claim of a call that came at a moment,
        in milliseconds of UTC."""
        if _name(claim) not in self._under_way:
            self._begun += 1
            name = f"{claim.limit.name} {claim.scope}"
            charge_id = f"recalled {at_ms} {self._begun} {name}"  # another where it begins again
            self._start(claim, MissedBackfill(at_ms, self._window(claim), charge_id), None)

    async def known(self, claims: Iterable[Claim]) -> bool:
        """Wait until what the budgets of some claims have seen is charged, or cannot be told. True
        if one of them turned out to be used."""
        if not self._under_way and not self._missed:
            return False
        names = {_name(claim): claim for claim in claims if claim.limit.is_budget}
        for name in names.keys() & self._missed.keys():
            self._try_again(names[name])
        tasks = [self._under_way[name] for name in names.keys() & self._under_way.keys()]
        if tasks:
            await asyncio.wait(tasks)  # who leaves takes none of them along
        return any(not task.cancelled() and task.result() for task in tasks)

    def _try_again(self, claim: Claim) -> None:
        missed = self._missed[_name(claim)]
        if missed.begin_ms != self._window(claim):
            del self._missed[_name(claim)]
        elif self.monotonic() >= missed.again:
            self._start(claim, missed, missed.at_ms)

    def _start(self, claim: Claim, missed: MissedBackfill, before_ms: int | None) -> None:
        if _name(claim) not in self._under_way:
            task = self._group.create_task(self._run(claim, missed, before_ms))
            self._under_way[_name(claim)] = task

    async def _run(self, claim: Claim, missed: MissedBackfill, before_ms: int | None) -> bool:
        name = _name(claim)
        try:
            spent = await self.spent_before(claim, before_ms)
            if spent is not None:
                charge = [Claim(claim.limit, claim.scope, spent)]
                await self.store.charge(missed.charge_id, charge, whole=True)
        except BackfillUnavailable:
            self._miss(name, missed)
            return False
        except Exception as error:  # noqa: BLE001  # it must not end the process, nor be lost
            self._miss(name, missed)
            self.failed(error)
            return False
        else:
            self._missed.pop(name, None)
            return bool(spent)
        finally:
            del self._under_way[name]

    def _miss(self, name: Name, missed: MissedBackfill) -> None:
        if len(self._missed) >= MOST_MISSED:
            del self._missed[next(iter(self._missed))]
        self._missed[name] = missed._replace(again=self.monotonic() + AGAIN_S)

    def _window(self, claim: Claim) -> int:
        return claim.limit.calendar.around(int(self.utc() * 1000))[1]

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._under_way.values():
            task.cancel()
        await self._group.__aexit__(None, None, None)


def _name(claim: Claim) -> Name:
    return claim.limit.key, claim.scope
