"""Whether a failed request is tried again at the same target, and after which wait. Pure."""

from __future__ import annotations

from collections.abc import Callable

from proxy.errors import (
    AnswerTooLarge,
    CircuitOpen,
    ProxyError,
    UpstreamBusy,
    UpstreamError,
    UpstreamInvalid,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from proxy.types import Retry

BEYOND_RETRIES = (AnswerTooLarge, CircuitOpen, UpstreamBusy)


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
