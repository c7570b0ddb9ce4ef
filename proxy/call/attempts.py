"""The attempts of a call: one request to one upstream each, what it used, cost and came to.

Moments are seconds of ``time.monotonic``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from proxy.call.meter import Meter
from proxy.errors import (
    BadRequest,
    GuardBlocked,
    InvalidField,
    RequestTimeout,
    RequestTooLarge,
    UpstreamFinding,
    UpstreamRejected,
    UpstreamTimeout,
)
from proxy.errors.causes import ErrorCause
from proxy.errors.words import Word
from proxy.money.usage import Price, Usage
from proxy.runtime.frozen import frozen
from proxy.types import Target

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


TIMED_OUT = frozenset({RequestTimeout.code, *UpstreamTimeout.codes})
"""How an attempt is named whose time was over: the client's own, or that of a phase."""


@frozen
class Bill:
    """What one attempt used and what it cost."""

    target: Target
    usage: Usage
    cost: int | None
    price: Price | None = None

    def parts(self) -> dict[str, int]:
        """Return the nano-USD by what they were for; they add up to ``cost``."""
        return self.price.parts(self.usage.tokens) if self.price else {}


@dataclass(slots=True)
class Attempt:
    """One request to one upstream, from connecting to the last byte.

    ``sent_at`` is the moment the upstream had the whole request, ``response_at`` the one its
    response head said that an answer follows, and ``finished`` says that it came to its end.
    ``lost_hedge`` is set when another attempt of a hedge was faster. Before its ``round``, from 0,
    a guard has so often wanted another answer, and ``is_replaced`` is set when one wanted another
    in its place. ``findings`` are what guards of the upstream said of the call. ``most_answered``
    are the tokens that all answers to its request may have. Its ``bill`` is kept once nothing can
    change it but more of its answer. ``cause`` and ``system_text`` say why its connection failed.
    ``is_billed`` is None where its endpoint says whether there is one: what a response made in the
    background has used is billed to the attempt that first shows it, of all that show
    ``response_id``; ``bill_name`` is the name by which the store of counters knows that bill.
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
    findings: tuple[UpstreamFinding, ...] = ()
    remaining: Mapping[str, int] = field(default_factory=dict)
    most_answered: int = 0
    bill: Bill | None = None
    is_billed: bool | None = None
    response_id: Word | None = None
    bill_name: str | None = None

    @property
    def is_abandoned(self) -> bool:
        """True if the upstream had the request, and its time was over or nobody waited any more."""
        return self.sent_at is not None and (self.error == "cancelled" or self.error in TIMED_OUT)

    @property
    def is_billable(self) -> bool:
        """True if the upstream was at work, so that what it used is counted: it said that an
        answer follows, or was given up while it may have been at one."""
        return self.response_at is not None or self.is_abandoned


@frozen
class Skip:
    """A target that was not asked, and why: its circuit is open, or it is busy."""

    target: Target
    reason: str


SpendUse = Literal["useful", "retried", "abandoned", "blocked", "shadow", "cached"]
LossReason = Literal[
    "client_left", "refused", "upstream_broke", "guard", "retry", "hedge", "stopped"
]


class AttemptResult(NamedTuple):
    """What became of an attempt, and so of its money.

    ``served`` says that its answer was the one that was used, and ``loss`` why nobody got the
    answer to its end, None where somebody did.
    """

    served: bool
    use: SpendUse
    loss: LossReason | None


USEFUL = AttemptResult(served=True, use="useful", loss=None)


def attempt_results(
    attempts: Sequence[Attempt], serving: Mapping[int, Attempt], outcome: CallOutcome
) -> list[AttemptResult]:
    """Return what became of each attempt of a call that ended so, or would if it ended now.
    ``serving`` has the attempt whose answer is used, leg by leg."""
    found: list[AttemptResult] = []
    for number, attempt in enumerate(attempts):
        served = attempt.model_call in serving and serving[attempt.model_call] is attempt
        if served and outcome == "success" and attempt.error is None and not attempt.is_replaced:
            found += (USEFUL,)
            continue
        use = money(attempts, number, outcome, served=served)
        found.append(AttemptResult(served, use, loss(attempt, use, outcome)))
    return found


def money(
    attempts: Sequence[Attempt], number: int, outcome: CallOutcome, *, served: bool
) -> SpendUse:
    """Return what became of the money of the attempt of that number, from 0.

    ``useful``: its answer was the client's, to the end. ``blocked``: a guard kept the answer back,
    be it that another was asked for. ``retried``: it failed, and another was asked in its place.
    ``abandoned``: nobody got its answer, or not to the end. The other words are for attempts that
    are made elsewhere.
    """
    attempt = attempts[number]
    if attempt.is_replaced:
        return "blocked"
    if served:
        if outcome == "blocked":
            return "blocked"
        return "useful" if attempt.error is None and outcome == "success" else "abandoned"
    followed = any(
        other.model_call == attempt.model_call
        and other.round == attempt.round
        and other.reason in ("retry", "fallback")
        for other in attempts[number + 1 :]
    )
    return "retried" if followed and not attempt.lost_hedge else "abandoned"


def loss(attempt: Attempt, use: SpendUse, outcome: CallOutcome) -> LossReason | None:
    """Return why nobody got the answer of an attempt to its end; None where somebody did, and where
    the request was at fault and nothing was used.

    ``retry`` is an attempt that failed and was followed by another, of this target or the next;
    ``stopped`` one that the proxy itself ended; ``refused`` one whose request was at fault.
    """
    if use != "abandoned":
        return LOSS_OF_USE.get(use)
    if attempt.lost_hedge:
        return "hedge"
    if attempt.error is None or attempt.error == "cancelled":
        return LOSS_OF_OUTCOME[outcome]
    cause = LOSS_OF_ERROR.get(attempt.error, "upstream_broke")
    return None if cause == "refused" and not attempt.is_billable else cause


LOSS_OF_USE: Mapping[SpendUse, LossReason] = {"blocked": "guard", "retried": "retry"}
LOSS_OF_ERROR: Mapping[str, LossReason] = {
    InvalidField.code: "refused",
    BadRequest.code: "refused",
    GuardBlocked.code: "guard",
    RequestTimeout.code: "client_left",
    RequestTooLarge.code: "refused",
    UpstreamRejected.code: "refused",
}
"""What an attempt's own error says of its loss; any other is the upstream's doing."""
LOSS_OF_OUTCOME: Mapping[CallOutcome, LossReason] = {
    "success": "hedge",
    "client_error": "client_left",  # its own time was over
    "limited": "client_left",
    "blocked": "guard",
    "upstream_error": "upstream_broke",
    "timeout": "upstream_broke",
    "proxy_error": "stopped",
    "client_abort": "client_left",
}
