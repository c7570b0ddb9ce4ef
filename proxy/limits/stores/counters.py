"""The arithmetic of limits: a rate's debt, a budget's windows, leases. Whole numbers, no clock.

``counters.lua`` says the same to a shared store; a property test holds both to one answer. Each
counter is first asked how long a claim ``must_wait``, for good where it is negative, then told to
``take`` it, or only to ``read`` where it stands: either adds one reading, of four numbers, to those
of the call. Moments are milliseconds, ``now`` of a clock that only goes forward, ``wall`` of UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.types.limit import MAX_AMOUNT, Claim, Counting, Limit
from proxy.types.outcome import FRESH, NEVER, WARNED
from proxy.types.windows import Bounds, Calendar

BUSY_MS = 1000
GRACE_MS = 86_400_000
Taken = tuple[int, int, int, str]
"""A charge: its amount, the counter's mark of it, when it was made, and for which call."""
Readings = list[int]


@dataclass(slots=True)
class Rate:
    """GCRA, kept as a debt that drains steadily and may not grow beyond the capacity.

    The usual form keeps the moment at which the debt will be gone; in whole numbers that moment
    would not fit 53 bits. ``debt``, in units of ``unit``, is that of ``at``; what ``must_wait``
    finds is ``level``, at ``seen``.
    """

    debt: int = 0
    at: int = 0
    unit: int = 1
    drain: int = 1
    level: int = 0
    seen: int = 0

    def must_wait(self, limit: Limit, amount: int, now: int, wall: int) -> int:
        unit = limit.debt_per_unit
        if unit == self.unit:
            level = self.debt - (now - self.at) * limit.drain_per_ms if now > self.at else self.debt
            level = level if level > 0 else 0
        else:
            level = self._drained(limit, now)
        self.level, self.seen = level, now
        if not 0 <= amount <= limit.capacity:
            return NEVER
        over = level + (amount - limit.capacity) * unit
        return 0 if over <= 0 else -(-over // limit.drain_per_ms)

    def _drained(self, limit: Limit, now: int) -> int:
        debt = self.debt
        if limit.debt_per_unit != self.unit:  # the policy has changed the limit: keep what was used
            debt = int(debt / self.unit * limit.debt_per_unit)
        return max(0, debt - (now - self.at) * limit.drain_per_ms) if now > self.at else debt

    def take(self, limit: Limit, amount: int, request_id: str, wall: int, into: Readings) -> int:
        """Charge. Return the mark of the charge, for ``settle``."""
        before, unit = self.level, limit.debt_per_unit
        self.debt = self.level = debt = before + amount * unit
        self.at, self.unit, self.drain = self.seen, unit, limit.drain_per_ms
        into += (debt, -1, 0, WARNED if before < limit.warn_amount * unit <= debt else 0)
        return debt

    def settle(self, limit: Limit, taken: Taken, actual: int, now: int) -> None:
        """Correct a charge. What has drained since is not given back: others may have used it."""
        amount, mark, at, _ = taken
        if actual == amount:
            return
        debt, unit = self._drained(limit, now), limit.debt_per_unit
        if actual < amount:
            undrained = mark - max(0, now - at) * limit.drain_per_ms
            debt -= max(0, min((amount - actual) * unit, undrained, debt))
        else:
            debt = min(MAX_AMOUNT, debt + (actual - amount) * unit)
        self.debt, self.at, self.unit, self.drain = debt, now, unit, limit.drain_per_ms

    def read(self, limit: Limit, wait: int, wall: int, into: Readings) -> None:
        into += (self.level, -1, wait, 0)

    def idle(self, now: int, wall: int) -> bool:
        return self.debt <= (now - self.at) * self.drain


@dataclass(slots=True)
class Budget:
    """Money by the window it was spent in; the last few windows, so that late calls find theirs.

    A window is fresh until a call is ``begun`` in it.
    """

    spent: dict[int, int] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)
    warned: set[int] = field(default_factory=set)
    bounds: Bounds = (0, 0, 0, 0)
    calendar: Calendar | None = None

    def must_wait(self, limit: Limit, amount: int, now: int, wall: int) -> int:
        bounds = self.bounds
        if not bounds[1] <= wall < bounds[2] or self.calendar is not limit.window:
            self.calendar = limit.calendar
            bounds = self.bounds = limit.calendar.window_bounds(wall)
        if not 0 <= amount <= limit.capacity:
            return NEVER
        spent = self.spent.get(bounds[1], 0)
        return 0 if spent + amount <= limit.capacity else bounds[2] - wall

    def take(self, limit: Limit, amount: int, request_id: str, wall: int, into: Readings) -> int:
        begin, flags = self.bounds[1], 0
        used = self.spent[begin] + amount if begin in self.spent else amount
        if begin not in self.begun:
            self._begin()
            flags = FRESH
        self.spent[begin] = used
        if limit.warn_amount and used >= limit.warn_amount and begin not in self.warned:
            self.warned.add(begin)
            flags |= WARNED
        into += (used, self.bounds[2] - wall, 0, flags)
        return begin

    def _begin(self) -> None:
        """Begin the window, and forget those before the last."""
        oldest = self.bounds[0]
        self.spent = {at: used for at, used in self.spent.items() if at >= oldest}
        self.begun = {at for at in self.begun if at >= oldest} | {self.bounds[1]}
        self.warned = {at for at in self.warned if at >= oldest}

    def add(self, claim: Claim, wall: int, *, whole: bool) -> None:
        """Add money without asking; ``whole`` if it is all that the window has seen."""
        self.must_wait(claim.limit, 0, 0, wall)
        begin = self.bounds[1]
        if claim.amount > 0:
            self.spent[begin] = self.spent.get(begin, 0) + claim.amount
        if whole:
            self._begin()

    def settle(self, limit: Limit, taken: Taken, actual: int, now: int) -> None:
        amount, begin, _, _ = taken
        if actual != amount and begin in self.spent:
            spent = self.spent[begin] + actual - amount
            self.spent[begin] = 0 if spent < 0 else MAX_AMOUNT if spent > MAX_AMOUNT else spent

    def read(self, limit: Limit, wait: int, wall: int, into: Readings) -> None:
        begin = self.bounds[1]
        flags = 0 if begin in self.begun else FRESH
        into += (self.spent.get(begin, 0), self.bounds[2] - wall, wait, flags)

    def idle(self, now: int, wall: int) -> bool:
        return not self.spent or self.bounds[2] + GRACE_MS < wall


