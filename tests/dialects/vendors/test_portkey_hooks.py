"""Verdicts as Portkey's hook results, and the status that they make."""

from __future__ import annotations

from typing import Any

from proxy.dialects.vendors.portkey import HOOK_DENIED, HOOK_FAILED, hook_results, status
from proxy.types.guard import Action, GuardResult, Stage
from tests.for_each import for_each


def said(
    verdict: Any, action: Action = "flag", stage: Stage = "input", error: str | None = None
) -> tuple[Stage, GuardResult]:
    results = {} if verdict in ("passed", "failed", "not_applicable") else {"email": 1}
    return stage, GuardResult(
        "mails", verdict, False, results, 0.5, 9, 1, 0.002, error, "pii", action
    )


def test_a_guard_is_a_hook_with_one_check() -> None:
    results = hook_results([said("flagged"), said("passed", "block", "output")])

    [failed], [pending] = results["before_request_hooks"], results["after_request_hooks"]
    assert (failed["id"], failed["verdict"], failed["deny"]) == ("mails", False, False)
    assert (pending["verdict"], pending["deny"], pending["transformed"]) == (True, True, False)
    assert failed["checks"] == [
        {
            "id": "headrace.pii",
            "verdict": False,
            "data": {"findings": {"email": 1}, "score": 0.5},
            "transformed": False,
            "execution_time": 2.0,
        }
    ]


def test_a_text_that_was_masked_has_passed_transformed() -> None:
    [hook] = hook_results([said("masked", "mask")])["before_request_hooks"]

    assert (hook["verdict"], hook["transformed"]) == (True, True)


def test_a_check_that_could_not_be_made_fails_no_hook() -> None:
    [hook] = hook_results([said("failed", error="ZeroDivisionError")])["before_request_hooks"]

    [check] = hook["checks"]
    assert (hook["verdict"], check["verdict"]) == (True, False)
    assert "ZeroDivisionError" not in str(check)


@for_each(
    ("verdicts", "code"),
    [
        ([], 200),
        ([said("passed"), said("not_applicable"), said("failed"), said("masked", "mask")], 200),
        ([said("passed"), said("flagged")], HOOK_FAILED),
        ([said("flagged", stage="output")], HOOK_FAILED),
    ],
)
def test_failed_hook_has_its_own_status(verdicts: Any, code: int) -> None:
    assert status(verdicts, flagged=False) == code
    assert status(verdicts, flagged=True) == HOOK_FAILED
    assert HOOK_DENIED == 446


def test_a_block_ends_a_stream_that_has_begun_and_one_in_shadow_lets_it_pass() -> None:
    stage, block = said("blocked", "block", "output")

    assert status([(stage, block)], flagged=False) == 200
    assert status([(stage, block._replace(shadow=True))], flagged=False) == HOOK_FAILED
