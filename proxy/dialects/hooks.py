"""What guards said of a call, as Portkey's clients read it: hook results, and two statuses.

A guard is a hook with one check. As at Portkey, a check that could not be made fails no hook, and
one that changed a text and let it pass has not failed either. 246 is a success with a failed hook;
446 is a hook that denies, whose error is the client's to handle.
"""

from __future__ import annotations

from proxy.types import Json
from proxy.types.guard import GuardResult, GuardResults, Stage

FAILED, DENIED = 246, 446


def hook_results(verdicts: GuardResults) -> Json:
    """Return the results of both stages."""

    def hooks(stage: Stage) -> list[Json]:
        return [_hook(result) for at, result in verdicts if at == stage]

    return {"before_request_hooks": hooks("input"), "after_request_hooks": hooks("output")}


def status(verdicts: GuardResults, *, flagged: bool) -> int:
    """Return the status of an answer: one that passes although a hook has failed has its own, be
    it a hook of the upstream. An answer that a hook ends once some of it is shown tells it then."""
    holds = not flagged and all(
        _holds(result) or (stage == "output" and result.verdict == "blocked" and not result.shadow)
        for stage, result in verdicts
    )
    return 200 if holds else FAILED


def _holds(result: GuardResult) -> bool:
    return result.verdict not in ("flagged", "blocked", "routed")


def _hook(result: GuardResult) -> Json:
    masked = result.verdict == "masked"
    took_ms = round(result.seconds * 1000, 3)
    return {
        "verdict": _holds(result),
        "id": result.guard,
        "type": "guardrail",
        "deny": result.action == "block",
        "async": False,
        "transformed": masked,
        "skipped": result.verdict == "not_applicable",
        "execution_time": took_ms,
        "checks": [_check(result, transformed=masked, took_ms=took_ms)],
    }


def _check(result: GuardResult, *, transformed: bool, took_ms: float) -> Json:
    check: Json = {
        "id": f"headrace.{result.kind}",
        "verdict": _holds(result) and result.error is None,
        "data": {"findings": dict(result.findings), "score": round(result.score, 3)},
        "transformed": transformed,
        "execution_time": took_ms,
    }
    if result.error is not None:
        check["error"] = {"name": "Check error", "message": "The guard could not inspect the text."}
    return check
