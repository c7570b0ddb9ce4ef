"""Attempts that are billable, and reasons of losses."""

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
    error: str | None = None, *, lost_hedge: bool = False, response_at: float | None = None
) -> Attempt:
    return Attempt(
        TARGET, 0, "1" * 16, 0.0, error=error, lost_hedge=lost_hedge, response_at=response_at
    )


@for_each(
    ("use", "result", "outcome", "reason"),
    [
        ("useful", attempt(), "success", None),
        ("cached", attempt(), "success", None),
        ("shadow", attempt(), "success", None),
        ("blocked", attempt(), "blocked", "guard"),
        ("blocked", attempt(), "success", "guard"),
        ("retried", attempt("upstream_unavailable"), "success", "retry"),
        ("abandoned", attempt("cancelled", lost_hedge=True), "success", "hedge"),
        ("abandoned", attempt("cancelled", lost_hedge=True), "client_abort", "hedge"),
        ("abandoned", attempt("cancelled"), "client_abort", "client_left"),
        ("abandoned", attempt(), "client_abort", "client_left"),
        ("abandoned", attempt("upstream_unavailable"), "client_abort", "upstream_broke"),
        ("abandoned", attempt("upstream_idle_timeout"), "timeout", "upstream_broke"),
        ("abandoned", attempt("request_timeout"), "client_error", "client_left"),
        ("abandoned", attempt("upstream_refused"), "client_error", None),
        ("abandoned", attempt("upstream_refused", response_at=2.0), "client_error", "refused"),
        ("abandoned", attempt("upstream_not_found"), "upstream_error", "upstream_broke"),
        ("abandoned", attempt("invalid_value"), "client_error", None),
        ("abandoned", attempt("guardrail_blocked"), "blocked", "guard"),
        ("abandoned", attempt("upstream_unavailable"), "client_error", "upstream_broke"),
        ("abandoned", attempt("cancelled"), "upstream_error", "upstream_broke"),
        ("abandoned", attempt("cancelled"), "proxy_error", "stopped"),
        ("abandoned", attempt("cancelled"), "blocked", "guard"),
    ],
)
def test_loss_has_one_reason(
    use: SpendUse, result: Attempt, outcome: CallOutcome, reason: LossReason | None
) -> None:
    assert loss_reason(result, use, outcome) == reason


def test_each_outcome_has_a_loss_reason() -> None:
    assert set(LOSS_OF_OUTCOME) == set(get_args(CallOutcome))


def test_sent_attempt_is_billable() -> None:
    result = attempt()
    assert not result.is_billable
    result.error = "cancelled"
    assert not result.is_billable  # its request was not sent
    result.sent_at = 1.0
    assert result.is_billable
    for result.error in TIMED_OUT:
        assert result.is_billable
    result.error = "upstream_unavailable"
    assert not result.is_billable
    result.response_at = 2.0
    assert result.is_billable
