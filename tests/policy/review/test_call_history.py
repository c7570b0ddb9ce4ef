"""Explanations of past calls, which are bounded and contain no texts."""

from __future__ import annotations

import sys
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proxy.call.record import Record, TraceIds
from proxy.errors import Unauthorized
from proxy.limits.kinds import KINDS
from proxy.money.usage import NANO_PER_USD
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review import MAX_CALLS
from proxy.policy.review.call_history import CallHistory, strip_call
from proxy.policy.review.decision import CallExplanation
from proxy.types import Call, RequestHead, Secret
from proxy.types.guard import GuardResult, Verdict
from proxy.types.limit import Claim, Limit, build_limit_decision
from proxy.types.windows import Calendar
from tests.conftest import KEY, policies_for
from tests.policy.decisions import decide, read_text

HEAD = RequestHead(
    "openai",
    "chat",
    "/v1/chat/completions",
    "req_1",
    digest=Secret(KEY).digest,
    headers={"authorization": f"Bearer {KEY}", "x-region": "eu"},
)
CALL = Call(
    HEAD,
    {"model": "support-chat", "messages": [{"role": "user", "content": "words"}], "n": 1},
    requested_models=("support-chat",),
)


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    return read_text(tmp_path, policies_for("http://127.0.0.1:9"), {"UPSTREAM_KEY": "sk"})


def record_of(snapshot: Snapshot | None, call: Call | None = CALL, request: str = "r") -> Record:
    ids = TraceIds("a" * 32, "b" * 16, "c" * 16)
    record = Record(ids, 0.0, datetime(2026, 1, 1, tzinfo=UTC), lambda: 0.0)
    record.set_head(replace(HEAD, request_id=request))
    if snapshot is not None:
        record.revision = snapshot.revision
    if snapshot is not None and call is not None:
        record.key, record.call = "support-widget", call
        record.plan = decide(snapshot, call)
    record.status = 200
    return record


def restore_stored(call: Call, *headers: str) -> Call:
    """Return a call as an explanation gets it from the history."""
    stripped = strip_call(call, frozenset(headers))
    assert stripped is not None
    return stripped.restore()


def explain_record(record: Record, snapshot: Snapshot | None) -> CallExplanation:
    """Return the explanation of the call of a record, stored as the only one."""
    past = CallHistory(lambda revision: snapshot)
    past.emit(record)
    explanation = past.explain("r")
    assert explanation is not None
    return explanation


def result(guard: str, verdict: Verdict, **options: Any) -> GuardResult:
    return GuardResult(
        guard=guard,
        verdict=verdict,
        findings=options.pop("findings", {}),
        shadow=options.pop("shadow", False),
        score=1.0,
        bytes=9,
        fields=1,
        seconds=0.0,
        **options,
    )


def test_guard_with_findings_is_explained(snapshot: Snapshot) -> None:
    record = record_of(snapshot)
    results = {"email": 2, "iban": 1}
    record.add_guard_results(
        "input", [result("pii", "masked", findings=results), result("code", "passed")]
    )
    record.add_guard_results(
        "input", [result("secrets", "blocked", findings={"pem": 1}, shadow=True)]
    )
    record.add_guard_results("output", [result("judge", "failed", error="timeout")])

    explanation = explain_record(record, snapshot)

    assert [(part.result, part.reason) for part in explanation.decisions[-1].parts] == [
        ("input pii masked", "email: 2, iban: 1"),
        ("input secrets blocked (shadow mode)", "pem: 1"),
        ("output judge failed", "timeout"),
    ]


def test_stored_call_has_no_texts_and_no_key() -> None:
    stored = restore_stored(CALL, "x-region", "x-not-there")

    assert stored.body == {"n": 1}
    assert stored.head.headers == {"x-region": "eu"}
    assert stored.head.digest is None
    assert "words" not in repr(stored)


def test_stored_call_references_no_target(snapshot: Snapshot) -> None:
    record = record_of(snapshot)
    target = next(target for _, target in snapshot.deployments["resilient"].targets)
    withheld = sys.getrefcount(target)
    record.start_attempt(target, 0).ended = 1.0
    record.add_skip(target, "busy")
    explanation = explain_record(record, snapshot)
    del record

    assert sys.getrefcount(target) == withheld
    assert [part.result for part in explanation.decisions[-1].parts] == [
        "openai/primary returned status None",
        "openai/primary skipped",
    ]


def test_long_parameters_are_not_stored() -> None:
    config = {"user": "u" * 257, "reasoning_effort": ["x"], "seed": 7, "n": None}
    stored = restore_stored(replace(CALL, body={**CALL.body, **config}))

    assert stored.body == {"seed": 7}


def test_only_listed_fields_of_a_call_are_stored() -> None:
    """A field that is added to ``Call`` is not stored unless it is listed."""
    long = "x" * 100_000
    head = replace(HEAD, echo=(("x-trace", long),), warnings=(long,), via=(long,), parent=None)
    call = replace(
        CALL,
        head=head,
        body={**CALL.body, long: 1},
        field_aliases=frozenset({long}),
        field_quarters={long: 1},
        warnings=(long,),
    )

    assert restore_stored(call) == restore_stored(CALL)


