"""Interface of the counter stores of limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from proxy.runtime.frozen import frozen
from proxy.types.limit import RENEW_S, Claim, CounterState, LimitDecision

BILL_TTL_S = 40 * 86_400  # longer than any provider is known to keep a response
MAX_BILL_OWNERS = 100_000


class StoreUnavailable(Exception):
    """The store sent no usable reply in time. It may or may not have executed the operation.

    The message contains no address and no credential. ``trip`` identifies the round trip, which
    several operations may share. It is None if nothing was sent.
    """

    def __init__(self, reason: str, trip: object = None) -> None:
        super().__init__(reason)
        self.trip = trip


@dataclass(slots=True)
class BillingOwners:
    """First owner of each bill in this process. Beyond ``max_owners`` bills drops the oldest."""

    max_owners: int = MAX_BILL_OWNERS
    _owner_by_name: dict[str, str] = field(default_factory=dict)

    def claim_bill(self, name: str, owner: str) -> bool:
        """Return True if ``owner`` is the first owner of ``name``."""
        first_owner = self._owner_by_name.setdefault(name, owner)
        if len(self._owner_by_name) > self.max_owners:
            del self._owner_by_name[next(iter(self._owner_by_name))]
        return first_owner == owner


@frozen
class LedgerRun:
    """Identifies the ledger of this process to a shared store.

    Attributes:
        id: Id of the ledger. Processes that write the same file share it.
        run: Id of this process's run. If empty, bills are booked at once.
        get_dead_runs: Returns the run ids of processes that have died.
    """

    id: str = ""
    run: str = ""
    get_dead_runs: Callable[[], Collection[str]] = tuple


NO_LEDGER = LedgerRun()


class CounterStore(Protocol):
    """Counters of limits, one per limit and scope.

    ``request_id`` is unique to a call. A call claims each counter at most once.
    """

    @property
    def in_flight(self) -> int:
        """Number of calls admitted and not settled by this instance."""

    @property
    def has_all_updates(self) -> bool:
        """True if the store is reachable and has received all updates."""

    async def admit(self, request_id: str, claims: Sequence[Claim]) -> LimitDecision:
        """Check and charge all claims atomically. A refusal charges nothing.

        A negative claim is always refused. Admitting the same call again charges nothing. A
        cancelled caller must call ``settle_unused``, because it may have been charged.
        """

    async def settle(self, request_id: str, actuals: Sequence[int]) -> None:
        """Replace the charges of a call by actual usage, in the order of its claims.

        Ends leases. Only the first settlement of a call admitted here counts. A budget is corrected
        in the window that was charged.
        """

    async def settle_unused(self, request_id: str) -> None:
        """Settle a call with no usage."""

    async def renew(self) -> None:
        """Renew the leases of calls in flight. Call it every ``RENEW_S`` seconds."""

    async def restore(self, claims: Sequence[Claim]) -> bool:
        """Charge fresh budgets, even beyond their amount, with earlier spend.

        Each claim has all that calls settled before have spent in the window under the ledger of
        this process. What they have settled while the counter was fresh is not charged again. The
        counter is not fresh for that ledger afterwards. Return False if they stay fresh.
        """

    async def claim_bill(self, name: str, owner: str) -> bool:
        """Return True if ``owner`` is the first to bill ``name``, on any instance.

        A bill is the cost of a background response, which several reads of it must not charge
        twice. Safe to repeat. Names expire after ``BILL_TTL_S``. A shared store passes the bill of
        a dead process to the next owner, unless it was booked.
        """

    async def mark_bill_booked(self, name: str) -> None:
        """Record that the ledger has the row of a bill, so that no other owner gets it."""

    async def read(self, claims: Sequence[Claim]) -> tuple[CounterState, ...]:
        """Return the state of counters without charging."""


async def renew_leases(store: CounterStore, sleep: Callable[[float], Awaitable[None]]) -> None:
    """Renew the leases of ``store`` every ``RENEW_S`` seconds until cancelled."""
    while True:
        await sleep(RENEW_S)
        await store.renew()
