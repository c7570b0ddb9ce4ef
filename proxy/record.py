"""What happened to one call: the only mutable thing that travels with it.

Rooms write into it as they go, the emitters read it once at the end. It holds no key text, and of
prompts and answers only what policy lets be ``captured``. Moments are seconds of
``time.monotonic``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Literal

from proxy.errors import (
    ClientGone,
    GuardBlocked,
    LimitExceeded,
    ProxyError,
    Stopping,
    UpstreamError,
)
from proxy.types import Call, Door, Plan, Target
from proxy.types.guard import Result, Stage, Verdicts
from proxy.types.outcome import Outcome as Admission
from proxy.usage import Meter, Price, Source, Tokens, Usage, in_force, micro_usd, prompt_length

Outcome = Literal[
    "success",
    "client_error",
    "limited",
    "blocked",
    "upstream_error",
    "timeout",
    "proxy_error",
    "client_abort",
]


@dataclass(frozen=True, slots=True)
class TraceIds:
    """Identity of a call's spans, in lower-case hex; drawn early so that an upstream can join."""

    trace_id: str
    server_span: str
    model_span: str


Why = Literal["first", "retry", "fallback", "hedge", "guard"]


@dataclass(slots=True)
class Attempt:
    """One request to one upstream, from connecting to the last byte.

    ``began`` is the moment its response head said that an answer follows: from then on the
    upstream had accepted, and what it used is counted. ``lost`` is set when another attempt of a
    hedge was faster: it was at work, so it is counted too.
    """

    target: Target
    leg: int
    span_id: str
    started: float
    why: Why = "first"
    lost: bool = False
    meter: Meter = field(default_factory=Meter)
    began: float | None = None
    ended: float | None = None
    status: int | None = None
    error: str | None = None
    left: Mapping[str, int] = field(default_factory=dict)


Money = Literal["useful", "retried", "abandoned", "blocked", "shadow", "cached"]
MAX_WHOLE = 2**53


@dataclass(slots=True)
class Bill:
    """What one attempt used and what it cost; ``cost`` in micro-USD, None when no price is known.

    ``served`` says that its answer was the one that was used; else the money was lost.
    """

    target: Target
    usage: Usage
    cost: Decimal | None
    served: bool = True
    price: Price | None = None

    @property
    def whole(self) -> int | None:
        """The cost in whole micro-USD: rounded here and nowhere else, so that all who add up
        agree. What no money on earth could pay is taken as unknown."""
        if self.cost is None:
            return None
        whole = micro_usd(self.cost)
        return whole if whole <= MAX_WHOLE else None

    def parts(self) -> dict[str, int]:
        """Give the whole micro-USD by what they were for; they add up to ``whole``."""
        return self.price.parts(self.usage.tokens) if self.price else {}


def money(attempts: Sequence[Attempt], number: int, outcome: Outcome, *, served: bool) -> Money:
    """Say what became of the attempt of that number, from 0, and so of its money.

    ``useful``: its answer was the client's, to the end. ``blocked``: a guard kept the answer back,
    be it that another was asked for. ``retried``: it failed, and another was asked in its place.
    ``abandoned``: nobody got its answer, or not to the end. The other words are for attempts that
    are made elsewhere.
    """
    attempt = attempts[number]
    if served:
        if outcome == "blocked":
            return "blocked"
        return "useful" if attempt.error is None and outcome == "success" else "abandoned"
    later = attempts[number + 1 :]
    if any(a.leg == attempt.leg and a.why == "guard" for a in later):
        return "blocked"
    followed = any(a.leg == attempt.leg and a.why in ("retry", "fallback") for a in later)
    return "retried" if followed and not attempt.lost else "abandoned"


@dataclass(frozen=True, slots=True)
class Skip:
    """A target that was not asked, and why: its circuit is open, or it is busy."""

    target: Target
    reason: str


CacheResult = Literal["hit", "hit_semantic", "miss", "refresh", "bypass", "coalesced"]


@dataclass(frozen=True, slots=True)
class Saved:
    """What a call did not have to use, as its answer was kept or shared.

    ``cost`` is in micro-USD, None when no price is known.
    """

    tokens: Tokens
    cost: Decimal | None


@dataclass(frozen=True, slots=True)
class Said:
    """One text, and whose."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Captured:
    """What policy lets be shown of a call's texts, redacted."""

    asked: tuple[Said, ...]
    answered: tuple[Said, ...]


