"""Names of the fields of log lines, and credentials in them."""

from __future__ import annotations

import json

from proxy.telemetry.lines import ecs, native, otel, redacted
from tests.for_each import for_each

SECRETS = [
    "sk-proj-abcdefghijklmnop1234",
    "hr-" + "a1B_" * 11,
    "Bearer abc.def-ghi_jkl",
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "ghp_" + "a" * 36,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc",
    "redis://user:hunter22@cache:6379",
]


@for_each("secret", SECRETS)
def test_a_credential_is_taken_out_and_the_line_is_still_json(secret: str) -> None:
    line = json.dumps({"event": "bug", "said": f"before {secret} after"}).encode()

    fields = json.loads(redacted(line))["said"]

    assert "[redacted]" in fields
    assert fields.startswith("before ")
    assert fields.endswith(" after") or "redis" in secret
    assert secret not in fields


def test_other_lines_are_left_as_they_are() -> None:
    line = json.dumps(
        {"key": "support-widget", "request_id": "req_0123456789abcdef", "url": "http://here:80/v1"}
    ).encode()

    assert redacted(line) == line


LINE = {
    "time": "2026-11-21T10:00:00.250+00:00",
    "level": "warning",
    "event": "call",
    "request_id": "req_1",
    "trace_id": "a" * 32,
    "span_id": "b" * 16,
    "deployment": "support-chat",
    "status": 504,
    "outcome": "timeout",
    "error": "upstream_idle_timeout",
    "duration_ms": 1.5,
}


def test_our_own_names_are_left() -> None:
    assert native(LINE) == LINE


def test_elastics_names_have_nanoseconds_and_two_outcomes() -> None:
    line = ecs(LINE)

    assert line["@timestamp"] == LINE["time"]
    assert (line["log.level"], line["message"]) == ("warning", "call")
    assert (line["trace.id"], line["span.id"]) == ("a" * 32, "b" * 16)
    assert (line["event.duration"], line["event.outcome"]) == (1_500_000, "failure")
    assert (line["http.response.status_code"], line["error.code"]) == (504, LINE["error"])
    assert line["headrace.deployment"] == "support-chat"
    assert line["headrace.outcome"] == "timeout"


def test_opentelemetrys_names_have_attributes_of_their_own() -> None:
    line = otel(LINE)

    assert line["Timestamp"] == "1795255200250000000"
    assert (line["SeverityText"], line["SeverityNumber"], line["Body"]) == ("WARNING", 13, "call")
    assert (line["TraceId"], line["SpanId"]) == ("a" * 32, "b" * 16)
    assert line["Attributes"]["http.response.status_code"] == 504
    assert line["Attributes"]["headrace.deployment"] == "support-chat"


def test_an_event_of_no_call_has_no_trace() -> None:
    event = {"time": LINE["time"], "level": "info", "event": "listening", "version": "1"}

    assert "TraceId" not in otel(event)
    assert "trace.id" not in ecs(event)
    assert ecs(event)["service.version"] == "1"
