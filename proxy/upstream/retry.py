"""Failures of attempts: when to ask again, at which target, and which failure the client gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.call.attempts import Attempt
from proxy.call.record import Record
from proxy.errors import (
    CircuitOpen,
    InvalidField,
    ProxyError,
    ResponseTooLarge,
    UpstreamBusy,
    UpstreamError,
    UpstreamInvalid,
    UpstreamNotFound,
    UpstreamRejectedKey,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from proxy.runtime.frozen import frozen
from proxy.types import Call, ModelCall, Plan, Retry

NOT_ASKED = (CircuitOpen, UpstreamBusy)
BEYOND_RETRIES = (ResponseTooLarge, *NOT_ASKED)
UNDONE = (InvalidField, *NOT_ASKED, UpstreamNotFound, UpstreamRejectedKey)
"""Requests that were not sent, or that an upstream refused before any work: for our credential,
our account, the model or the path."""
UNDONE_STATUSES = frozenset({429, 503, 529})
"""Statuses of upstreams that have not begun to work."""


@frozen
class AttemptContext:
    """One model call on its way through its targets."""

    plan: Plan
    call: Call
    record: Record
    leg: int
    model_leg: ModelCall

    def time_left(self) -> float:
        """Return the seconds that are left; 0 or less when another try is too late.

        All attempts together may take as long as the client, or the upstreams of the targets
        together, allow.
        """
        allowed = 0.0
        for target in self.model_leg.targets:
            allowed += target.upstream.timeouts.total
        if self.call.timeout_s is not None:
            allowed = min(allowed, self.call.timeout_s)
        return allowed - (self.record.now() - self.record.started)


def cause(failure: ProxyError) -> int | str | None:
    """Name a failure as the policy's ``on`` does; None for one that no retry can mend."""
    if isinstance(failure, BEYOND_RETRIES) or not isinstance(failure, UpstreamError):
        return None
    if isinstance(failure, UpstreamTimeout):
        return {"upstream_connect_timeout": "connect", "upstream_total_timeout": None}.get(
            failure.code, "timeout"
        )
    if isinstance(failure, UpstreamInvalid):
        return "invalid"
    return failure.upstream_status or "connect"


def next_delay(
    retry: Retry | None, failure: ProxyError, tries: int, draw: Callable[[], float]
) -> float | None:
    """Return the seconds to wait before the next try after ``tries``; None to go on elsewhere.

    The wait is drawn between nothing and a bound that doubles; what a target itself asks for is
    the least of it, and a target that asks for more than the policy allows is not waited for.
    ``draw`` returns a number from 0 up to 1.
    """
    if retry is None or tries > retry.times or cause(failure) not in retry.on:
        return None
    if isinstance(failure, UpstreamUnavailable) and failure.should_retry is False:
        return None  # the upstream says so, or the account has no credit
    asked = failure.retry_after_s or 0.0
    if asked > retry.max_wait:
        return None
    bound = min(retry.max_wait, retry.wait * 2.0 ** (tries - 1))
    return max(asked, draw() * bound)


def is_untaken(failure: ProxyError, attempts: list[Attempt]) -> bool:
    """Return True if no upstream can have done any work for the last attempt.

    Either the upstream says so, or it never received the whole request. Such a call may go
    elsewhere even if it must be sent only once.
    """
    if isinstance(failure, UNDONE):
        return True
    return attempts[-1].sent_at is None or attempts[-1].status in UNDONE_STATUSES


def most_useful(failures: Sequence[ProxyError]) -> ProxyError:
    """Return which of the failures of one call, in the order of its targets, helps a client most.

    It is the first by which an upstream finds the request itself at fault: nothing but another
    request helps. Else the last that another try may not meet; of targets that were not asked the
    one with the shortest wait; the last that no client can mend. That a target cannot be asked such
    a thing comes last of all, as any other of them may do it later.
    """
    for failure in failures:
        if failure.is_final:
            return failure
    asked = [error for error in failures if not isinstance(error, (*NOT_ASKED, InvalidField))]
    passing = [error for error in asked if error.should_retry is not False]
    if passing:
        return passing[-1]
    waits = [error for error in failures if isinstance(error, NOT_ASKED)]
    if waits:
        return min(waits, key=lambda error: error.retry_after_s or 0.0)
    return (asked or failures)[-1]
