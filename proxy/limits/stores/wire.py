"""Claims as the script of the shared store reads them; the form is told in ``counters.lua``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from proxy.limits.stores.store import BILLED_S
from proxy.types.limit import LEASE_S, Claim, Limit

BillState = Literal["charged", "booked"]

RATE, BUDGET, CONCURRENCY = 1, 2, 3
COUNTED = 2  # in place of shadow
MOST_KNOWN = 4096
KEEP_MS = 86_400_000
LATE_MS = 600_000


@dataclass(slots=True)
class Wire:
    """Writes keys and claims. ``utc`` returns seconds since 1970, to know a budget's windows by.

    All keys share a hash tag, so a cluster keeps them on one server: a call's claims are decided
    in one step, whatever its limits are per.
    """

    utc: Callable[[], float]
    prefix: str = "headrace"
    _limits: dict[str, tuple[Limit, int, str]] = field(default_factory=dict)

    def keys(self, request_id: str, claims: Sequence[Claim]) -> tuple[str, ...]:
        """Return the key of the call, and that of each claim's counter."""
        start = f"{self.prefix}:{{limits}}:"
        names = [f"{start}{claim.limit.key}:{claim.scope}" for claim in claims]
        return (f"{start}call:{request_id}", *names)

    def claims(self, claims: Sequence[Claim]) -> str:
        now = int(self.utc() * 1000)
        texts = []
        for claim in claims:
            limit = claim.limit
            known = self._limits.get(limit.key)
            if known is None or known[0] is not limit or now >= known[1]:
                known = self._learn(limit, now)
            rest = known[2]
            if claim.is_count_only:
                rest = f",{COUNTED}{rest[2:]}"  # in place of the digit that says shadow
            texts.append(f"[{claim.amount}{rest}")
        return f"[{','.join(texts)}]"

    def _learn(self, limit: Limit, now: int) -> tuple[Limit, int, str]:
        """Write what is the same for all claims on a limit till a window ends."""
        until = 2**63
        if limit.is_budget:
            rest: tuple[int, ...] = limit.calendar.window_bounds(now)
            kind, until = BUDGET, rest[2]
        elif limit.is_leased:
            kind, rest = CONCURRENCY, (limit.lease_s * 1000,)
        else:
            kind, rest = RATE, (limit.debt_per_unit, limit.drain_per_ms)
        numbers = (int(limit.shadow), kind, limit.capacity, limit.warn_amount, *rest)
        if len(self._limits) >= MOST_KNOWN:
            self._limits.clear()
        known = (limit, until, "".join(f",{number}" for number in numbers) + "]")
        self._limits[limit.key] = known
        return known


def admit(claims: str, ledger: str) -> str:
    return f'["admit",{KEEP_MS},{claims},"{ledger}"]'


def read(claims: str, ledger: str) -> str:
    return f'["read",0,{claims},"{ledger}"]'


def settle(claims: str, actuals: Sequence[int]) -> str:
    """For the first try of a call that is known to have been charged."""
    return f'["settle",0,{claims},{_list(actuals)}]'


def settle_again(claims: str, actuals: Sequence[int]) -> str:
    """For a further try of the same."""
    return f'["again",0,{claims},{_list(actuals)}]'


def settle_late(claims: str, actuals: Sequence[int]) -> str:
    """For a call that may not have been charged and whose row a ledger may not have yet, and for
    any try of it."""
    return f'["late",{LATE_MS},{claims},{_list(actuals)}]'


def renew(claims: str) -> str:
    """For the places of a call that is under way."""
    return f'["renew",0,{claims}]'


def charge(claims: str, amounts: Sequence[int], ledger: str, *, whole: bool) -> str:
    """For money that no call asked for; ``whole`` if it is all that a ledger knows of it."""
    verb = "whole" if whole else "late"
    return f'["{verb}",{LATE_MS},{claims},{_list(amounts)},"{ledger}"]'


def bill(state: BillState, owner: str, dead: Collection[str]) -> str:
    """For something that is billed once, by a process whose ``dead`` predecessors are known."""
    keep_ms = 1000 * (LEASE_S if state == "charged" else BILLED_S)
    names = ",".join(f'"{name}"' for name in dead)
    return f'["{state}",{keep_ms},"{owner}",[{names}]]'


def _list(numbers: Sequence[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"
