"""Attempts: which are counted, and why nobody got the answer of one."""

from __future__ import annotations

from typing import get_args

from proxy.call.attempts import (
    LOSS_OF_OUTCOME,
    TIMED_OUT,
    Attempt,
    CallOutcome,
    LossReason,
    SpendUse,
    loss_reason,
)
from proxy.types import Target, Upstream
from tests.for_each import for_each

TARGET = Target(Upstream("up", "openai", "http://127.0.0.1:9"), "m")


def attempt(
    error: str | None = None, *, losses: bool = False, started_at: float | None = None
) -> Attempt:
    return Attempt(TARGET, 0, "1" * 16, 0.0, error=error, lost_hedge=losses, response_at=started_at)


@for_each(
    ("use", "result", "outcome", "why"),
    [
        ("useful", attempt(), "success", None),
        ("cached", attempt(), "success", None),
        ("shadow", attempt(), "success", None),
        ("blocked", attempt(), "blocked", "guard"),
        ("blocked", attempt(), "success", "guard"),
        ("retried", attempt("upstream_unavailable"), "success", "retry"),
        ("abandoned", attempt("cancelled", losses=True), "success", "hedge"),
        ("abandoned", attempt("cancelled", losses=True), "client_abort", "hedge"),
        ("abandoned", attempt("cancelled"), "client_abort", "client_left"),
        ("abandoned", attempt(), "client_abort", "client_left"),
        ("abandoned", attempt("upstream_unavailable"), "client_abort", "upstream_broke"),
        ("abandoned", attempt("upstream_idle_timeout"), "timeout", "upstream_broke"),
        ("abandoned", attempt("request_timeout"), "client_error", "client_left"),
        ("abandoned", attempt("upstream_refused"), "client_error", None),
        ("abandoned", attempt("upstream_refused", started_at=2.0), "client_error", "refused"),
        ("abandoned", attempt("upstream_not_found"), "upstream_error", "upstream_broke"),
        ("abandoned", attempt("invalid_value"), "client_error", None),
        ("abandoned", attempt("guardrail_blocked"), "blocked", "guard"),
        ("abandoned", attempt("upstream_unavailable"), "client_error", "upstream_broke"),
        ("abandoned", attempt("cancelled"), "upstream_error", "upstream_broke"),
        ("abandoned", attempt("cancelled"), "proxy_error", "stopped"),
        ("abandoned", attempt("cancelled"), "blocked", "guard"),
    ],
)
def test_has_one_cause(
    use: SpendUse, result: Attempt, outcome: CallOutcome, why: LossReason | None
) -> None:
    assert loss_reason(result, use, outcome) == why


def test_every_outcome_has_a_cause_for_what_was_abandoned() -> None:
    assert set(LOSS_OF_OUTCOME) == set(get_args(CallOutcome))


def test_what_an_upstream_was_at_work_for_is_counted() -> None:
    result = attempt()
    assert not result.is_billable
    result.error = "cancelled"
    assert not result.is_billable  # its request had not left
    result.sent_at = 1.0
    assert result.is_billable
    for result.error in TIMED_OUT:
        assert result.is_billable
    result.error = "upstream_unavailable"
    assert not result.is_billable
    result.response_at = 2.0
    assert result.is_billable
