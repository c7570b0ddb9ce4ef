"""What every store of counters promises, and how it says that it cannot be reached."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from proxy.runtime.frozen import frozen
from proxy.types.limit import RENEW_S, Claim
from proxy.types.outcome import CounterState, LimitDecision


class StoreUnavailable(Exception):
    """The store did not answer in time, or not in a way that can be used.

    Whether it did what was asked is unknown. The message names no address and no credential.
    ``trip`` tells what failed together, in one round trip; it is None where nothing was sent.
    """

    def __init__(self, reason: str, trip: object = None) -> None:
        super().__init__(reason)
        self.trip = trip


BILLED_S = 40 * 86_400  # longer than any provider is known to keep a response
MOST_BILLED = 100_000


@dataclass(slots=True)
class BilledOnce:
    """What one process has billed: of more than ``most`` the oldest are forgotten."""

    most: int = MOST_BILLED
    _owners: dict[str, str] = field(default_factory=dict)

    def bill(self, name: str, owner: str) -> bool:
        """True for the first owner of a name, however often it asks."""
        known = self._owners.setdefault(name, owner)
        if len(self._owners) > self.most:
            del self._owners[next(iter(self._owners))]
        return known == owner


@frozen
class LedgerRun:
    """The ledger of this process, as shared counters know it: its ``id``, which processes on one
    file share, the name of this process's ``run``, and what returns the names of ``dead`` runs.

    Without a run a bill counts as booked at once.
    """

    id: str = ""
    run: str = ""
    dead: Callable[[], Collection[str]] = tuple


NO_LEDGER = LedgerRun()


class CounterStore(Protocol):
    """Counters by limit and scope.

    ``request_id`` is one of ours, unique to a call. A call claims each counter once.
    """

    @property
    def under_way(self) -> int:
        """How many calls this instance has admitted and not settled."""

    @property
    def certain(self) -> bool:
        """Whether what is read is all that was counted: the store is there, and owed nothing."""

    async def admit(self, request_id: str, claims: Sequence[Claim]) -> LimitDecision:
        """Check all claims, then charge all, in one step; a refusal charges nothing.

        A negative claim is refused for good: it would give back what others have used.
        Asking again for a call that is under way charges nothing. A caller that is cancelled
        meanwhile releases the call: it may have been charged.
        """

    async def settle(self, request_id: str, actuals: Sequence[int]) -> None:
        """Correct the charges to what was really used, in the order of the claims; free leases.

        The first time counts, and only for a call that was admitted here. A refund never makes
        a counter forget what others used. A budget is corrected in the window that was charged.
        """

    async def release(self, request_id: str) -> None:
        """Settle to nothing used."""

    async def renew(self) -> None:
        """Keep the places of the calls under way: done every ``RENEW_S`` seconds."""

    async def charge(self, charge_id: str, claims: Sequence[Claim], *, whole: bool = False) -> None:
        """Add money without asking; budgets only. The same id charges once in ten minutes.

        ``whole`` says that it is all that this process's ledger knows of the window: for that
        ledger the counter is not ``fresh`` any more.
        """

    async def bill_once(self, name: str, owner: str) -> bool:
        """True for the first owner who bills something by this name, of all instances, and each
        time that it asks: who does not know whether it has been heard asks again. A name is kept
        for ``BILLED_S`` seconds. A shared store lets the next owner have the bill of a process that
        died before it could ``book`` it."""

    async def book(self, name: str) -> None:
        """Note that the row of what was billed here by this name is written."""

    async def read(self, claims: Sequence[Claim]) -> tuple[CounterState, ...]:
        """Return where counters stand, and whether the amounts would fit, without charging."""


async def renewing(store: CounterStore, sleep: Callable[[float], Awaitable[None]]) -> None:
    """Lease the places of calls under way anew, now and then. Never ends."""
    while True:
        await sleep(RENEW_S)
        await store.renew()
