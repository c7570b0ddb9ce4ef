"""What may be used: a limit, and a call's claim on one of its counters.

Amounts are whole: requests, tokens, calls at once, or nano-USD. All arithmetic on them is exact
in 53 bits, as the shared store has no more; a limit that would need more is a ``ValueError``.
That holds 9,007,199 USD.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from math import ceil, gcd
from typing import Literal

from proxy.plural import counted
from proxy.types.windows import Calendar

Kind = Literal["requests", "tokens", "concurrency", "usd"]
OnStoreError = Literal["local", "open", "closed"]
MOST = 2**53 - 1
SPANS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
LEASE_S = 30
RENEW_S = LEASE_S / 3  # two of them may fail
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound by name; each scope that claims it has a counter of its own.

    ``requests`` and ``tokens`` are rates: ``amount`` per ``window`` whole seconds, and at most
    ``burst`` (by default the amount) at once. ``usd`` is a budget: ``amount`` nano-USD in each
    window of a ``Calendar``. ``concurrency`` is ``amount`` calls at once; a call whose
    process has ended without settling it gives its place back after ``lease_s`` seconds: a process
    that runs leases those of its calls anew, every ``RENEW_S`` seconds.

    A limit in ``shadow`` refuses nothing: it counts the calls that it would have let through.
    ``warn_at`` is the share of the capacity at which to warn, above 0 and up to 1.
    """

    name: str
    kind: Kind
    amount: int
    window: int | Calendar | None = None
    burst: int | None = None
    lease_s: int = LEASE_S
    shadow: bool = False
    warn_at: float | None = None
    on_store_error: OnStoreError = "local"
    key: str = field(init=False, repr=False, compare=False)
    capacity: int = field(init=False, repr=False, compare=False)
    warn: int = field(init=False, repr=False, compare=False)
    unit_debt: int = field(init=False, repr=False, compare=False, default=1)
    drain: int = field(init=False, repr=False, compare=False, default=1)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} cannot name a limit")
        if not 0 < self.amount <= MOST:
            raise ValueError(f"{self.name}: the amount must lie between 1 and {MOST}")
        if self.warn_at is not None and not 0 < self.warn_at <= 1:
            raise ValueError(f"{self.name}: warn_at must be a share, above 0 and up to 1")
        if self.lease_s < 1:
            raise ValueError(f"{self.name}: a lease must last a second at least")
        self._check_window()
        self._derive()

    def _check_window(self) -> None:
        if self.kind == "usd" and not isinstance(self.window, Calendar):
            raise ValueError(f"{self.name}: a budget needs a window of the calendar")
        if self.kind == "concurrency" and self.window is not None:
            raise ValueError(f"{self.name}: concurrency has no window")
        rate = self.kind in ("requests", "tokens")
        if rate and (not isinstance(self.window, int) or self.window < 1):
            raise ValueError(f"{self.name}: a rate needs a window of whole seconds")
        if self.burst is not None and (not rate or not 0 < self.burst <= MOST):
            raise ValueError(f"{self.name}: only a rate has a burst, of 1 at least")

    def _derive(self) -> None:
        """Work out the whole numbers that counters reckon with.

        A rate's debt drains by ``drain`` each millisecond and grows by ``unit_debt`` with each
        unit: the fraction window / amount in lowest terms, so that no unit is ever rounded.
        """
        capacity = self.burst or self.amount
        share = Decimal(str(self.warn_at)) if self.warn_at is not None else Decimal(0)
        if isinstance(self.window, int):
            common = gcd(self.window * 1000, self.amount)
            object.__setattr__(self, "unit_debt", self.window * 1000 // common)
            object.__setattr__(self, "drain", self.amount // common)
        if capacity * self.unit_debt > MOST:
            raise ValueError(f"{self.name}: too fine to count: round the amount or the burst")
        unit = "nano_usd" if self.kind == "usd" else self.kind  # counters of micro-USD are not read
        object.__setattr__(self, "key", f"{unit}:{self.name}")
        object.__setattr__(self, "capacity", capacity)
        object.__setattr__(self, "warn", ceil(share * capacity))

    @property
    def calendar(self) -> Calendar:
        """The window of a budget."""
        assert isinstance(self.window, Calendar)  # noqa: S101  # checked when it was made
        return self.window


def rate_text(limit: Limit) -> str:
    """Return what a limit that is no budget allows, in words: ``600 requests per minute, 100 at
    once``. A rate lets its ``burst`` come at once, and no more of its amount before that drains."""
    if limit.kind == "concurrency":
        return f"{counted(limit.amount, 'call')} at once"
    window = limit.window if isinstance(limit.window, int) else 1
    seconds, unit = next(span for span in SPANS if window % span[0] == 0)
    span = unit if window == seconds else counted(window // seconds, unit)
    rate = f"{counted(limit.amount, limit.kind.removesuffix('s'))} per {span}"
    return rate if limit.capacity == limit.amount else f"{rate}, {limit.capacity} at once"


@dataclass(frozen=True, slots=True)
class Claim:
    """What one call asks of one counter: an ``amount`` as estimated, at least 0.

    ``scope`` says whose counter it is, such as ``key:support-widget`` or ``tag.team:support``. It
    is ``personal`` where it names a user.
    """

    limit: Limit
    scope: str
    amount: int
    personal: bool = False