def test_too_large_call_is_not_explained(snapshot: Snapshot) -> None:
    record = record_of(snapshot)
    record.call = replace(
        CALL, requested_models=tuple(f"{number}" + "m" * 250 for number in range(1000))
    )

    explanation = explain_record(record, snapshot)

    assert explanation.decisions[0].reason == "the request is too large to be kept"
    assert explanation.decisions[-1].result == "success, status 200"


def test_repeated_id_finds_the_newest_call(snapshot: Snapshot) -> None:
    past = CallHistory(lambda revision: snapshot)
    for request in ("again", *(f"r-{number}" for number in range(MAX_CALLS - 1)), "again", "last"):
        past.emit(record_of(snapshot, request=request))

    assert past.explain("again") is not None
    assert past.explain("r-0") is None


def test_key_cannot_replace_the_id_of_another_key(snapshot: Snapshot) -> None:
    past = CallHistory(lambda revision: snapshot)
    mine, other_item, stranger = (record_of(snapshot, request="mine") for _ in range(3))
    other_item.key, other_item.status = "search-box", 429
    stranger.key, stranger.status = None, 401
    for record in (mine, other_item, stranger):
        past.emit(record)

    ended = {}
    for caller in ("support-widget", "search-box", "nobody", None):
        explanation = past.explain("mine", caller)
        ended[caller] = explanation.decisions[-1].result if explanation else None
    assert past.list_callers("mine") == ["search-box", "support-widget"]
    assert ended == {
        "support-widget": "success, status 200",
        "search-box": "success, status 429",
        "nobody": None,
        None: "success, status 429",
    }


def test_only_recent_calls_are_stored(snapshot: Snapshot) -> None:
    past = CallHistory(lambda revision: snapshot)
    for number in range(MAX_CALLS + 5):
        past.emit(record_of(snapshot, request=f"r-{number}"))

    assert past.explain("r-4") is None
    explanation = past.explain("r-5")
    assert explanation is not None
    assert explanation.decisions[-1].result == "success, status 200"


def test_call_of_unavailable_revision_is_reported(snapshot: Snapshot) -> None:
    explanation = explain_record(record_of(snapshot), None)

    assert explanation.revision == snapshot.revision
    assert explanation.decisions[0].reason == "the policy revision is no longer in memory"


def test_call_with_unknown_key_is_explained(snapshot: Snapshot) -> None:
    record = record_of(snapshot, call=None)
    record.error = Unauthorized()

    explanation = explain_record(record, snapshot)

    assert explanation.decisions[0].result == "unknown"
    assert explanation.decisions[-1].reason == "The virtual key is missing or invalid."


def test_unknown_id_is_reported() -> None:
    assert CallHistory(lambda revision: None).explain("nothing") is None


def test_past_call_shows_claims_with_money_in_usd(snapshot: Snapshot) -> None:
    month = Limit("month", KINDS["usd"], 500 * NANO_PER_USD, Calendar("month"))
    rate = Limit("rate", KINDS["tokens"], 9000, 60)
    claims = (Claim(month, "all", 1_350), Claim(rate, "all", 90))
    record = record_of(snapshot)
    record.limit_decision = build_limit_decision(
        claims, (1_234_567_891_350, 1000, 0, 0, 0, 0, 0, 0)
    )

    explanation = explain_record(record, snapshot)

    assert [part.reason for part in explanation.decisions[-1].parts] == [
        "this call reserved 0.00000135 USD; 1234.56789135 USD of 500 USD used",
        "this call reserved 90; 0 of 9000 used",
    ]


@pytest.mark.parametrize(
    ("waits", "shadow", "words"),
    [
        ((0, 0), False, ["calls admitted", "tokens admitted"]),
        ((9, 0), False, ["calls rejected the call", "tokens not exceeded"]),
        ((9, 0), True, ["calls would reject (shadow mode)", "tokens admitted"]),
    ],
)
def test_each_limit_shows_its_decision(
    waits: tuple[int, int], shadow: bool, words: list[str], snapshot: Snapshot
) -> None:
    calls = Limit("calls", KINDS["requests"], 10, 60, shadow=shadow)
    limits = calls, Limit("tokens", KINDS["tokens"], 900, 60)
    record = record_of(snapshot)
    claims = [Claim(limit, "all", 1) for limit in limits]
    readings = [number for wait in waits for number in (0, 0, wait, 0)]
    record.limit_decision = build_limit_decision(claims, readings)

    explanation = explain_record(record, snapshot)

    assert [part.result for part in explanation.decisions[-1].parts] == words


@pytest.mark.parametrize("call", [None, CALL])
def test_all_fields_of_a_past_call_are_set(snapshot: Snapshot, call: Call | None) -> None:
    history = CallHistory(lambda _: snapshot)
    history.emit(record_of(snapshot, call))

    (past,) = [*history._calls.values(), *history._unauthorized.values()]
    assert [item.name for item in fields(past) if not hasattr(past, item.name)] == []
    assert (past.call is None) == (call is None)
