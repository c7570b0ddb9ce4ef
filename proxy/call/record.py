"""What happened to one call: the only mutable thing that travels with it.

Rooms write into it as they go, the emitters read it once at the end. Of prompts and answers it
holds only what policy lets be ``captured``. Its ``head`` has headers of the caller's that no
emitter may write; the key's text is not among them. Moments are seconds of ``time.monotonic``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from proxy.call.attempts import Attempt, AttemptReason, Bill, CallOutcome, Skip, attempt_results
from proxy.call.billing import BilledAttempt, Billing, BudgetCharge, CacheSavings, bill
from proxy.call.facts import CacheResult, CallSummary
from proxy.call.meter import Meter
from proxy.errors import (
    ClientDisconnected,
    GuardBlocked,
    LimitExceeded,
    ProxyError,
    RequestError,
    UpstreamError,
    UpstreamNotFound,
    UpstreamRejected,
    UpstreamTimeout,
)
from proxy.errors.words import MAX_NAME, MAX_WORDS, Word, word
from proxy.money.estimate import HiddenOutput
from proxy.runtime.freed import drop_tracebacks
from proxy.runtime.frozen import frozen
from proxy.types import UNBILLED, Call, Plan, RequestHead, Target
from proxy.types.events import Frame
from proxy.types.guard import GuardResult, GuardResults, Stage
from proxy.types.outcome import LimitDecision as Admission

if TYPE_CHECKING:
    from proxy.runtime.background import SideTasks


@frozen
class TraceIds:
    """Identity of a call's spans, in lower-case hex; drawn early so that an upstream can join."""

    trace_id: str
    server_span: str
    model_span: str


@frozen
class CapturedText:
    """One text, and whose."""

    role: str
    text: str


@frozen
class Captured:
    """What policy lets be shown of a call's texts, redacted."""

    asked: tuple[CapturedText, ...]
    answered: tuple[CapturedText, ...]


