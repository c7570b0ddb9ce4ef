"""Arithmetic of limit counters: the debt of a rate, the windows of a budget, leases.

``counters.lua`` implements the same for the shared store. A caller first calls ``get_wait_ms``,
which returns how long the claim has to wait (``NEVER_FITS`` if it can never fit). Then it calls
``charge`` or ``append_reading``. Both append the reading of the claim, ``READING_LENGTH`` numbers,
to ``new_readings``. Times are milliseconds: ``now_ms`` of a monotonic clock, ``wall_ms`` of UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from proxy.types.limit import (
    FRESH_FLAG,
    MAX_AMOUNT,
    NEVER_FITS,
    WARNED_FLAG,
    Claim,
    Counting,
    Limit,
)
from proxy.types.windows import NO_WINDOW, Calendar, WindowBounds

LEASE_WAIT_MS = 1000
BUDGET_TTL_MS = 86_400_000
ChargeMark = int
"""State of a counter at a charge: debt of a rate, start of a budget's window, 0 for a lease."""
Charge = tuple[int, ChargeMark, int, str]
"""Amount, mark, time of the charge (monotonic, ms), and id of the call."""


@dataclass(slots=True)
class Rate:
    """GCRA as a debt that drains steadily and must not exceed the capacity.

    GCRA usually stores the time at which the debt is drained. That time does not fit 53 bits.
    ``get_wait_ms`` sets ``level``, the debt at ``level_at``.
    """

    debt: int = 0
    debt_at: int = 0
    unit: int = 1
    drain: int = 1
    level: int = 0
    level_at: int = 0

    def get_wait_ms(self, limit: Limit, amount: int, now_ms: int, wall_ms: int) -> int:
        unit = limit.debt_per_unit
        if unit == self.unit:
            elapsed = now_ms - self.debt_at
            level = self.debt - elapsed * limit.drain_per_ms if elapsed > 0 else self.debt
            level = level if level > 0 else 0
        else:
            level = self._drain_debt(limit, now_ms)
        self.level, self.level_at = level, now_ms
        if not 0 <= amount <= limit.capacity:
            return NEVER_FITS
        excess = level + (amount - limit.capacity) * unit
        return 0 if excess <= 0 else -(-excess // limit.drain_per_ms)

    def _drain_debt(self, limit: Limit, now_ms: int) -> int:
        debt = self.debt
        if limit.debt_per_unit != self.unit:  # the policy has changed: keep the usage
            debt = int(debt / self.unit * limit.debt_per_unit)
        return max(0, debt - max(0, now_ms - self.debt_at) * limit.drain_per_ms)

    def charge(
        self, limit: Limit, amount: int, call_id: str, wall_ms: int, new_readings: list[int]
    ) -> ChargeMark:
        """Charge an amount. Return the mark, which ``settle`` needs to correct the charge."""
        debt_before, unit = self.level, limit.debt_per_unit
        self.debt = self.level = debt = debt_before + amount * unit
        self.debt_at, self.unit, self.drain = self.level_at, unit, limit.drain_per_ms
        new_readings += (
            debt,
            -1,
            0,
            WARNED_FLAG if debt_before < limit.warn_amount * unit <= debt else 0,
        )
        return debt

    def settle(self, limit: Limit, charge: Charge, actual: int, now_ms: int) -> None:
        """Correct a charge. A refund excludes what has drained, because others may have used it."""
        amount, mark, charged_at, _ = charge
        if actual == amount:
            return
        debt, unit = self._drain_debt(limit, now_ms), limit.debt_per_unit
        if actual < amount:
            undrained = mark - max(0, now_ms - charged_at) * limit.drain_per_ms
            debt -= max(0, min((amount - actual) * unit, undrained, debt))
        else:
            debt = min(MAX_AMOUNT, debt + (actual - amount) * unit)
        self.debt, self.debt_at, self.unit, self.drain = debt, now_ms, unit, limit.drain_per_ms

    def append_reading(
        self, limit: Limit, wait_ms: int, wall_ms: int, new_readings: list[int]
    ) -> None:
        new_readings += (self.level, -1, wait_ms, 0)

    def can_be_dropped(self, now_ms: int, wall_ms: int) -> bool:
        return self.debt <= (now_ms - self.debt_at) * self.drain


@dataclass(slots=True)
class Budget:
    """Spend by window start. Keeps the last few windows, for calls that end late.

    A window is fresh until it is restored. ``settled`` has what calls settled while the
    window was fresh.
    """

    spend: dict[int, int] = field(default_factory=dict)
    settled: dict[int, int] = field(default_factory=dict)
    restored_windows: set[int] = field(default_factory=set)
    warned_windows: set[int] = field(default_factory=set)
    bounds: WindowBounds = NO_WINDOW
    calendar: Calendar | None = None

    def get_wait_ms(self, limit: Limit, amount: int, now_ms: int, wall_ms: int) -> int:
        bounds = self.bounds
        if not bounds[1] <= wall_ms < bounds[2] or self.calendar is not limit.window:
            self.calendar = limit.calendar
            bounds = self.bounds = limit.calendar.get_window_bounds_ms(wall_ms)
        if not 0 <= amount <= limit.capacity:
            return NEVER_FITS
        spend = self.spend.get(bounds[1], 0)
        return 0 if spend + amount <= limit.capacity else bounds[2] - wall_ms

    def charge(
        self, limit: Limit, amount: int, call_id: str, wall_ms: int, new_readings: list[int]
    ) -> ChargeMark:
        start = self.bounds[1]
        flags = 0 if start in self.restored_windows else FRESH_FLAG
        if start in self.spend:
            spend = self.spend[start] + amount
        else:
            spend = amount
            self._drop_old_windows()
        self.spend[start] = spend
        if limit.warn_amount and spend >= limit.warn_amount and start not in self.warned_windows:
            self.warned_windows.add(start)
            flags |= WARNED_FLAG
        new_readings += (spend, self.bounds[2] - wall_ms, 0, flags)
        return start

    def _drop_old_windows(self) -> None:
        """Drop the windows before the previous one."""
        oldest = self.bounds[0]
        self.spend = {window: spend for window, spend in self.spend.items() if window >= oldest}
        self.settled = {window: spend for window, spend in self.settled.items() if window >= oldest}
        self.restored_windows = {window for window in self.restored_windows if window >= oldest}
        self.warned_windows = {window for window in self.warned_windows if window >= oldest}

    def restore(self, claim: Claim, wall_ms: int) -> None:
        """Charge earlier spend, also beyond the limit, without what calls have settled since."""
        self.get_wait_ms(claim.limit, 0, 0, wall_ms)
        start = self.bounds[1]
        if start not in self.restored_windows:
            spend = max(0, claim.amount - self.settled.pop(start, 0))
            self.spend[start] = self.spend.get(start, 0) + spend
            self.restored_windows.add(start)

    def settle(self, limit: Limit, charge: Charge, actual: int, now_ms: int) -> None:
        amount, start, _, _ = charge
        if start not in self.spend:
            return
        if actual != amount:
            spend = self.spend[start] + actual - amount
            self.spend[start] = 0 if spend < 0 else MAX_AMOUNT if spend > MAX_AMOUNT else spend
        if start not in self.restored_windows:
            self.settled[start] = self.settled.get(start, 0) + actual

    def append_reading(
        self, limit: Limit, wait_ms: int, wall_ms: int, new_readings: list[int]
    ) -> None:
        start = self.bounds[1]
        flags = 0 if start in self.restored_windows else FRESH_FLAG
        new_readings += (self.spend.get(start, 0), self.bounds[2] - wall_ms, wait_ms, flags)

    def can_be_dropped(self, now_ms: int, wall_ms: int) -> bool:
        return not self.spend or self.bounds[2] + BUDGET_TTL_MS < wall_ms


@dataclass(slots=True)
class Leases:
    """Calls in flight, each with the expiry and the amount of its lease."""

    leases: dict[str, tuple[int, int]] = field(default_factory=dict)
    used: int = 0
    next_end: int = 0
    now_ms: int = 0

    def get_wait_ms(self, limit: Limit, amount: int, now_ms: int, wall_ms: int) -> int:
        self.now_ms = now_ms
        if self.leases and now_ms >= self.next_end:
            self._expire(now_ms)
        if not 0 <= amount <= limit.capacity:
            return NEVER_FITS
        return 0 if self.used + amount <= limit.capacity else LEASE_WAIT_MS

    def _expire(self, now_ms: int) -> None:
        self.leases = {call: lease for call, lease in self.leases.items() if lease[0] > now_ms}
        self.used = sum(amount for _, amount in self.leases.values())
        self.next_end = min((end for end, _ in self.leases.values()), default=0)

    def charge(
        self, limit: Limit, amount: int, call_id: str, wall_ms: int, new_readings: list[int]
    ) -> ChargeMark:
        end = self.now_ms + limit.lease_s * 1000
        if not self.leases or end < self.next_end:
            self.next_end = end
        self.leases[call_id] = (end, amount)
        used_before, self.used = self.used, self.used + amount
        is_warned = used_before < limit.warn_amount <= self.used
        new_readings += (self.used, -1, 0, WARNED_FLAG if is_warned else 0)
        return 0

    def renew(self, limit: Limit, charge: Charge, now_ms: int) -> None:
        """Renew a lease, or restore it if it has expired."""
        amount, _, _, request_id = charge
        if request_id not in self.leases:
            self.used += amount
        self.leases[request_id] = (now_ms + limit.lease_s * 1000, amount)

    def settle(self, limit: Limit, charge: Charge, actual: int, now_ms: int) -> None:
        lease = self.leases.pop(charge[3], None)
        if lease is not None:
            self.used -= lease[1]

    def append_reading(
        self, limit: Limit, wait_ms: int, wall_ms: int, new_readings: list[int]
    ) -> None:
        new_readings += (self.used, -1, wait_ms, 0)

    def can_be_dropped(self, now_ms: int, wall_ms: int) -> bool:
        self.now_ms = now_ms
        if self.leases and now_ms >= self.next_end:
            self._expire(now_ms)
        return not self.leases


Counter = Rate | Budget | Leases
COUNTER_CLASSES: Mapping[Counting, type[Counter]] = {
    "rate": Rate,
    "budget": Budget,
    "lease": Leases,
}


def make_counter(limit: Limit) -> Counter:
    return COUNTER_CLASSES[limit.kind.counter_type]()
