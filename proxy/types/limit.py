"""What may be used: a limit of some kind, and a call's claim on one of its counters.

Amounts are whole, money in nano-USD. All arithmetic on them is exact in 53 bits, as the shared
store has no more; a limit that would need more is a ``ValueError``. That holds 9,007,199 USD.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import date
from decimal import Decimal
from math import ceil, gcd
from typing import Any, ClassVar, Literal, NamedTuple

from proxy.errors import LimitExceeded
from proxy.errors.words import MAX_NAME, ascii_word, counted
from proxy.money.usage import Tokens
from proxy.runtime.frozen import frozen
from proxy.types.target import Target
from proxy.types.windows import Calendar

Counting = Literal["rate", "budget", "lease"]
OnStoreError = Literal["local", "open", "closed"]
MAX_AMOUNT = 2**53 - 1
SPANS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
LEASE_S = 30
RENEW_S = LEASE_S / 3  # two of them may fail
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


class CallSize(NamedTuple):
    """What one target may use of a call: the tokens of its prompt, and the most that its answers
    may have, by the ``body`` that it is sent. ``fixed_cost`` are the nano-USD that it may cost,
    where the policy says so."""

    target: Target
    prompt: int
    output: int
    body: Mapping[str, Any]
    fixed_cost: int | None = None


class LimitKind:
    """What differs between kinds of limits: each is a class of its own in ``proxy/limits/kinds``,
    and its docstring is what editors and pages say of it.

    ``name`` is its key in policies, and the ``type`` that a refused client reads; people read so
    many of a ``unit``. A ``rate`` drains, a ``budget`` is money by the windows of a calendar, and
    what is held by a ``lease`` comes back when the call has ended. One that is ``is_usage_based``
    counts the work of upstreams, of which a kept answer costs none; of any other a call claims one.
    ``counter`` begins the names of its counters, where that is not its own name, and ``scale`` says
    how many of what is counted a policy counts as one. By ``headers`` clients read of their
    tightest rate its size, what is left, and when all of it is free again.
    """

    name: ClassVar[str]
    unit: ClassVar[str]
    counter_type: ClassVar[Counting] = "rate"
    is_usage_based: ClassVar[bool] = False
    counter: ClassVar[str | None] = None
    scale: ClassVar[int] = 1
    headers: ClassVar[tuple[str, str, str] | None] = None

    def __repr__(self) -> str:
        return self.name

    def estimate(self, sizes: Sequence[CallSize], day: date) -> int:
        """Return the most that one model call may use, by what each of its targets may."""
        return 1

    def actual(self, tokens: Tokens | None, cost: int | None) -> int | None:
        """Return what a call has used that has ended, by all its tokens and nano-USD, each None
        where that is unknown; None where its estimate stands."""
        return 1

    def figure(self, amount: int) -> str:
        """Return so much of it, where the unit is known."""
        return str(amount)

    def amount_text(self, amount: int) -> str:
        """Return so much of it, with its unit."""
        return counted(amount, self.unit)

    def describe(self, limit: Limit) -> str:
        """Return what a limit allows, in words: ``600 requests per minute, burst 100``. A rate
        lets its ``burst`` come at once, and no more of its amount before that drains."""
        window = limit.window if isinstance(limit.window, int) else 1
        seconds, unit = next(span for span in SPANS if window % span[0] == 0)
        span = unit if window == seconds else counted(window // seconds, unit)
        rate = f"{self.amount_text(limit.amount)} per {span}"
        return rate if limit.capacity == limit.amount else f"{rate}, burst {limit.capacity}"

    def error(self, refusal: LimitRefusal, at_ms: int) -> LimitExceeded:
        """Return the error for a call that came at ``at_ms`` and that a limit refuses."""
        wait_s, named = refusal.retry_after_s, refusal.named
        if wait_s is None:
            text = f"This call exceeds the whole limit {named}, so no retry can succeed."
        else:
            text = f"Limit {named} is reached. Try again in {ceil(wait_s)} s."
        return LimitExceeded(text, refusal.limit.name, self.name, wait_s)


@frozen
class Limit:
    """A bound by name; each scope that claims it has a counter of its own.

    A rate is an ``amount`` per ``window`` whole seconds, and at most ``burst`` (by default the
    amount) at once. A budget is an ``amount`` of nano-USD in each window of a ``Calendar``. What is
    leased is an ``amount`` at once; a call whose process has ended without settling it gives its
    place back after ``lease_s`` seconds: a process that runs leases those of its calls anew, every
    ``RENEW_S`` seconds.

    It ``is_budget`` where it is money by the windows of a calendar, as the ledger knows it too, and
    ``is_leased`` where what a call holds comes back when it has ended.

    A limit in ``shadow`` refuses nothing: it counts the calls that it would have let through.
    ``warn_at`` is the share of the capacity at which to warn, above 0 and up to 1.
    """

    name: str
    kind: LimitKind
    amount: int
    window: int | Calendar | None = None
    burst: int | None = None
    lease_s: int = LEASE_S
    shadow: bool = False
    warn_at: float | None = None
    on_store_error: OnStoreError = "local"
    key: str = field(init=False, repr=False, compare=False)
    capacity: int = field(init=False, repr=False, compare=False)
    warn_amount: int = field(init=False, repr=False, compare=False)
    is_budget: bool = field(init=False, repr=False, compare=False)
    is_leased: bool = field(init=False, repr=False, compare=False)
    debt_per_unit: int = field(init=False, repr=False, compare=False, default=1)
    drain_per_ms: int = field(init=False, repr=False, compare=False, default=1)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not a valid name of a limit")
        if not 0 < self.amount <= MAX_AMOUNT:
            raise ValueError(f"{self.name}: amount must be between 1 and {MAX_AMOUNT}")
        if self.warn_at is not None and not 0 < self.warn_at <= 1:
            raise ValueError(f"{self.name}: warn_at must be greater than 0 and at most 1")
        if self.lease_s < 1:
            raise ValueError(f"{self.name}: a lease must last at least 1 second")
        object.__setattr__(self, "is_budget", self.kind.counter_type == "budget")
        object.__setattr__(self, "is_leased", self.kind.counter_type == "lease")
        self._check_window()
        self._derive()

    def _check_window(self) -> None:
        if self.is_budget and not isinstance(self.window, Calendar):
            raise ValueError(f"{self.name}: a budget requires a calendar window")
        if self.is_leased and self.window is not None:
            raise ValueError(f"{self.name}: {self.kind.name} must not have a window")
        rate = self.kind.counter_type == "rate"
        if rate and (not isinstance(self.window, int) or self.window < 1):
            raise ValueError(f"{self.name}: a rate requires a window of whole seconds")
        if self.burst is not None and (not rate or not 0 < self.burst <= MAX_AMOUNT):
            raise ValueError(f"{self.name}: only a rate may have a burst, which must be at least 1")

    def _derive(self) -> None:
        """Work out the whole numbers that counters reckon with.

        A rate's debt drains by ``drain_per_ms`` each millisecond and grows by ``debt_per_unit``
        with each unit: the fraction window / amount in lowest terms, so that no unit is ever
        rounded.
        """
        capacity = self.burst or self.amount
        share = Decimal(str(self.warn_at)) if self.warn_at is not None else Decimal(0)
        if isinstance(self.window, int):
            common = gcd(self.window * 1000, self.amount)
            object.__setattr__(self, "debt_per_unit", self.window * 1000 // common)
            object.__setattr__(self, "drain_per_ms", self.amount // common)
        if capacity * self.debt_per_unit > MAX_AMOUNT:
            raise ValueError(
                f"{self.name}: amount and burst are too large for this window: round them"
            )
        object.__setattr__(self, "key", f"{self.kind.counter or self.kind.name}:{self.name}")
        object.__setattr__(self, "capacity", capacity)
        object.__setattr__(self, "warn_amount", ceil(share * capacity))

    @property
    def calendar(self) -> Calendar:
        """The window of a budget."""
        assert isinstance(self.window, Calendar)  # noqa: S101  # checked when it was made
        return self.window


@frozen
class LimitRefusal:
    """The limit that refuses a call for longest.

    The same claims fit after ``retry_after_s`` unless other calls take the room. It is None where
    they never fit, because they are larger than the limit; for concurrency it is a second.
    ``remaining`` is None where only a share of the limit is known.
    """

    limit: Limit
    scope: str
    retry_after_s: float | None
    remaining: int | None

    @property
    def named(self) -> str:
        """The limit with its allowance and the part of the caller's own labels that it counts."""
        owner = f" for {ascii_word(self.scope.replace('|', ', '), MAX_NAME)}" if self.scope else ""
        return f'"{self.limit.name}" ({self.limit.kind.describe(self.limit)}{owner})'


@frozen
class Claim:
    """What one call asks of one counter: an ``amount`` as estimated, at least 0.

    ``scope`` says whose counter it is, such as ``key:support-widget`` or ``tag.team:support``. It
    is ``is_per_user`` where it names a user. One that ``is_count_only`` always fits: what a call
    may turn out to owe was used before it came.
    """

    limit: Limit
    scope: str
    amount: int
    is_per_user: bool = False
    is_count_only: bool = False


class ClaimTemplate(NamedTuple):
    """What all calls that share a plan claim of one counter: the ``claim`` itself where it is the
    same of each. It is ``is_per_user`` where it names a user: then ``scope`` has a place for that.
    ``model_calls`` are the indexes of those that it counts."""

    claim: Claim | None
    limit: Limit
    scope: str
    personal: bool
    model_calls: tuple[int, ...]


@frozen
class BudgetQuery:
    """A question to the ledger about a limit in USD, which counts ``per`` these owners.

    ``deployments`` are those of which it counts every call, None if rules decide that. ``scopes``
    are its counters whose owner no caller chooses.
    """

    limit: Limit
    per: tuple[str, ...] = ()
    deployments: frozenset[str] | None = None
    scopes: frozenset[str] = frozenset()
