"""Record of a call: the only mutable object that travels with it.

All stages write to it, and the emitters read it once at the end. It contains text of the call only
if the policy captures it. Moments are seconds of ``time.monotonic``.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from proxy import errors
from proxy.call.attempts import (
    Attempt,
    AttemptReason,
    Bill,
    BilledAttempt,
    Billing,
    BudgetCharge,
    CacheSavings,
    CallOutcome,
    Skip,
    build_attempt_results,
    compute_bill,
)
from proxy.call.facts import CacheResult, CallSummary
from proxy.call.meter import Meter
from proxy.errors.words import MAX_NAME, MAX_WORDS, BoundedText, shorten
from proxy.money.estimate import HiddenOutput
from proxy.runtime.deferred_free import drop_tracebacks
from proxy.runtime.frozen import frozen
from proxy.types import UNBILLED_ENDPOINTS, Call, Plan, RequestHead, Target
from proxy.types.events import Frame
from proxy.types.guard import GuardResult, GuardResults, Stage
from proxy.types.limit import LimitDecision as Admission

if TYPE_CHECKING:
    from proxy.runtime.background import SideTasks


@frozen
class TraceIds:
    """Trace and span ids of a call, in lower-case hex."""

    trace_id: str
    server_span: str
    model_span: str


@frozen
class CapturedText:
    """A text with the role of its author."""

    role: str
    text: str


@frozen
class Captured:
    """Redacted prompt and response of a call."""

    prompt: tuple[CapturedText, ...]
    response: tuple[CapturedText, ...]


@dataclass(slots=True)
class Record:
    """State and results of one call. ``now`` is its monotonic clock.

    - ``wait_s``: time spent waiting for another call's upstream or for services of guards.
    - ``cache_lookup_s``: time spent on the cache lookup.
    - ``semantic_match``: the call got, or in shadow would have got, the response to a similar
      prompt.
    - ``is_over_budget``: the call may only get a cached response.
    - ``sample_id``: hex number that decides on sampling; the client cannot choose it.
    - ``parent_sampled``: the client's sampling decision, None if its key may not control it.
    - ``is_reported``: False for some calls without a valid key, which only metrics count;
      ``unreported_count`` is the number of such calls since the last reported one.
    - ``guard_round``: number of guard retries so far.
    - ``plan``, ``original_plan``: the plan in use, and the one before a guard rerouted the call.
    - ``summary``: cached once the call has ended.
    - ``hidden_output``: estimates output that the model of an attempt produced without sending it.
    - ``pending``: tasks of ``side_tasks`` that must end before the record is emitted.
    - ``has_ping``: the upstream sent a keepalive in the stream.
    """

    ids: TraceIds
    started: float
    started_at: datetime
    now: Callable[[], float]
    request_id: str | None = None
    head: RequestHead | None = None
    revision: str | None = None
    key: str | None = None
    credential: str | None = None
    call: Call | None = None
    plan: Plan | None = None
    original_plan: Plan | None = None
    attempts: list[Attempt] = field(default_factory=list)
    warnings: list[BoundedText] = field(default_factory=list)
    limit_decision: Admission | None = None
    is_over_budget: bool = False
    charges: Sequence[BudgetCharge] = ()
    guards: list[tuple[Stage, GuardResult]] = field(default_factory=list)
    live_guard_results: Callable[[], Sequence[GuardResult]] | None = None
    captured: Callable[[], Captured] | None = None
    guard_round: int = 0
    skips: list[Skip] = field(default_factory=list)
    used_attempts: dict[int, Attempt] = field(default_factory=dict)
    error: errors.ProxyError | None = None
    is_internal_error: bool = False
    status: int | None = None
    response_headers: Mapping[str, str] = field(default_factory=dict)
    cache: CacheResult = "bypass"
    semantic_match: bool = False
    saved: CacheSavings | None = None
    wait_s: float = 0.0
    cache_lookup_s: float | None = None
    first_sent: float | None = None
    has_ping: bool = False
    ended: float | None = None
    is_reported: bool = True
    unreported_count: int = 0
    sample_id: str = ""
    parent_sampled: bool | None = None
    hidden_output: Callable[[Attempt], HiddenOutput] | None = None
    summary: CallSummary | None = None
    side_tasks: SideTasks | None = None
    pending: tuple[asyncio.Task[None], ...] = ()

    def __post_init__(self) -> None:
        self.sample_id = self.sample_id or self.ids.trace_id

    def set_head(self, head: RequestHead) -> None:
        """Set the request head, and join the client's trace."""
        self.head, self.request_id = head, head.request_id
        if head.parent is not None:
            self.ids = replace(self.ids, trace_id=head.parent.trace_id)
            self.sample_id = head.parent.sample_id or self.sample_id

    def identify(self, key: str, credential: str | None = None, *, controls_sampling: bool) -> None:
        """Set the key and a fingerprint of its secret.

        ``controls_sampling`` makes the client's trace context decide on sampling.
        """
        self.key, self.credential = key, credential
        if controls_sampling and self.head is not None and self.head.parent is not None:
            self.sample_id = self.head.parent.trace_id
            self.parent_sampled = self.head.parent.is_sampled

    def fail(self, error: errors.ProxyError) -> None:
        """Set the error that ends the call."""
        drop_tracebacks(error)
        self.error = error

    def start_attempt(
        self, target: Target, model_call: int, reason: AttemptReason = "first"
    ) -> Attempt:
        if reason == "first" and self.guard_round:
            reason = "guard"
        span_id = f"{random.getrandbits(64) | 1:016x}"
        attempt = Attempt(
            target, model_call, span_id, started=self.now(), reason=reason, round=self.guard_round
        )
        self.attempts += (attempt,)
        return attempt

    def add_skip(self, target: Target, reason: str) -> None:
        self.skips.append(Skip(target, reason))

    def is_sampled(self, share: float) -> bool:
        """Return True if the call falls into a share of all calls.

        The decision is independent of trace sampling, which uses the other half of ``sample_id``.
        """
        return int(self.sample_id[:16], 16) < share * 2**64

    def add_guard_results(self, stage: Stage, results: Iterable[GuardResult]) -> None:
        """Add results of guards that inspected whole texts."""
        self.guards += [(stage, result) for result in results]

    async def run_in_background(
        self, work: Callable[[], Coroutine[Any, Any, object]], fail: Callable[[str], None]
    ) -> None:
        """Run work in the background, or wait for it if background tasks are not available.

        ``fail`` gets the name of the error if the work cannot start or fails.
        """
        if self.side_tasks is None:
            await work()
        elif self.side_tasks.is_full(self.key):
            fail("busy")
        else:
            self.pending += (self.side_tasks.start(_run_and_report(work, fail), self.key),)

    def start_guard_retry(self) -> None:
        """Start another round of attempts because a guard requests it.

        The responses of the last round become losses of the guard.
        """
        self.add_guard_results(
            "output", self.live_guard_results() if self.live_guard_results is not None else ()
        )
        self.live_guard_results = None
        for attempt in self.attempts:
            if attempt.round == self.guard_round and attempt.error in (None, "cancelled"):
                attempt.is_replaced = not attempt.lost_hedge
        self.used_attempts.clear()
        self.guard_round += 1

    def list_guard_results(self) -> GuardResults:
        """Return the results of all guards, including those that inspect the current stream."""
        if self.live_guard_results is None:
            return list(self.guards)
        return [*self.guards, *[("output", result) for result in self.live_guard_results()]]

    def use_attempt(self, model_call: int, attempt: Attempt) -> None:
        """Set the attempt whose response a model call uses. Canceled ones become lost hedges."""
        self.used_attempts[model_call] = attempt
        self.mark_canceled_as_lost_hedges(model_call)

    def mark_canceled_as_lost_hedges(self, model_call: int) -> None:
        for attempt in self.attempts:
            if attempt.model_call == model_call and attempt.error == "cancelled":
                attempt.lost_hedge = True

    def add_warnings(self, warnings: Iterable[str]) -> None:
        """Add warnings for the client: distinct ones, at most ``MAX_WORDS``."""
        for warning in warnings:
            if len(self.warnings) == MAX_WORDS:
                return
            if (short_warning := shorten(warning, MAX_NAME)) not in self.warnings:
                self.warnings.append(short_warning)

    def meter_frame(self, frame: Frame) -> None:
        """Meter a frame of an upstream, whether or not the client receives it."""
        attempt = self.used_attempts.get(frame.model_call)
        if attempt is not None:
            attempt.bill = None
            attempt.meter.feed(frame, self.now())

    def get_used_meters(self) -> list[Meter]:
        """Return the meters of the used responses, one for each model call."""
        meters: list[Meter] = []
        for model_call in self.used_attempts:
            meters += (self.used_attempts[model_call].meter,)
        return meters

    @property
    def billing(self) -> Billing:
        """Current usage and cost of all attempts. Final once the call has ended."""
        bills: list[Bill] = []
        for attempt in self.attempts:
            attempt_bill = attempt.bill or self._compute_bill_if_due(attempt)
            if attempt_bill is not None:
                bills += (attempt_bill,)
        return Billing(bills)

    def _compute_bill_if_due(self, attempt: Attempt) -> Bill | None:
        """Return the bill of an attempt, None if no model worked on it or it is billed elsewhere.

        The bill is cached once the response or the call has ended.
        """
        head, is_billed = self.head, attempt.is_billed
        if is_billed is None:
            is_billed = head is None or head.endpoint not in UNBILLED_ENDPOINTS
        if not is_billed or not attempt.has_upstream_worked:
            return None
        attempt_bill = compute_bill(
            attempt,
            call=self.call,
            hidden_output=self.hidden_output,
            billed_at=self.started_at,
        )
        if attempt.finished or self.ended is not None:
            attempt.bill = attempt_bill
        return attempt_bill

    def build_billed_attempts(self, outcome: CallOutcome) -> list[BilledAttempt]:
        """Return all attempts with their results for a call with this outcome."""
        judged: list[BilledAttempt] = []
        ends = build_attempt_results(self.attempts, self.used_attempts, outcome)
        for index, attempt in enumerate(self.attempts):
            attempt_bill = attempt.bill or self._compute_bill_if_due(attempt)
            judged += (BilledAttempt(attempt, ends[index], attempt_bill),)
        return judged

    def get_first_used_bill(self) -> Bill | None:
        """Return the bill, as metered so far, of the first response that a model call uses."""
        for attempt in self.attempts:
            is_used = self.used_attempts.get(attempt.model_call) is attempt
            if is_used and attempt.has_upstream_worked:
                return attempt.bill or self._compute_bill_if_due(attempt)
        return None

    @property
    def outcome(self) -> CallOutcome:
        if self.is_internal_error:
            return "proxy_error"
        if self.error is None:
            return "success"
        for error, outcome in OUTCOME_OF_ERROR:
            if isinstance(self.error, error):
                return outcome
        return "proxy_error"