@dataclass(slots=True)
class Record:
    """One call's account. ``now`` and ``today`` are the clocks it is kept by.

    ``waited`` are the seconds spent on the upstream of another call, whose answer this one shared,
    or on those whom guards have asked; ``looked`` those spent on looking for a kept answer.
    ``likeness`` is that of the question whose kept answer this call got, or would get.
    """

    ids: TraceIds
    started: float
    started_at: datetime
    now: Callable[[], float]
    door: Door | None = None
    revision: str | None = None
    key: str | None = None
    call: Call | None = None
    plan: Plan | None = None
    attempts: list[Attempt] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    admission: Admission | None = None
    guards: list[tuple[Stage, Result]] = field(default_factory=list)
    watched: Callable[[], Sequence[Result]] | None = None
    captured: Callable[[], Captured] | None = None
    asked_again: bool = False
    skips: list[Skip] = field(default_factory=list)
    serving: dict[int, Attempt] = field(default_factory=dict)
    error: ProxyError | None = None
    bug: bool = False
    status: int | None = None
    cache: CacheResult = "bypass"
    likeness: float | None = None
    saved: Saved | None = None
    waited: float = 0.0
    looked: float | None = None
    first_sent: float | None = None
    ended: float | None = None
    _final: list[Bill] | None = None

    def join(self, door: Door) -> None:
        """Note who knocked, and join the trace the caller is in."""
        self.door = door
        if door.parent is not None:
            self.ids = replace(self.ids, trace_id=door.parent.trace_id)

    def attempt(self, target: Target, leg: int, span_id: str, why: Why = "first") -> Attempt:
        """Begin an attempt."""
        if why == "first" and self.asked_again:
            why = "guard"
        begun = Attempt(target, leg, span_id, self.now(), why)
        self.attempts.append(begun)
        return begun

    def skip(self, target: Target, reason: str) -> None:
        """Note a target that was not asked."""
        self.skips.append(Skip(target, reason))

    def drawn(self, share: float) -> bool:
        """Say whether this call is of a share of all, by its trace: but not by what samples it."""
        return int(self.ids.trace_id[:16], 16) < share * 2**64

    def guarded(self, stage: Stage, results: Iterable[Result]) -> None:
        """Note what guards said of texts that were looked at as a whole."""
        self.guards.extend((stage, result) for result in results)

    def ask_again(self) -> None:
        """Note that a guard wants another answer: the one so far is told of, and lost."""
        self.guarded("output", self.watched() if self.watched is not None else ())
        self.watched = None
        self.serving.clear()
        self.asked_again = True

    def verdicts(self) -> Verdicts:
        """Give what every guard said, those that watched a stream among them."""
        watched = self.watched() if self.watched is not None else ()
        return [*self.guards, *(("output", result) for result in watched)]

    def serve(self, leg: int, attempt: Attempt) -> None:
        """Note whose answer a leg gets. What else is still at work for the leg has lost."""
        self.serving[leg] = attempt
        for other in self.attempts:
            if other.leg == leg and other is not attempt and other.error == "cancelled":
                other.lost = True

    def warn(self, dropped: Iterable[str]) -> None:
        """Tell the client once of each field that an upstream could not be given."""
        for name in dropped:
            if (said := f"{name} dropped") not in self.warnings:
                self.warnings.append(said)

    def account(self, leg: int, data: dict[str, object] | None) -> None:
        """Count what an upstream said on one leg, shown to the client or not."""
        attempt = self.serving.get(leg)
        if attempt is not None:
            attempt.meter.feed(data, self.now())

    def meters(self) -> list[Meter]:
        """Give the meters of the answers that were used, one for each leg."""
        return [attempt.meter for attempt in self.serving.values()]

    def bills(self) -> list[Bill]:
        """Give usage and cost of each attempt as known now: reported, else estimated.

        An attempt that no upstream had accepted has none.
        """
        if self._final is not None:
            return self._final
        counted = [a for a in self.attempts if a.began is not None or a.lost]
        bills = [self._bill(attempt) for attempt in counted]
        if self.ended is not None:
            self._final = bills
        return bills

    def _bill(self, attempt: Attempt) -> Bill:
        body = self.call.body if self.call else {}
        usage = attempt.meter.settle(lambda: prompt_length(body))
        price = in_force(attempt.target.prices, self.started_at.date())
        cost = price.cost(usage.tokens) if price else None
        served = self.serving.get(attempt.leg) is attempt
        return Bill(attempt.target, usage, cost, served, price)

    def billed(self) -> list[tuple[Attempt, Bill | None]]:
        """Give each attempt with its bill."""
        bills = iter(self.bills())
        return [
            (each, next(bills) if each.began is not None or each.lost else None)
            for each in self.attempts
        ]

    def served(self) -> Bill | None:
        """Give the bill of the answer that was used, as known now; of several, the first leg's."""
        return next((bill for bill in self.bills() if bill.served), None)

    @property
    def source(self) -> Source:
        """Where the token counts come from; the least certain of the attempts."""
        sources = {bill.usage.source for bill in self.bills()}
        order: tuple[Source, ...] = ("partial_estimate", "provider")
        return next((s for s in order if s in sources), "none")

    @property
    def outcome(self) -> Outcome:
        """How the call ended, in one word of a closed set."""
        if self.bug or isinstance(self.error, Stopping):
            return "proxy_error"
        if self.error is None:
            return "success"
        if isinstance(self.error, ClientGone):
            return "client_abort"
        if isinstance(self.error, UpstreamError):
            return "timeout" if self.error.status == 504 else "upstream_error"
        if isinstance(self.error, LimitExceeded):
            return "limited"
        if isinstance(self.error, GuardBlocked):
            return "blocked"
        return "client_error"

    @property
    def cost(self) -> Decimal | None:
        """Micro-USD of all attempts; None as soon as one of them has no known price."""
        return _sum(self.bills())

    @property
    def lost(self) -> Decimal | None:
        """The part of the cost whose answer nobody got."""
        return _sum([bill for bill in self.bills() if not bill.served])

    @property
    def tokens(self) -> Tokens:
        first, *others = [bill.usage.tokens for bill in self.bills()] or [Tokens()]
        return sum(others, first)


def _sum(bills: Iterable[Bill]) -> Decimal | None:
    total = Decimal(0)
    for bill in bills:
        if bill.cost is None:
            return None
        total += bill.cost
    return total