@dataclass(slots=True)
class Record:
    """One call's account. ``now`` is the clock it is kept by.

    ``wait_s`` are the seconds spent on the upstream of another call, whose answer this one shared,
    or on those whom guards have asked; ``cache_lookup_s`` those spent on looking for a kept answer.
    ``semantic_match`` is True if the call got the cached response to a similar prompt, or would
    have got it. ``is_over_budget`` is True for a call that may only get a cached response.
    ``sample_id`` is the number by which it is chosen for what only a share of calls has: our own,
    as a trace id that a caller chose would choose that too. ``parent_sampled`` is the caller's own
    decision on tracing, None if its key may not decide. Of callers without a key only some are
    ``reported`` beyond the metrics; ``unreported`` counts those that were not since then.
    ``guard_round`` counts how often a guard has wanted another answer. ``plan`` is what was done,
    and ``original_plan`` what policy had decided where a guard has led the call elsewhere.
    ``facts`` are what ``summary.facts_of`` has worked out. ``hidden_output`` returns what a model
    may have written for an attempt without sending it. ``pending`` are the tasks, owned by
    ``side_tasks``, whose results the record waits for before it is emitted. ``has_ping`` is set
    when an upstream sends a stream something without content, such as a comment.
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
    warnings: list[Word] = field(default_factory=list)
    limit_decision: Admission | None = None
    is_over_budget: bool = False
    charges: Sequence[BudgetCharge] = ()
    guards: list[tuple[Stage, GuardResult]] = field(default_factory=list)
    live_guard_results: Callable[[], Sequence[GuardResult]] | None = None
    captured: Callable[[], Captured] | None = None
    guard_round: int = 0
    skips: list[Skip] = field(default_factory=list)
    used_attempts: dict[int, Attempt] = field(default_factory=dict)
    error: ProxyError | None = None
    is_internal_error: bool = False
    status: int | None = None
    cache: CacheResult = "bypass"
    semantic_match: bool = False
    saved: CacheSavings | None = None
    wait_s: float = 0.0
    cache_lookup_s: float | None = None
    first_sent: float | None = None
    has_ping: bool = False
    ended: float | None = None
    reported: bool = True
    unreported: int = 0
    sample_id: str = ""
    parent_sampled: bool | None = None
    hidden_output: Callable[[Attempt], HiddenOutput] | None = None
    facts: CallSummary | None = None
    side_tasks: SideTasks | None = None
    pending: tuple[asyncio.Task[None], ...] = ()

    def __post_init__(self) -> None:
        self.sample_id = self.sample_id or self.ids.trace_id

    def set_head(self, head: RequestHead) -> None:
        """Note who knocked, and join the trace the caller is in."""
        self.head, self.request_id = head, head.request_id
        if head.parent is not None:
            self.ids = replace(self.ids, trace_id=head.parent.trace_id)
            self.sample_id = head.parent.sample_id or self.sample_id

    def identify(self, key: str, credential: str | None = None, *, controls_sampling: bool) -> None:
        """Note who calls, and by which of its key's texts, in a short form that tells nothing of
        it. A key that may do so samples by the trace that it is in."""
        self.key, self.credential = key, credential
        if controls_sampling and self.head is not None and self.head.parent is not None:
            self.sample_id = self.head.parent.trace_id
            self.parent_sampled = self.head.parent.is_sampled

    def fail(self, error: ProxyError) -> None:
        """Note why the call ended before its end."""
        drop_tracebacks(error)
        self.error = error

    def start_attempt(
        self, target: Target, leg: int, span_id: str, why: AttemptReason = "first"
    ) -> Attempt:
        """Begin an attempt."""
        if why == "first" and self.guard_round:
            why = "guard"
        begun = Attempt(
            target=target,
            model_call=leg,
            span_id=span_id,
            started=self.now(),
            reason=why,
            round=self.guard_round,
        )
        self.attempts += (begun,)
        return begun

    def add_skip(self, target: Target, reason: str) -> None:
        """Note a target that was not asked."""
        self.skips.append(Skip(target, reason))

    def is_sampled(self, share: float) -> bool:
        """True if this call is of a share of all, by another half of its number than the one by
        which it is sampled."""
        return int(self.sample_id[:16], 16) < share * 2**64

    def add_guard_results(self, stage: Stage, results: Iterable[GuardResult]) -> None:
        """Note what guards said of texts that were looked at as a whole."""
        self.guards += [(stage, result) for result in results]

    async def run_beside(
        self, work: Callable[[], Coroutine[Any, Any, object]], fail: Callable[[str], None]
    ) -> None:
        """Run work beside the call, or as a part of it if nobody owns such work. ``fail`` gets the
        name of the error if that cannot be done, or if the work fails."""
        if self.side_tasks is None:
            await work()
        elif self.side_tasks.is_full(self.key):
            fail("busy")
        else:
            self.pending += (self.side_tasks.start(_settled(work, fail), self.key),)

    def start_guard_retry(self) -> None:
        """Note that a guard wants another answer. The one so far, and what was still under way
        with it, is the guard's loss; what had failed or was beaten by itself is not."""
        self.add_guard_results(
            "output", self.live_guard_results() if self.live_guard_results is not None else ()
        )
        self.live_guard_results = None
        for attempt in self.attempts:
            if attempt.round == self.guard_round and attempt.error in (None, "cancelled"):
                attempt.is_replaced = not attempt.lost_hedge
        self.used_attempts.clear()
        self.guard_round += 1

    def guard_results(self) -> GuardResults:
        """Return the verdicts of all guards, those that watched a stream among them."""
        if self.live_guard_results is None:
            return list(self.guards)
        return [*self.guards, *[("output", result) for result in self.live_guard_results()]]

    def use_attempt(self, leg: int, attempt: Attempt) -> None:
        """Note whose answer a leg gets. Attempts that were dropped for it have lost."""
        self.used_attempts[leg] = attempt
        self.lose_dropped(leg)

    def lose_dropped(self, leg: int) -> None:
        """Note that the cancelled attempts of a leg were dropped because another one ended."""
        for attempt in self.attempts:
            if attempt.model_call == leg and attempt.error == "cancelled":
                attempt.lost_hedge = True

    def warn(self, remarks: Iterable[str]) -> None:
        """Warn the client of each thing once, and of ``MAX_WORDS`` things at the most."""
        for remark in remarks:
            if len(self.warnings) == MAX_WORDS:
                return
            if (warning := word(remark, MAX_NAME)) not in self.warnings:
                self.warnings.append(warning)

    def meter(self, frame: Frame) -> None:
        """Meter a frame of an upstream, sent to the client or not. Frames that have come together
        have moments of their own all the same: they tell the pace of an answer."""
        attempt = self.used_attempts.get(frame.model_call)
        if attempt is not None:
            attempt.bill = None
            attempt.meter.feed(frame, self.now())

    def meters(self) -> list[Meter]:
        """Return the meters of the answers that were used, one for each leg."""
        meters: list[Meter] = []
        for leg in self.used_attempts:
            meters += (self.used_attempts[leg].meter,)
        return meters

    @property
    def billing(self) -> Billing:
        """Usage and cost of all attempts as known now; they are final once the call has ended."""
        bills: list[Bill] = []
        for attempt in self.attempts:
            made = attempt.bill or self._bill(attempt)
            if made is not None:
                bills += (made,)
        return Billing(bills, self._judged)

    def _bill(self, attempt: Attempt) -> Bill | None:
        """Return the bill of an attempt as known now, None where no model was at work for it, as
        for a count of tokens, or another is billed. It is kept once its answer has ended, or the
        call."""
        head, is_billed = self.head, attempt.is_billed
        if is_billed is None:
            is_billed = head is None or head.endpoint not in UNBILLED
        if not is_billed or not attempt.is_billable:
            return None
        made = bill(
            attempt,
            call=self.call,
            hidden_output=self.hidden_output,
            moment=self.started_at,
        )
        if attempt.finished or self.ended is not None:
            attempt.bill = made
        return made

    def judged(self, outcome: CallOutcome) -> list[BilledAttempt]:
        """Return all attempts, with what becomes of them where the call ends so."""
        judged: list[BilledAttempt] = []
        ends = attempt_results(self.attempts, self.used_attempts, outcome)
        for attempt, fate in zip(self.attempts, ends, strict=True):
            judged += (BilledAttempt(attempt, fate, attempt.bill or self._bill(attempt)),)
        return judged

    def _judged(self) -> list[BilledAttempt]:
        return self.judged(self.outcome)

    def used_bill(self) -> Bill | None:
        """Return the bill of the answer that was used, as known now: of several, the first's."""
        for attempt in self.attempts:
            if self.used_attempts.get(attempt.model_call) is attempt and attempt.is_billable:
                return attempt.bill or self._bill(attempt)
        return None

    @property
    def outcome(self) -> CallOutcome:
        """How the call ended, in one word of a closed set."""
        if self.is_internal_error:
            return "proxy_error"
        if self.error is None:
            return "success"
        for error, outcome in OUTCOME_OF_ERROR:
            if isinstance(self.error, error):
                return outcome
        return "proxy_error"


async def _settled(
    work: Callable[[], Coroutine[Any, Any, object]], fail: Callable[[str], None]
) -> None:
    """Run work and report how it fails, instead of raising that."""
    try:
        await work()
    except asyncio.CancelledError:
        fail("cancelled")
        raise
    except Exception as bug:  # noqa: BLE001  # a task that raises would end the tasks of others
        fail(type(bug).__name__)


OUTCOME_OF_ERROR: tuple[tuple[type[ProxyError], CallOutcome], ...] = (
    (ClientDisconnected, "client_abort"),
    (UpstreamTimeout, "timeout"),
    (UpstreamNotFound, "upstream_error"),
    (UpstreamRejected, "client_error"),
    (UpstreamError, "upstream_error"),
    (LimitExceeded, "limited"),
    (GuardBlocked, "blocked"),
    (RequestError, "client_error"),
)
"""The outcome of a call that ends with an error: the first of whose kind it is."""
