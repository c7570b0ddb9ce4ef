"""The names under which a log line says its fields: our own, Elastic's, or OpenTelemetry's.

A schema renames what others have a name for; all else goes below ``headrace``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

Line = dict[str, Any]
Schema = Callable[[Line], Line]
PREFIX = "headrace."
OURS = ("time", "level", "event", "trace_id", "span_id")
SEVERITIES = {"debug": 5, "info": 9, "warning": 13, "error": 17}
NS_A_MS = 1_000_000
SUCCESSES = ("success",)

ECS: Mapping[str, str] = {
    "request_id": "http.request.id",
    "status": "http.response.status_code",
    "error": "error.code",
    "version": "service.version",
}
OTEL: Mapping[str, str] = {
    "status": "http.response.status_code",
    "error": "error.type",
    "route": "http.route",
    "version": "service.version",
}


def native(line: Line) -> Line:
    return line


def ecs(line: Line) -> Line:
    """Return a line under Elastic's names; durations are in nanoseconds there."""
    renamed: Line = {
        "@timestamp": line["time"],
        "log.level": line["level"],
        "message": line["event"],
        "ecs.version": "8.11.0",
        "service.name": "headrace",
        "event.action": line["event"],
    }
    if line.get("trace_id"):
        renamed |= {"trace.id": line["trace_id"], "span.id": line.get("span_id")}
    if "duration_ms" in line:
        renamed["event.duration"] = round(line["duration_ms"] * NS_A_MS)
    if "outcome" in line:
        renamed["event.outcome"] = "success" if line["outcome"] in SUCCESSES else "failure"
    return renamed | _renamed(line, ECS)


def otel(line: Line) -> Line:
    """Return a line under the names of OpenTelemetry's log data model."""
    moment = datetime.fromisoformat(line["time"])
    renamed: Line = {
        "Timestamp": f"{round(moment.timestamp() * 1000) * NS_A_MS}",
        "SeverityText": line["level"].upper(),
        "SeverityNumber": SEVERITIES.get(line["level"], 0),
        "Body": line["event"],
        "Resource": {"service.name": "headrace"},
        "Attributes": _renamed(line, OTEL),
    }
    if line.get("trace_id"):
        renamed |= {"TraceId": line["trace_id"], "SpanId": line.get("span_id"), "TraceFlags": "01"}
    return renamed


def _renamed(line: Line, names: Mapping[str, str]) -> Line:
    return {
        names.get(name, PREFIX + name): value for name, value in line.items() if name not in OURS
    }


SCHEMAS: Mapping[str, Schema] = {"native": native, "ecs": ecs, "otel": otel}
