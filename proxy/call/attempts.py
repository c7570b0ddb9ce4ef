"""Attempts of a call, one request to one upstream each, with their usage and cost.

Moments are seconds of ``time.monotonic``. Money is in nano-USD, None without a known price.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from proxy import errors
from proxy.call.meter import Meter
from proxy.errors.causes import ErrorCause
from proxy.errors.words import BoundedText
from proxy.money.estimate import NOTHING_HIDDEN, HiddenOutput, estimate_body_quarters
from proxy.money.usage import Source, Tokens, Usage, find_price_on
from proxy.runtime.frozen import frozen
from proxy.types import Call, Target

CallOutcome = Literal[
    "success",
    "client_error",
    "limited",
    "blocked",
    "upstream_error",
    "timeout",
    "proxy_error",
    "client_abort",
]

AttemptReason = Literal["first", "retry", "fallback", "hedge", "guard"]


TIMED_OUT = frozenset({errors.RequestTimeout.code, *errors.UpstreamTimeout.codes})
"""Error codes of attempts that exceeded a timeout of the request or of the upstream."""


@frozen
class Bill:
    """Usage and cost of one attempt. ``cost_by_type`` adds up to a known ``cost``."""

    target: Target
    usage: Usage
    cost: int | None
    cost_by_type: Mapping[str, int]


@dataclass(slots=True)
class Attempt:
    """One request to one upstream, from connecting to the last byte.

    - ``sent_at``: the upstream had received the whole request.
    - ``response_at``: the response head arrived.
    - ``finished``: the response arrived completely.
    - ``lost_hedge``: another attempt of the same hedge was faster.
    - ``round``: number of guard retries before it. ``is_replaced``: a guard requested another
      response.
    - ``findings``: results of the upstream's own guards.
    - ``max_output_tokens``: maximum number of output tokens of all choices.
    - ``bill``: cached once the response or the call has ended.
    - ``cause``, ``system_text``: reason for a failed connection.
    - ``is_billed``: None if the endpoint decides. A background response is billed to the attempt
      that retrieves ``response_id`` first; ``bill_name`` identifies that bill in the counter store.
    """

    target: Target
    model_call: int
    span_id: str
    started: float
    reason: AttemptReason = "first"
    lost_hedge: bool = False
    round: int = 0
    is_replaced: bool = False
    meter: Meter = field(default_factory=Meter)
    sent_at: float | None = None
    response_at: float | None = None
    finished: bool = False
    ended: float | None = None
    status: int | None = None
    error: str | None = None
    cause: ErrorCause | None = None
    system_text: str | None = None
    findings: tuple[errors.UpstreamFinding, ...] = ()
    remaining: Mapping[str, int] = field(default_factory=dict)
    max_output_tokens: int = 0
    bill: Bill | None = None
    is_billed: bool | None = None
    response_id: BoundedText | None = None
    bill_name: str | None = None

    @property
    def is_abandoned_after_sending(self) -> bool:
        """True if the upstream had the request when it timed out or was canceled."""
        return self.sent_at is not None and (self.error == "cancelled" or self.error in TIMED_OUT)

    @property
    def has_upstream_worked(self) -> bool:
        """True if the upstream worked on the request: it responded, or was abandoned."""
        return self.response_at is not None or self.is_abandoned_after_sending


@frozen
class Skip:
    """A target that was skipped, because its circuit is open or it is busy."""

    target: Target
    reason: str


SpendUse = Literal["useful", "retried", "abandoned", "blocked", "shadow", "cached"]
LossReason = Literal[
    "client_left", "refused", "upstream_broke", "guard", "retry", "hedge", "stopped"
]


class AttemptResult(NamedTuple):
    """Result of an attempt, and the use of its cost.

    ``served``: the client got its response. ``loss`` is None if some client received all of it.
    """

    served: bool
    use: SpendUse
    loss: LossReason | None


USEFUL_ATTEMPT = AttemptResult(served=True, use="useful", loss=None)


def build_attempt_results(
    attempts: Sequence[Attempt], serving: Mapping[int, Attempt], outcome: CallOutcome
) -> list[AttemptResult]:
    """Return the result of each attempt for a call with this outcome.

    ``serving`` has the attempts whose responses are used, by model call.
    """
    results: list[AttemptResult] = []
    for index, attempt in enumerate(attempts):
        served = attempt.model_call in serving and serving[attempt.model_call] is attempt
        if served and outcome == "success" and attempt.error is None and not attempt.is_replaced:
            results += (USEFUL_ATTEMPT,)
            continue
        use = classify_cost_use(attempts, index, outcome, served=served)
        results.append(AttemptResult(served, use, get_loss_reason(attempt, use, outcome)))
    return results


def classify_cost_use(
    attempts: Sequence[Attempt], index: int, outcome: CallOutcome, *, served: bool
) -> SpendUse:
    """Return the use of the cost of the attempt with this index.

    ``useful``: the client received the complete response. ``blocked``: a guard blocked or replaced
    the response. ``retried``: it failed and another one followed. ``abandoned``: otherwise.
    """
    attempt = attempts[index]
    if attempt.is_replaced:
        return "blocked"
    if served:
        if outcome == "blocked":
            return "blocked"
        return "useful" if attempt.error is None and outcome == "success" else "abandoned"
    followed = any(
        later.model_call == attempt.model_call
        and later.round == attempt.round
        and later.reason in ("retry", "fallback")
        for later in attempts[index + 1 :]
    )
    return "retried" if followed and not attempt.lost_hedge else "abandoned"


def get_loss_reason(attempt: Attempt, use: SpendUse, outcome: CallOutcome) -> LossReason | None:
    """Return the reason why no client received the complete response of an attempt.

    None if one did, or if the request was invalid and nothing was used. ``retry``: another attempt
    followed. ``stopped``: the proxy ended it. ``refused``: the request was invalid.
    """
    if use != "abandoned":
        return LOSS_OF_USE.get(use)
    if attempt.lost_hedge:
        return "hedge"
    if attempt.error is None or attempt.error == "cancelled":
        return LOSS_OF_OUTCOME[outcome]
    cause = LOSS_OF_ERROR.get(attempt.error, "upstream_broke")
    return None if cause == "refused" and not attempt.has_upstream_worked else cause


LOSS_OF_USE: Mapping[SpendUse, LossReason] = {"blocked": "guard", "retried": "retry"}
LOSS_OF_ERROR: Mapping[str, LossReason] = {
    errors.InvalidField.code: "refused",
    errors.BadRequest.code: "refused",
    errors.GuardBlocked.code: "guard",
    errors.RequestTimeout.code: "client_left",
    errors.RequestTooLarge.code: "refused",
    errors.UpstreamRejected.code: "refused",
}
"""Loss by an attempt's error code. All other codes are the upstream's fault."""
LOSS_OF_OUTCOME: Mapping[CallOutcome, LossReason] = {
    "success": "hedge",
    "client_error": "client_left",  # the client's own timeout ended the call
    "limited": "client_left",
    "blocked": "guard",
    "upstream_error": "upstream_broke",
    "timeout": "upstream_broke",
    "proxy_error": "stopped",
    "client_abort": "client_left",
}


MAX_COST = 2**53  # nano-USD; a higher cost is a wrong report and counts as unknown


class BilledAttempt(NamedTuple):
    """An attempt with its result and its bill. The bill is None if no model worked on it."""

    attempt: Attempt
    result: AttemptResult
    bill: Bill | None


@frozen
class CacheSavings:
    """Usage and cost that a cached or shared response saved."""

    tokens: Tokens
    cost: int | None


@frozen
class BudgetCharge:
    """Amount that a call charged to one counter of a budget."""

    budget: str
    scope: str
    cost: int


@frozen
class Billing:
    """Bills of one call."""

    bills: Sequence[Bill]

    @property
    def usage_source(self) -> Source:
        """Source of the token counts: the least certain one of all attempts that used tokens."""
        source: Source = "none"
        for bill in self.bills:
            if bill.usage.source == "unknown":
                return "unknown"
            if source != "partial_estimate" and bill.usage.source != "none":
                source = bill.usage.source
        return source

    @property
    def cost(self) -> int | None:
        """Cost of all attempts. None if one of them has no known price."""
        total = 0
        for bill in self.bills:
            if bill.cost is None:
                return None
            total += bill.cost
        return total

    @property
    def tokens(self) -> Tokens:
        tokens = self.bills[0].usage.tokens if self.bills else Tokens()
        for bill in self.bills[1:]:
            tokens += bill.usage.tokens
        return tokens


def sum_lost_cost(attempts: Sequence[BilledAttempt]) -> int | None:
    """Return the cost of responses that no client received completely, None if unknown."""
    total = 0
    for _, result, bill in attempts:
        if bill is not None and result.loss is not None:
            if bill.cost is None:
                return None
            total += bill.cost
    return total


def compute_bill(
    attempt: Attempt,
    *,
    call: Call | None,
    hidden_output: Callable[[Attempt], HiddenOutput] | None,
    billed_at: datetime,
) -> Bill:
    """Return the bill of an attempt, from reported or estimated usage, priced at ``billed_at``.

    ``hidden_output`` estimates output that the model may have produced without sending it. An
    attempt without usage costs nothing. Unknown usage has no known cost, except at free targets.
    """
    usage = attempt.meter.compute_usage(
        lambda: estimate_body_quarters(call.body, call.field_quarters) if call else 0,
        finished=attempt.finished,
        hidden_output=lambda: hidden_output(attempt) if hidden_output else NOTHING_HIDDEN,
    )
    prices = attempt.target.prices
    undated = len(prices) == 1 and prices[0].since is None
    price = prices[0] if undated else find_price_on(prices, billed_at.date())
    parts: Mapping[str, int] | None = {}
    if usage.source == "unknown":
        parts = {} if price is not None and price.is_free else None
    elif usage.source != "none":
        parts = price.compute_cost_by_type(usage.tokens) if price is not None else None
    cost = None if parts is None else sum(parts.values())
    if cost is not None and cost > MAX_COST:
        cost = None
    return Bill(attempt.target, usage, cost, cost_by_type=parts or {})