def new_record() -> Record:
    """Start the record of a call, with its clocks and span ids."""
    drawn = f"{random.getrandbits(256) | 1:064x}"  # ids, not secrets
    ids = TraceIds(drawn[:32], drawn[32:48], drawn[48:])
    return Record(ids, time.monotonic(), datetime.now(UTC), now=time.monotonic)


def new_request_id() -> str:
    return f"req_{random.getrandbits(96):024x}"  # an id, not a secret


async def _run_and_report(
    work: Callable[[], Coroutine[Any, Any, object]], fail: Callable[[str], None]
) -> None:
    try:
        await work()
    except asyncio.CancelledError:
        fail("cancelled")
        raise
    except Exception as bug:  # noqa: BLE001  # one failed task would cancel the others
        fail(type(bug).__name__)


OUTCOME_OF_ERROR: tuple[tuple[type[errors.ProxyError], CallOutcome], ...] = (
    (errors.ClientDisconnected, "client_abort"),
    (errors.UpstreamTimeout, "timeout"),
    (errors.UpstreamNotFound, "upstream_error"),
    (errors.UpstreamRejected, "client_error"),
    (errors.UpstreamError, "upstream_error"),
    (errors.LimitExceeded, "limited"),
    (errors.GuardBlocked, "blocked"),
    (errors.RequestError, "client_error"),
)
"""Outcomes by error class. The first matching class counts."""
