"""Meaning of upstream statuses and error documents, and forwarded documents."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects import DIALECTS
from proxy.dialects.families import (
    EMBEDDINGS,
    FAMILIES,
    FAMILY_OF_ENDPOINT,
    choose_success_status,
    make_client_error_response,
)
from proxy.dialects.family import ReadOptions, WriteOptions
from proxy.dialects.statuses import (
    DEFAULT_STATUSES,
    DENIAL_CODES,
    ErrorBody,
    classify_error,
    classify_status,
    is_account_error,
    parse_error_body,
)
from proxy.errors import GuardBlocked, UpstreamInvalid
from proxy.money.usage import Tokens
from proxy.types import Call, Json, RequestHead
from proxy.types.events import Extension, Frame, ResponseStart, UsageReport
from tests.checked import OrderChecker
from tests.dialects.chat.test_writer import MATCHES
from tests.for_each import for_each

PER_MINUTE = "for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, "
TOO_LARGE = (
    f"Request too large {PER_MINUTE}Requested 50000. The input or output tokens must be reduced."
)
TOO_MANY = f"Rate limit reached {PER_MINUTE}Used 29000, Requested 2000. Please try again in 2s."


@given(st.integers(100, 599), st.sampled_from(sorted(DIALECTS)))
def test_every_status_has_a_meaning(status: int, dialect: str) -> None:
    statuses = DIALECTS[dialect].server.statuses
    meaning = classify_status(statuses, status)

    assert classify_status(statuses, 446) == ("denied" if dialect == "portkey" else "request")
    if 200 < status < 400:
        assert meaning == ("flagged" if (dialect, status) == ("portkey", 246) else "invalid")
    if meaning == "outage":
        assert status >= 500 or status in (408, 425, 429) or (dialect, status) == ("fireworks", 412)


@for_each(
    ("error", "meaning"),
    [
        (ErrorBody(code="guardrail_blocked"), "denied"),
        (ErrorBody(type="hooks_failed"), "outage"),  # only Portkey uses this type
        (ErrorBody(status=400), "request"),
        (ErrorBody(status=429), "outage"),
        (ErrorBody(status=429, message=TOO_LARGE), "request"),
        (ErrorBody(status=429, message=TOO_LARGE.partition(": ")[2]), "request"),
        (ErrorBody(status=429, message=TOO_MANY), "outage"),
        (ErrorBody(status=429, message="TPM: Limit 30000, Requested 2000."), "outage"),
        (ErrorBody(status=500, message=TOO_LARGE), "outage"),
        (ErrorBody(status=401), "credential"),
        (ErrorBody(type="invalid_request_error", status=400), "request"),
        (ErrorBody(type="server_error"), "outage"),
        (ErrorBody(), "outage"),
    ],
)
def test_error_body_decides_its_meaning(error: ErrorBody, meaning: str) -> None:
    assert classify_error(DEFAULT_STATUSES, DENIAL_CODES, error, error.status) == meaning


@for_each(
    ("data", "error"),
    [
        ({"error": {"message": "a", "code": "b", "type": "c", "param": "d"}}, ("a", "d", "b", "c")),
        ({"detail": "no such model"}, ("no such model", None, None, None)),
        ({"error": "overloaded"}, ("overloaded", None, None, None)),
        ({"status": "failure", "message": "m"}, ("m", None, None, None)),
        ({"error": {"message": 1, "param": [], "code": 7, "type": {}}}, (None,) * 4),
        ({"error": {"code": "a b", "type": "<x>"}}, (None,) * 4),
        ({"detail": [{"loc": ["body", "n"], "msg": "m"}]}, ("n: m", "n", None, None)),
        ({"detail": [{"loc": ["body", "a b"], "msg": "m"}]}, ("m", None, None, None)),
        ({"detail": [{"loc": "n", "msg": 5}, 7]}, (None,) * 4),
        ({"detail": [7]}, (None,) * 4),
        ([{"error": {"message": "a", "code": 400}}], ("a", None, None, None)),
        ([[{"error": "a"}]], (None,) * 4),
        ([], (None,) * 4),
        (None, (None,) * 4),
    ],
)
def test_error_object_of_any_dialect_is_read(data: Any, error: tuple[str | None, ...]) -> None:
    read = parse_error_body(data)

    assert (read.message, read.param, read.code, read.type) == error


@for_each(
    ("message", "code", "is_so"),
    [
        ("API key not valid. Please pass a valid API key.", None, True),
        ("API key expired. Please renew the API key.", None, True),
        ("Incorrect API key provided: xai-1.", None, True),
        ("Your credit balance is too low to access the API.", None, True),
        ("Billing hard limit has been reached", None, True),
        ("No.", "billing_hard_limit_reached", True),
        ("No.", "organization_restricted", True),
        ("The tool says: API key not valid.", None, False),
        ("'Your credit balance is too low' is no role", None, False),
        (None, None, False),
    ],
)
def test_billing_error_is_no_outage(message: str | None, code: str | None, is_so: bool) -> None:
    assert is_account_error(ErrorBody(message=message, code=code)) is is_so


@for_each(("code", "status"), [(400, 400), ("503", 503), (7, None), (True, None), ("4000", None)])
def test_numeric_code_is_read_as_status(code: Any, status: int | None) -> None:
    assert parse_error_body({"error": {"code": code}}).status == status


CALL = Call(RequestHead("openai", "embeddings", "/v1/embeddings", "req_1"), {"input": "a"})
DOC: Json = {"object": "list", "model": "m", "data": [{"index": 0, "embedding": [0.5]}]}
DOC |= {"usage": {"prompt_tokens": 2, "total_tokens": 2}}


def read(doc: Json, raw: bytes = b"") -> Frame:
    reader = EMBEDDINGS.reader(ReadOptions(CALL, whole=True, inspect=True))
    [frame] = OrderChecker().each(reader.read(doc, raw))
    return frame._replace(last=True)


def test_document_keeps_its_bytes_unless_changed() -> None:
    frame = read(DOC, b'{ "data": [] }')
    write = EMBEDDINGS.writer(WriteOptions(CALL, True)).feed

    assert write(frame) == b'{ "data": [] }'
    assert orjson.loads(write(frame._replace(raw=None))) == DOC


def test_usage_and_findings_are_events() -> None:
    frame = read({**DOC, "hook_results": {}})

    [start, extension, usage] = frame.events[:3]
    assert start == ResponseStart(None, "m", None)
    assert extension == Extension("hook_results", {})
    assert isinstance(usage, UsageReport)
    assert usage.tokens == Tokens(input=2)


def test_body_without_document_is_invalid() -> None:
    with pytest.raises(UpstreamInvalid):
        EMBEDDINGS.reader(ReadOptions(CALL, whole=True)).end()


def test_only_portkey_clients_get_special_statuses() -> None:
    blocked = GuardBlocked("No.", guard="mails", kind="email")
    clients = {name: dialect.client for name, dialect in DIALECTS.items()}
    answers = {
        name: choose_success_status(row, MATCHES, is_flagged=False) for name, row in clients.items()
    }
    refusals = {
        name: make_client_error_response(row, blocked, "r", MATCHES)
        for name, row in clients.items()
    }

    assert (answers.pop("portkey"), set(answers.values())) == (246, {200})
    assert refusals["portkey"].body["error"]["type"] == "hooks_failed"
    assert refusals["portkey"].body["hook_results"]["before_request_hooks"]
    assert "message" not in refusals["enkrypt"].body
    detections = refusals["enkrypt"].body["enkrypt_policy_detections"]
    assert detections["input_guardrails"]["summary"] == {"pii": 1}
    assert (refusals.pop("portkey").status, {r.status for r in refusals.values()}) == (446, {400})
    assert refusals.pop("anthropic").body["error"] == {"type": "policy_blocked", "message": "No."}
    assert all(r.body["error"]["code"] == "guardrail_blocked" for r in refusals.values())
    shadow = MATCHES[1:]
    assert choose_success_status(clients["portkey"], shadow, is_flagged=False) == 200


def test_each_family_belongs_to_an_endpoint() -> None:
    of_dialects = {name for dialect in DIALECTS.values() for name in dialect.families.values()}
    assert {*FAMILIES} == {*FAMILY_OF_ENDPOINT.values(), *of_dialects}
