"""docs/logs.md matches the lines of a real process. Log schemas, redaction, levels and quotas."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from proxy.call.record import new_record
from proxy.telemetry.lines import build_line_logger, redact_line, to_ecs, to_native, to_otel
from proxy.telemetry.log import MAX_LEVEL_S, CallLog, LogLevel, Quota
from tests.cache.stores import Clock
from tests.cli.test_init import serving
from tests.conftest import policies_for
from tests.doubles import ScriptedUpstream, respond
from tests.for_each import for_each
from tests.test_pipeline import BEARER, ROUTES

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs/logs.md").read_text()
STARTS = {"{subject}": ("policy", "candidate")}


COMMON = {"time", "level", "event"}
LIMITED = """
policies:
  default:
    match: all
    cache: {ttl: 1h, store: sqlite}
    limits:
      - {name: month, usd: 0.0001 per month, unpriced: allow, warn_at: 1%}
"""
REAL = {
    *("listening", "stopping", "stopped", "policy.in_force", "policy.rejected"),
    *("policy.restored", "policy.revoked", "policy.no_keys", "budget.begins"),
    *("limit.warned", "cache.store_missing", "decisions.begin", "decisions.end"),
}
"""Events of which the test reads a line; those of the others' calls are read from the code."""


def events() -> dict[str, tuple[str, set[str]]]:
    """Return the documented level and fields of each event."""
    results = {}
    for line in PAGE.partition("| other event |")[2].partition("\n\n")[0].splitlines()[2:]:
        names, level, fields = line.split("|")[1:4]
        for name in re.findall(r"`([a-z_.]+)`", names):
            results[name] = (level.strip(), set(re.findall(r"`([a-z_]+)`", fields)))
    return results


def logged_events() -> Iterator[tuple[str, str, set[str]]]:
    """Yield the name, level and fields of each event with a literal name in the code."""
    for file in (TOP / "proxy").rglob("*.py"):
        module = ast.parse(file.read_text())
        for function in ast.walk(module):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    yield from logged_by(node, function)


