"""What happened to one call: the only mutable thing that travels with it.

Rooms write into it as they go, the emitters read it once at the end. It holds no prompt, no
answer and no key text. Moments are seconds of ``time.monotonic``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Literal

from proxy.errors import ClientGone, ProxyError, Stopping, UpstreamError
from proxy.types import Call, Door, Plan, Target
from proxy.usage import Meter, Source, Tokens, Usage, in_force, prompt_length

Outcome = Literal[
    "success", "client_error", "upstream_error", "timeout", "proxy_error", "client_abort"
]


@dataclass(frozen=True, slots=True)
class TraceIds:
    """Identity of a call's spans, in lower-case hex; drawn early so that an upstream can join."""

    trace_id: str
    server_span: str
    model_span: str


@dataclass(slots=True)
class Attempt:
    """One request to one upstream, from connecting to the last byte.

    ``began`` is the moment its response head said that an answer follows: from then on the
    upstream had accepted, and what it used is counted.
    """

    target: Target
    leg: int
    span_id: str
    started: float
    began: float | None = None
    ended: float | None = None
    status: int | None = None
    error: str | None = None


@dataclass(slots=True)
class Bill:
    """What one leg used and what it cost; ``cost`` in micro-USD, None when no price is known."""

    target: Target
    usage: Usage
    cost: Decimal | None


@dataclass(slots=True)
class Record:
    """One call's account. ``now`` and ``today`` are the clocks it is kept by."""

    ids: TraceIds
    started: float
    started_at: datetime
    now: Callable[[], float]
    door: Door | None = None
    call: Call | None = None
    plan: Plan | None = None
    attempts: list[Attempt] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    meters: dict[int, Meter] = field(default_factory=dict)
    error: ProxyError | None = None
    bug: bool = False
    status: int | None = None
    cache: str = "bypass"
    first_sent: float | None = None
    ended: float | None = None
    _final: list[Bill] | None = None

    def join(self, door: Door) -> None:
        """Note who knocked, and join the trace the caller is in."""
        self.door = door
        if door.parent is not None:
            self.ids = replace(self.ids, trace_id=door.parent.trace_id)

    def attempt(self, target: Target, leg: int, span_id: str) -> Attempt:
        """Begin an attempt; the leg's meter starts anew, as nothing of an earlier one was shown."""
        begun = Attempt(target, leg, span_id, self.now())
        self.attempts.append(begun)
        self.meters[leg] = Meter()
        return begun

    def account(self, leg: int, data: dict[str, object] | None) -> None:
        """Count what an upstream said on one leg, shown to the client or not."""
        meter = self.meters.get(leg)
        if meter is not None:
            meter.feed(data, self.now())

    def bills(self) -> list[Bill]:
        """Give usage and cost of each leg as known now: reported, else estimated, else nothing."""
        if self._final is not None:
            return self._final
        bills = [self._bill(leg, meter) for leg, meter in self.meters.items()]
        if self.ended is not None:
            self._final = bills
        return bills

    def _bill(self, leg: int, meter: Meter) -> Bill:
        last = next(a for a in reversed(self.attempts) if a.leg == leg)
        if last.began is None:
            return Bill(last.target, Usage(Tokens(), "none"), Decimal(0))
        body = self.call.body if self.call else {}
        usage = meter.settle(lambda: prompt_length(body))
        price = in_force(last.target.prices, self.started_at.date())
        return Bill(last.target, usage, price.cost(usage.tokens) if price else None)

    @property
    def source(self) -> Source:
        """Where the token counts come from; the least certain of the legs."""
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
        return "client_error"

    @property
    def cost(self) -> Decimal | None:
        """Micro-USD of all legs; None as soon as one of them has no known price."""
        total = Decimal(0)
        for bill in self.bills():
            if bill.cost is None:
                return None
            total += bill.cost
        return total

    @property
    def tokens(self) -> Tokens:
        return sum((bill.usage.tokens for bill in self.bills()), Tokens())
