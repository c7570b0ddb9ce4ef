"""Statuses and errors of responses, by the client's dialect."""

from __future__ import annotations

from proxy.dialects import DIALECTS
from proxy.dialects.writing import answer_status, refusal
from proxy.errors import GuardBlocked
from proxy.types.guard import GuardResult, GuardResults

MATCHES: GuardResults = [
    ("input", GuardResult("mails", "flagged", False, {"email": 1}, 1.0, 9, 1, 0.0, kind="pii")),
    ("output", GuardResult("quiet", "blocked", True, {"word": 1}, 1.0, 9, 1, 0.0, kind="keywords")),
]


def test_only_portkeys_clients_get_statuses_of_their_own() -> None:
    blocked = GuardBlocked("No.", guard="mails", kind="email")
    answers = {
        name: answer_status(dialect.client, MATCHES, flagged=False)
        for name, dialect in DIALECTS.items()
    }
    refusals = {
        name: refusal(dialect.client, blocked, "req_1", MATCHES)
        for name, dialect in DIALECTS.items()
    }

    assert (answers.pop("portkey"), set(answers.values())) == (246, {200})
    assert refusals["portkey"].body["error"]["type"] == "hooks_failed"
    assert refusals["portkey"].body["hook_results"]["before_request_hooks"]
    assert "message" not in refusals["enkrypt"].body
    detections = refusals["enkrypt"].body["enkrypt_policy_detections"]
    assert detections["input_guardrails"]["summary"] == {"pii": 1}
    assert (refusals.pop("portkey").status, {r.status for r in refusals.values()}) == (446, {400})
    assert refusals.pop("anthropic").body["error"] == {
        "type": "invalid_request_error",
        "message": "No.",
    }
    assert all(r.body["error"]["code"] == "guardrail_blocked" for r in refusals.values())


def test_what_is_only_in_shadow_changes_no_status() -> None:
    assert answer_status(DIALECTS["portkey"].client, MATCHES[1:], flagged=False) == 200
