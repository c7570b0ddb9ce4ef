"""Limits, the claims of calls on their counters, and the decisions of limit stores.

Amounts are integers, money is in nano-USD. Arithmetic is exact in 53 bits, the precision of numbers
in Redis scripts: up to 9,007,199 USD. Larger limits raise ``ValueError``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import date
from decimal import Decimal
from math import ceil, gcd
from typing import Any, ClassVar, Literal, NamedTuple

from proxy.errors import LimitExceeded
from proxy.errors.words import MAX_NAME, format_count, shorten_to_ascii
from proxy.money.usage import Tokens
from proxy.runtime.frozen import frozen
from proxy.types.target import Target
from proxy.types.windows import Calendar

Counting = Literal["rate", "budget", "lease"]
OnStoreError = Literal["local", "open", "closed"]
MAX_AMOUNT = 2**53 - 1
TIME_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
LEASE_S = 30
RENEW_S = LEASE_S / 3  # two renewals may fail before a lease expires


class CallSize(NamedTuple):
    """Upper bound of a model call's usage at one target.

    ``prompt`` and ``output`` are in tokens, ``output`` for all choices. ``body`` is the request as
    sent to the target. ``fixed_cost`` in nano-USD replaces the computed cost.
    """

    target: Target
    prompt: int
    output: int
    body: Mapping[str, Any]
    fixed_cost: int | None = None


class LimitKind:
    """Kind of a limit.

    Policies, editors and docs show the docstring of a subclass in ``proxy/limits/kinds``.

    - ``name``: the key in policies and the ``type`` in errors.
    - ``unit``: the noun in texts.
    - ``counter_type``: ``rate`` (drains continuously), ``budget`` (money per calendar window) or
      ``lease`` (returned when the call ends).
    - ``is_usage_based``: the amount differs between calls, and a cached response uses none. A call
      claims 1 of a kind that is not.
    - ``counter_prefix``: prefix of counter keys if it is not ``name``.
    - ``scale``: counter units in one unit of policies.
    - ``headers``: response headers with limit, remaining amount and reset time of the tightest
      rate.
    """

    name: ClassVar[str]
    unit: ClassVar[str]
    counter_type: ClassVar[Counting] = "rate"
    is_usage_based: ClassVar[bool] = False
    counter_prefix: ClassVar[str | None] = None
    scale: ClassVar[int] = 1
    headers: ClassVar[tuple[str, str, str] | None] = None

    def __repr__(self) -> str:
        return self.name

    def estimate(self, sizes: Sequence[CallSize], day: date) -> int:
        """Return the maximum amount that one model call may use, given its size at each target.

        Called only for kinds that are usage-based.
        """
        return 1

    def get_used_amount(self, tokens: Tokens | None, cost: int | None) -> int | None:
        """Return the amount that a finished call has used, or None to keep the estimate.

        ``tokens`` and ``cost`` (nano-USD) are None if unknown.
        """
        return 1

    def format_number(self, amount: int) -> str:
        """Format an amount as in ``7 of 10 used``: without its unit, except money."""
        return str(amount)

    def format_amount(self, amount: int) -> str:
        """Format an amount with its unit."""
        return format_count(amount, self.unit)

    def describe(self, limit: Limit) -> str:
        """Return a text such as ``600 requests per minute, burst 100``.

        ``burst`` is the number of requests that a full bucket admits at once.
        """
        window = limit.window if isinstance(limit.window, int) else 1
        seconds, unit = next(span for span in TIME_UNITS if window % span[0] == 0)
        span = unit if window == seconds else format_count(window // seconds, unit)
        rate = f"{self.format_amount(limit.amount)} per {span}"
        return rate if limit.capacity == limit.amount else f"{rate}, burst {limit.capacity}"

    def make_error(self, refusal: LimitRefusal, at_ms: int) -> LimitExceeded:
        """Return the error for a call that was received at ``at_ms`` and refused by a limit."""
        wait_s, limit_text = refusal.retry_after_s, refusal.description
        if wait_s is None:
            text = f"This call exceeds the whole limit {limit_text}, so no retry can succeed."
        else:
            text = f"Limit {limit_text} is reached. Try again in {ceil(wait_s)} s."
        return LimitExceeded(text, refusal.limit.name, self.name, wait_s)


@frozen
class Limit:
    """A named limit. Each scope has a separate counter.

    - A rate allows ``amount`` per ``window`` in seconds, and ``burst`` at once (default: the
      amount).
    - A budget allows ``amount`` nano-USD per window of a ``Calendar``.
    - A lease limit allows ``amount`` at once. Leases expire after ``lease_s`` seconds, and are
      renewed every ``RENEW_S`` seconds while the call runs.

    A limit in ``shadow`` only counts. ``warn_at`` is the share of the capacity at which to warn,
    above 0 and at most 1.
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
        if not 0 < self.amount <= MAX_AMOUNT:
            raise ValueError(f"{self.name}: amount must be between 1 and {MAX_AMOUNT}")
        object.__setattr__(self, "is_budget", self.kind.counter_type == "budget")
        object.__setattr__(self, "is_leased", self.kind.counter_type == "lease")
        # The integers of the GCRA counter: a rate's debt drains by ``drain_per_ms`` per millisecond
        # and grows by ``debt_per_unit`` per unit, the fraction window / amount in lowest terms, so
        # that no unit is rounded.
        capacity = self.burst or self.amount
        share = Decimal(str(self.warn_at)) if self.warn_at is not None else Decimal(0)
        if isinstance(self.window, int):
            common = gcd(self.window * 1000, self.amount)
            object.__setattr__(self, "debt_per_unit", self.window * 1000 // common)
            object.__setattr__(self, "drain_per_ms", self.amount // common)
        if capacity * self.debt_per_unit > MAX_AMOUNT:
            raise ValueError(
                f"{self.name}: amount and burst are too large to count exactly in this window:"
                " use a rounder amount or a smaller burst"
            )
        object.__setattr__(self, "key", f"{self.kind.counter_prefix or self.kind.name}:{self.name}")
        object.__setattr__(self, "capacity", capacity)
        object.__setattr__(self, "warn_amount", ceil(share * capacity))

    @property
    def calendar(self) -> Calendar:
        """Calendar of the windows of a budget. Rates have none."""
        assert isinstance(self.window, Calendar)  # noqa: S101  # guaranteed by the schema
        return self.window


@frozen
class LimitRefusal:
    """The limit that refuses a call for the longest time.

    The same claims fit after ``retry_after_s``, unless other calls use the capacity first. It is
    None if they exceed the limit's capacity. ``remaining`` may be unknown.
    """

    limit: Limit
    scope: str
    retry_after_s: float | None
    remaining: int | None

    @property
    def description(self) -> str:
        """Quoted name, amount and scope of the limit, for error messages."""
        owner = shorten_to_ascii(self.scope.replace("|", ", "), MAX_NAME)
        text = self.limit.kind.describe(self.limit) + (f" for {owner}" if owner else "")
        return f'"{self.limit.name}" ({text})'


@frozen
class Claim:
    """Amount, at least 0, that a call claims of one counter.

    ``scope`` identifies the counter, such as ``key:support-widget`` or ``tag.team:support``.
    ``is_per_user`` is True if it names an end user. With ``is_count_only`` it is never refused.
    """

    limit: Limit
    scope: str
    amount: int
    is_per_user: bool = False
    is_count_only: bool = False


class ClaimTemplate(NamedTuple):
    """The part of a claim that all calls with the same plan share.

    ``claim`` is set if it is the same for each call. With ``is_per_user`` the scope has a
    placeholder for the end user. ``model_calls`` are the indexes of the counted model calls.
    """

    claim: Claim | None
    limit: Limit
    scope: str
    is_per_user: bool
    model_calls: tuple[int, ...]


@frozen
class BudgetQuery:
    """Parameters of a query for the spend of a budget in the ledger.

    ``per`` are the dimensions of its scope. ``deployments`` are those whose calls it counts, None
    if rules decide per call. ``scopes`` are the counters whose values clients cannot choose.
    """

    limit: Limit
    per: tuple[str, ...] = ()
    deployments: frozenset[str] | None = None
    scopes: frozenset[str] = frozenset()


NEVER_FITS = -1
WARNED_FLAG, FRESH_FLAG = 1, 2
WAIT_INDEX, FLAGS_INDEX = 2, 3  # positions in a reading
READING_LENGTH = 4
"""Numbers in the reading of a claim: level (a rate's debt, otherwise the used amount);
milliseconds until a budget resets, or -1; milliseconds to wait, 0 if the claim fits and
``NEVER_FITS`` if it never will; the bits ``WARNED_FLAG`` and ``FRESH_FLAG``."""


@frozen
class CounterState:
    """State of a counter after a call was counted or refused.

    - ``used``: may exceed the capacity, because calls settle their actual usage.
    - ``reset_s``: time until a rate has its full burst or a budget's window ends. None for leases.
    - ``would_refuse``: the claim does not fit.
    - ``is_warned``: this call reached ``warn_at``. A budget warns once per window.
    - ``is_fresh``: the counter of a budget is new, for a new window or after a loss of the store.
    """

    limit: Limit
    scope: str
    used: int
    reset_s: float | None
    would_refuse: bool
    is_warned: bool
    is_fresh: bool

    @property
    def remaining(self) -> int:
        return max(0, self.limit.capacity - self.used)


@frozen
class LimitDecision:
    """Decision on the claims of one call. ``readings`` has ``READING_LENGTH`` numbers per claim.

    ``is_store_unavailable`` is True if limits that fail closed refuse the call for that reason.
    """

    admitted: bool
    claims: Sequence[Claim]
    readings: Sequence[int]
    is_store_unavailable: bool = False

    @property
    def longest_refusal(self) -> LimitRefusal | None:
        """Limit that refuses the call for the longest time, None if none does."""
        against = [
            (wait, index)
            for index, wait in enumerate(self.readings[WAIT_INDEX::READING_LENGTH])
            if wait and not self.claims[index].limit.shadow
        ]
        if not against:
            return None
        wait, index = max(against, key=lambda item: (item[0] == NEVER_FITS, item[0]))
        state, wait_s = self.get_counter_state(index), None if wait == NEVER_FITS else wait / 1000
        return LimitRefusal(state.limit, state.scope, wait_s, remaining=state.remaining)

    @property
    def counter_states(self) -> tuple[CounterState, ...]:
        return tuple([self.get_counter_state(index) for index in range(len(self.claims))])

    def get_counter_state(self, index: int) -> CounterState:
        """Return the state of the counter of one claim."""
        claim, offset = self.claims[index], index * READING_LENGTH
        level, reset, wait, flags = self.readings[offset : offset + READING_LENGTH]
        limit, used = claim.limit, level
        if isinstance(limit.window, int):
            used, reset = -(-level // limit.debt_per_unit), -(-level // limit.drain_per_ms)
        return CounterState(
            limit=limit,
            scope=claim.scope,
            used=used,
            reset_s=reset / 1000 if reset >= 0 else None,
            would_refuse=wait != 0,
            is_warned=bool(flags & WARNED_FLAG),
            is_fresh=bool(flags & FRESH_FLAG),
        )

    def get_used_amounts(self) -> list[int]:
        levels = self.readings[::READING_LENGTH]
        return [-(-levels[n] // claim.limit.debt_per_unit) for n, claim in enumerate(self.claims)]

    def pair_limit_refusals(self) -> list[tuple[Limit, bool]]:
        """Return the limit of each claim, and True if it refuses or would without shadow mode."""
        waits = self.readings[WAIT_INDEX::READING_LENGTH]
        return [(claim.limit, waits[index] != 0) for index, claim in enumerate(self.claims)]


def build_limit_decision(claims: Sequence[Claim], readings: Sequence[int]) -> LimitDecision:
    """Return the decision. A claim that does not fit refuses the call, except in shadow mode."""
    waits = readings[WAIT_INDEX::READING_LENGTH]
    refused = any(waits) and any(
        wait and not claim.limit.shadow for claim, wait in zip(claims, waits, strict=True)
    )
    return LimitDecision(not refused, claims, readings)