def logged_by(node: ast.AST, function: ast.AST) -> Iterator[tuple[str, str, set[str]]]:
    """Yield the events of one call of a logger within a function."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    level, owner = node.func.attr, ast.unparse(node.func.value)
    if level not in ("info", "warning", "error") or not owner.endswith("log") or not node.args:
        return
    fields: set[str] = set()
    for keyword in node.keywords:
        fields |= {keyword.arg} if keyword.arg else spread(ast.unparse(keyword.value), function)
    name = ast.unparse(node.args[0]).strip("f'\"").replace("{self._subject}", "{subject}")
    start, _, end = name.partition(".")
    for subject in STARTS.get(start, (start,)):
        event = f"{subject}.{end}".rstrip(".")
        if re.fullmatch(r"[a-z_.]+", event) and event != "event":
            yield event, level, fields


def spread(text: str, function: ast.AST) -> set[str]:
    """Return the names in an unpacked mapping: a literal, or the fields of a location."""
    if text.startswith("get_error_type_and_location("):
        return {"type", "location"}
    values = (
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == text
    )
    return {
        str(key.value)
        for value in values
        if isinstance(value, ast.Dict)
        for key in value.keys
        if isinstance(key, ast.Constant)
    }


def documented_fields(heading: str) -> set[str]:
    """Return the fields in the first column of a table."""
    table = PAGE.partition(f"| {heading} | meaning |")[2].partition("\n\n")[0]
    columns = [row.split("|")[1] for row in table.splitlines() if row.startswith("|")]
    return {name for column in columns for name in re.findall(r"`([a-z_]+)`", column)}


async def test_call_lines_have_documented_fields(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.answer_with(respond({}, status=500))
    chosen = {"HEADRACE_LOG_LEVEL": "debug", "HEADRACE_LOG_RATIO": "0.5"}
    async with serving(tmp_path / "p", policies_for(upstream.url), **chosen) as (served, url):
        route = ROUTES["openai"]
        body = route.body(streamed=False)
        async with (
            aiohttp.ClientSession() as client,
            client.post(
                f"{url}{route.path}", headers=BEARER | {"x-title": "App"}, json=body
            ) as response,
        ):
            assert response.status == 502
            call = await served.line("call")
            attempt = await served.line("attempt")
            async with client.get(
                f"{url}/v1/batches/batch_1?after=x", headers=BEARER
            ) as other_response:
                assert other_response.status == 404
            unserved = await served.line("call")

    assert unserved["wanted_path"] == "/v1/batches/*"
    rare = {"suppressed", "cut", "unauthorized", "wanted_path"}
    assert call.keys() | rare == documented_fields("field")
    assert attempt.keys() == documented_fields("field of an attempt")


def test_suppressed_count_is_logged_only_if_not_zero() -> None:
    lines: list[bytes] = []
    levels = LogLevel("info", lambda: 0.0)
    log = CallLog(build_line_logger(lines.append, levels), levels)
    for suppressed in (0, 3):
        record = new_record()
        record.ended, record.unreported_count = record.started, suppressed
        log.emit(record)

    assert [json.loads(line).get("suppressed") for line in lines] == [None, 3]


def test_documented_events_match_the_code() -> None:
    documented, logged = events(), list(logged_events())
    code = "\n".join(file.read_text() for file in (TOP / "proxy").rglob("*.py"))
    names = {name for name, _, _ in logged}
    names |= set(re.findall(r"log_task_error, context, \"([^\"]+)\"\)", code))
    names |= set(re.findall(r"partial\(log\.warning, \"([^\"]+)\"", code))
    # Logged by a conditional name and by a handler.
    names |= {"decisions.failing", "decisions.mended", "library.failed"}
    # Events while policies are read.
    telemetry = (TOP / "proxy/app/telemetry.py").read_text()
    names |= set(re.findall(r"yield \"([a-z._]+)\", ", telemetry))

    assert documented.keys() == names
    assert [item for item in logged if documented[item[0]] != item[1:]] == []


async def test_other_lines_have_documented_fields(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
    text = policies_for(upstream.url) + LIMITED
    options = {
        "HEADRACE_LEDGER": f"sqlite:{tmp_path / 'ledger.db'}",
        "HEADRACE_DECISION_LOG": str(tmp_path / "decisions"),
    }
    async with serving(tmp_path / "p", text, **options) as (served, url):
        async with (
            aiohttp.ClientSession() as client,
            client.post(
                f"{url}/v1/chat/completions", headers=BEARER, json={"model": "support-chat", **body}
            ) as response,
        ):
            assert response.status == 200
        await served.line("call")
        for event, policies in (
            ("policy.rejected", "upstream: {}\n"),
            ("policy.restored", text),
            ("policy.revoked", f"{text}revoked: [search-box]\n"),
            ("policy.no_keys", "keys: {}\n"),
        ):
            (tmp_path / "p" / "policies.yaml").write_text(policies)
            await served.line(event)
        served.process.terminate()
        await served.line("stopped")

    lines = {line["event"]: line for line in served.lines if line["event"] != "call"}
    assert {item: line.keys() - COMMON for item, line in lines.items()} == {
        item: events()[item][1] for item in lines
    }
    assert {item: line["level"] for item, line in lines.items()} == {
        item: events()[item][0] for item in lines
    }
    assert lines.keys() >= REAL


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
def test_redacted_line_is_valid_json(secret: str) -> None:
    line = json.dumps({"event": "bug", "said": f"before {secret} after"}).encode()

    fields = json.loads(redact_line(line))["said"]

    assert "[redacted]" in fields
    assert fields.startswith("before ")
    assert fields.endswith(" after") or "redis" in secret
    assert secret not in fields


def test_lines_without_credentials_are_unchanged() -> None:
    line = json.dumps(
        {"key": "support-widget", "request_id": "req_0123456789abcdef", "url": "http://here:80/v1"}
    ).encode()

    assert redact_line(line) == line


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


def test_own_names_are_not_redacted() -> None:
    assert to_native(LINE) == LINE


def test_ecs_schema_has_nanoseconds_and_two_outcomes() -> None:
    line = to_ecs(LINE)

    assert line["@timestamp"] == LINE["time"]
    assert (line["log.level"], line["message"]) == ("warning", "call")
    assert (line["trace.id"], line["span.id"]) == ("a" * 32, "b" * 16)
    assert (line["event.duration"], line["event.outcome"]) == (1_500_000, "failure")
    assert (line["http.response.status_code"], line["error.code"]) == (504, LINE["error"])
    assert line["headrace.deployment"] == "support-chat"
    assert line["headrace.outcome"] == "timeout"


def test_otel_schema_has_attributes() -> None:
    line = to_otel(LINE)

    assert line["Timestamp"] == "1795255200250000000"
    assert (line["SeverityText"], line["SeverityNumber"], line["Body"]) == ("WARNING", 13, "call")
    assert (line["TraceId"], line["SpanId"]) == ("a" * 32, "b" * 16)
    assert line["Attributes"]["http.response.status_code"] == 504
    assert line["Attributes"]["headrace.deployment"] == "support-chat"


def test_event_without_call_has_no_trace() -> None:
    event = {"time": LINE["time"], "level": "info", "event": "listening", "version": "1"}

    assert "TraceId" not in to_otel(event)
    assert "trace.id" not in to_ecs(event)
    assert to_ecs(event)["service.version"] == "1"


def test_temporary_level_ends_after_its_time() -> None:
    clock = Clock(0.0)
    levels = LogLevel("info", clock)

    levels.set_temporarily("debug", 600)
    assert (levels.name, levels.remaining_s, levels.allows("debug")) == ("debug", 600, True)

    clock.now = 600
    assert (levels.name, levels.remaining_s, levels.allows("debug")) == ("info", 0, False)


@for_each(
    ("level", "seconds"),
    [
        ("loud", 60),
        ("", 60),
        ("debug", 0),
        ("debug", -1),
        ("debug", MAX_LEVEL_S + 1),
        ("debug", float("nan")),
    ],
)
def test_invalid_level_or_time_is_refused(level: str, seconds: float) -> None:
    levels = LogLevel("info", lambda: 0.0)

    with pytest.raises(ValueError, match="must be"):
        levels.set_temporarily(level, seconds)

    assert levels.name == "info"


def test_level_allows_equal_and_higher_severity() -> None:
    levels = LogLevel("warning", lambda: 0.0)

    allowed = {name: levels.allows(name) for name in ("debug", "info", "warning", "error")}
    assert allowed == {"debug": False, "info": False, "warning": True, "error": True}


def test_quota_refills_and_counts_suppressed_events() -> None:
    seconds = [0.0]
    quota = Quota(lambda: seconds[0], burst=2, per_minute=6)

    assert [quota.take_token() for _ in range(5)] == [0, 0, None, None, None]
    seconds[0] += 9.9
    assert quota.take_token() is None
    seconds[0] += 0.1
    assert quota.take_token() == 4
    seconds[0] += 3600
    assert [quota.take_token() for _ in range(3)] == [0, 0, None]