@dataclass(slots=True)
class Leases:
    """Calls under way, each with the moment at which it is given up for lost."""

    held: dict[str, tuple[int, int]] = field(default_factory=dict)
    used: int = 0
    next_end: int = 0
    now: int = 0

    def must_wait(self, limit: Limit, amount: int, now: int, wall: int) -> int:
        self.now = now
        if self.held and now >= self.next_end:
            self._expire(now)
        if not 0 <= amount <= limit.capacity:
            return NEVER
        return 0 if self.used + amount <= limit.capacity else BUSY_MS

    def _expire(self, now: int) -> None:
        self.held = {name: lease for name, lease in self.held.items() if lease[0] > now}
        self.used = sum(amount for _, amount in self.held.values())
        self.next_end = min((end for end, _ in self.held.values()), default=0)

    def take(self, limit: Limit, amount: int, request_id: str, wall: int, into: Readings) -> int:
        end = self.now + limit.lease_s * 1000
        if not self.held or end < self.next_end:
            self.next_end = end
        self.held[request_id] = (end, amount)
        before, self.used = self.used, self.used + amount
        into += (self.used, -1, 0, WARNED if before < limit.warn_amount <= self.used else 0)
        return 0

    def renew(self, limit: Limit, taken: Taken, now: int) -> None:
        """Lease the places of a call anew, though they had been given up meanwhile."""
        amount, _, _, name = taken
        if name not in self.held:
            self.used += amount
        self.held[name] = (now + limit.lease_s * 1000, amount)

    def settle(self, limit: Limit, taken: Taken, actual: int, now: int) -> None:
        """Return the places, however much was used."""
        lease = self.held.pop(taken[3], None)
        if lease is not None:
            self.used -= lease[1]

    def read(self, limit: Limit, wait: int, wall: int, into: Readings) -> None:
        into += (self.used, -1, wait, 0)

    def idle(self, now: int, wall: int) -> bool:
        self.now = now
        if self.held and now >= self.next_end:
            self._expire(now)
        return not self.held


Counter = Rate | Budget | Leases


COUNTERS: Mapping[Counting, type[Counter]] = {"rate": Rate, "budget": Budget, "lease": Leases}


def new_counter(limit: Limit) -> Counter:
    """Make a counter for what the limit counts."""
    return COUNTERS[limit.kind.counter_type]()
