"""Log lines: schemas, size, redaction, and the writer.

structlog adds time and level, and renders JSON of bounded size. The thread of a spool redacts
credentials and writes the lines, so a stalled pipe, a full disk or a closed reader never delays a
call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import orjson
import re2
import structlog
from structlog import DropEvent
from structlog.typing import EventDict, FilteringBoundLogger

from proxy.runtime.spool import Spool, SpoolBounds, append_bytes
from proxy.telemetry.log import LogLevel, format_time

MAX_WAITING_LINES = 10_000
MAX_LINE_BYTES = 32 * 1024
SPOOL_BOUNDS: SpoolBounds[bytes] = SpoolBounds(
    "log-writer", batch_window_s=0.05, items=MAX_WAITING_LINES, size=len
)
Line = dict[str, Any]
Schema = Callable[[Line], Line]
COMMON_FIELDS = ("time", "level", "event", "trace_id", "span_id")
"""Fields for which each schema has a member."""
SEVERITIES = {"debug": 5, "info": 9, "warning": 13, "error": 17}
NS_PER_MS = 1_000_000

ECS_NAMES: Mapping[str, str] = {
    "request_id": "http.request.id",
    "status": "http.response.status_code",
    "error": "error.code",
    "version": "service.version",
}
OTEL_NAMES: Mapping[str, str] = {
    "status": "http.response.status_code",
    "error": "error.type",
    "route": "http.route",
    "version": "service.version",
}


def to_native(line: Line) -> Line:
    return line


def to_ecs(line: Line) -> Line:
    """Return a line with Elastic's field names. Durations are in nanoseconds."""
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
        renamed["event.duration"] = round(line["duration_ms"] * NS_PER_MS)
    if "outcome" in line:
        renamed["event.outcome"] = "success" if line["outcome"] == "success" else "failure"
    return renamed | _rename_uncommon_fields(line, ECS_NAMES)


def to_otel(line: Line) -> Line:
    """Return a line in the form of OpenTelemetry's log data model."""
    moment = datetime.fromisoformat(line["time"])
    renamed: Line = {
        "Timestamp": f"{round(moment.timestamp() * 1000) * NS_PER_MS}",
        "SeverityText": line["level"].upper(),
        "SeverityNumber": SEVERITIES.get(line["level"], 0),
        "Body": line["event"],
        "Resource": {"service.name": "headrace"},
        "Attributes": _rename_uncommon_fields(line, OTEL_NAMES),
    }
    if line.get("trace_id"):
        renamed |= {"TraceId": line["trace_id"], "SpanId": line.get("span_id"), "TraceFlags": "01"}
    return renamed


def _rename_uncommon_fields(line: Line, names: Mapping[str, str]) -> Line:
    """Return the fields that are not common, by default with the prefix ``headrace.``."""
    return {
        names.get(name, f"headrace.{name}"): value
        for name, value in line.items()
        if name not in COMMON_FIELDS
    }


SCHEMAS: Mapping[str, Schema] = {"native": to_native, "ecs": to_ecs, "otel": to_otel}
_CREDENTIALS = re2.compile(
    rb"sk-[A-Za-z0-9_-]{16,}"  # of several providers
    rb"|hr-[A-Za-z0-9_-]{40,}"  # a virtual key of Headrace
    rb"|[Bb]earer [A-Za-z0-9._~+/-]{8,}=*"
    rb"|AKIA[A-Z0-9]{16}"
    rb"|gh[pousr]_[A-Za-z0-9]{30,}"
    rb"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"
    rb"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    rb"|://[^/\s\"@:]{1,256}:[^/\s\"@]{1,256}@"  # a password in a URL
)


def redact_line(line: bytes) -> bytes:
    """Replace credentials of known shapes. This is a second defense: no field should contain one.

    JSON remains JSON, and as many lines, because no pattern matches a line feed.
    """
    # `search` takes half the time of `sub`, and credentials are rare.
    if _CREDENTIALS.search(line) is None:
        return line
    cleaned: bytes = _CREDENTIALS.sub(b"[redacted]", line)
    return cleaned


def redact_text(text: str) -> str:
    """Replace credentials by ``[redacted]``, and lone surrogates by question marks."""
    return redact_line(text.encode(errors="replace")).decode()


def empty_longest_lists(line: dict[str, Any]) -> dict[str, Any]:
    """Empty the longest lists until a line takes half of ``MAX_LINE_BYTES``. ``cut`` names them."""
    cut: Line = {}
    sizes = {name: len(orjson.dumps(value, str)) for name, value in line.items()}
    excess = sum(sizes.values()) - MAX_LINE_BYTES // 2
    for name in sorted(line, key=lambda name: -sizes[name]):
        if excess > 0 and isinstance(line[name], (list, dict)):
            excess -= sizes[name]
            cut[name] = type(line[name])()
    return {**line, **cut, "cut": [*cut]}


def build_line_logger(
    write_line: Callable[[bytes], object], levels: LogLevel, schema: Schema = to_native
) -> FilteringBoundLogger:
    """Return a logger that passes each line to ``write_line``, as bytes with a line end.

    ``levels`` may change while the process runs. A field ``line`` has all fields of a line.
    """

    def complete(_: object, level: str, fields: EventDict) -> EventDict:
        """Add time and level, and drop a line below the active level. A whole line has both."""
        line: EventDict | None = fields.get("line")
        if line is not None:
            return line
        if not levels.allows(level):
            raise DropEvent
        time = format_time(datetime.now(UTC))
        return {"time": time, **fields, "level": level}

    def render(_: object, level: str, line: Any) -> bytes:
        data = orjson.dumps(schema(line), str, orjson.OPT_APPEND_NEWLINE)
        if len(data) > MAX_LINE_BYTES:
            data = orjson.dumps(schema(empty_longest_lists(line)), str, orjson.OPT_APPEND_NEWLINE)
        return data

    logger: FilteringBoundLogger = structlog.wrap_logger(
        SimpleNamespace(**dict.fromkeys(SEVERITIES, write_line)),
        processors=[complete, render],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        context_class=dict,
    ).bind()
    return logger


class LineWriter:
    """Redacts lines and writes them to a file, in its own thread. ``enqueue`` never waits.

    ``on_drop`` gets the reason and the number of lost lines, ``on_error`` an unexpected exception.
    """

    def __init__(
        self, fd: int, on_drop: Callable[[str, int], None], on_error: Callable[[Exception], None]
    ) -> None:
        self._fd = fd
        self._is_torn = False  # True if the last line was written in part
        self._spool = Spool(SPOOL_BOUNDS, self._write, on_drop, on_error)
        self.enqueue: Callable[[bytes], object] = self._spool.add

    @property
    def pending_count(self) -> int:
        return self._spool.pending_count

    def close(self, timeout: float = 2.0) -> None:
        """Write the waiting lines, for at most ``timeout`` seconds. Blocks."""
        self._spool.close(timeout)

    def _write(self, lines: list[bytes]) -> None:
        """Write lines. A partly written line is lost. The next write first ends that line."""
        prefix = b"\n" if self._is_torn else b""
        data = prefix + redact_line(b"".join(lines))
        written, error = append_bytes(self._fd, data)
        if written:
            self._is_torn = not data.endswith(b"\n", 0, written)
        if error is None:
            self._spool.mark_written(len(lines))
            return
        end = written + data.startswith(b"\n", written)  # a line without its line feed is complete
        total = max(0, data.count(b"\n", 0, end) - len(prefix))
        self._spool.mark_written(total)
        self._spool.drop_first("write_failed", len(lines) - total)
