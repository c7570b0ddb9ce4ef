"""Whether, and after which wait, a target is tried again."""

from __future__ import annotations

import pytest

from proxy.errors import (
    AnswerTooLarge,
    BadField,
    CircuitOpen,
    ProxyError,
    UpstreamBusy,
    UpstreamInvalid,
    UpstreamRefused,
    UpstreamRejectedKey,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from proxy.types import Retry
from proxy.upstream.retry import cause, next_delay
from tests.for_each import for_each

RETRY = Retry(times=3, on=frozenset({"connect", 429, 503}), wait=1.0, max_wait=3.0)


def unavailable(status: int | None, asked: float | None = None) -> UpstreamUnavailable:
    error = UpstreamUnavailable("x", upstream_status=status)
    error.retry_after_s = asked
    return error


@for_each(
    ("failure", "named"),
    [
        (unavailable(None), "connect"),
        (unavailable(503), 503),
        (UpstreamTimeout("connect"), "connect"),
        (UpstreamTimeout("first_byte"), "timeout"),
        (UpstreamTimeout("idle"), "timeout"),
        (UpstreamTimeout("total"), None),
        (UpstreamInvalid("x"), "invalid"),
        (AnswerTooLarge("x"), None),
        (UpstreamRefused("x", upstream_status=409), 409),
        (UpstreamRejectedKey("x", upstream_status=401), 401),
        (CircuitOpen(1), None),
        (UpstreamBusy(1), None),
        (BadField("n", "x"), None),
    ],
    ids=lambda each: str(each)[:20],
)
def test_every_failure_has_the_name_that_policies_use(
    failure: ProxyError, named: int | str | None
) -> None:
    assert cause(failure) == named


@pytest.mark.parametrize(("tries", "seconds"), [(1, 0.5), (2, 1.0), (3, 1.5)])
def test_the_wait_doubles_up_to_its_bound_and_is_drawn_within(tries: int, seconds: float) -> None:
    assert next_delay(RETRY, unavailable(503), tries, lambda: 0.5) == seconds


@for_each(
    "given",
    [
        (None, unavailable(503), 1),
        (RETRY, unavailable(503), 4),
        (RETRY, unavailable(500), 1),
        (RETRY, unavailable(429, asked=3.1), 1),
    ],
)
def test_nothing_is_waited_for_without_policy_tries_cause_or_patience(
    given: tuple[Retry | None, ProxyError, int],
) -> None:
    assert next_delay(*given, lambda: 0.5) is None


def test_what_a_target_asks_for_is_the_least_that_is_waited() -> None:
    assert next_delay(RETRY, unavailable(429, asked=2.5), 1, lambda: 0.5) == 2.5


def test_upstream_that_asks_for_no_retry_gets_none() -> None:
    failure = unavailable(429)
    failure.should_retry = False

    assert next_delay(RETRY, failure, 1, lambda: 0.5) is None
