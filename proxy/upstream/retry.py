"""Failures of attempts: delay of a retry, safety of a repeat, and the failure for the client."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proxy.call.attempts import Attempt
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
from proxy.types import Retry

NOT_SENT = (CircuitOpen, UpstreamBusy)
NOT_RETRIED = (ResponseTooLarge, *NOT_SENT)
UNDONE = (InvalidField, *NOT_SENT, UpstreamNotFound, UpstreamRejectedKey)
"""Failures before any work: not sent, or refused for our credential, account, model or path."""
UNDONE_STATUSES = frozenset({429, 503, 529})


def retry_cause(failure: ProxyError) -> int | str | None:
    """Return the failure's name in the policy's ``on``, None if no retry can help."""
    if isinstance(failure, NOT_RETRIED) or not isinstance(failure, UpstreamError):
        return None
    if isinstance(failure, UpstreamTimeout):
        return {"upstream_connect_timeout": "connect", "upstream_total_timeout": None}.get(
            failure.code, "timeout"
        )
    if isinstance(failure, UpstreamInvalid):
        return "invalid"
    return failure.upstream_status or "connect"


def retry_delay(
    retry: Retry | None, failure: ProxyError, attempts: int, random: Callable[[], float]
) -> float | None:
    """Return the seconds before the next attempt at the same target, None for no retry.

    Draws between 0 and a bound that doubles with each of ``attempts``, and at least what the
    upstream requests. An upstream that requests more than the policy allows is not retried.
    """
    if retry is None or attempts > retry.times or retry_cause(failure) not in retry.on:
        return None
    if isinstance(failure, UpstreamUnavailable) and failure.should_retry is False:
        return None
    requested_s = failure.retry_after_s or 0.0
    if requested_s > retry.max_wait:
        return None
    max_s = min(retry.max_wait, retry.wait * 2.0 ** (attempts - 1))
    return max(requested_s, random() * max_s)


def is_undone(failure: ProxyError, attempts: list[Attempt]) -> bool:
    """Return True if no upstream can have done any work for the last attempt.

    Such a call may be repeated even if it must be executed only once.
    """
    if isinstance(failure, UNDONE):
        return True
    return attempts[-1].sent_at is None or attempts[-1].status in UNDONE_STATUSES


def most_useful(failures: Sequence[ProxyError]) -> ProxyError:
    """Return the failure that helps the client most, of the failures in the order of targets.

    1. The first that blames the request: only another request helps.
    2. The last that a retry may avoid.
    3. Of targets that were not requested, the one with the shortest wait.
    4. The last that no client can avoid.
    5. A request that the target's dialect cannot express, because other targets may.
    """
    for failure in failures:
        if failure.is_final:
            return failure
    sent = [error for error in failures if not isinstance(error, (*NOT_SENT, InvalidField))]
    retryable = [error for error in sent if error.should_retry is not False]
    if retryable:
        return retryable[-1]
    not_sent = [error for error in failures if isinstance(error, NOT_SENT)]
    if not_sent:
        return min(not_sent, key=lambda error: error.retry_after_s or 0.0)
    return (sent or failures)[-1]
