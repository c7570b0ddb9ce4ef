"""Log lines: one per call, and events of the process. They contain no text and no keys.

structlog adds time and level, renames fields, renders JSON of bounded size and redacts credentials.
Lines go to a file descriptor through a spool, so a stalled pipe, a full disk or a closed reader
never delays a call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, get_args

import orjson
import structlog
from structlog import DropEvent
from structlog.processors import JSONRenderer
from structlog.typing import EventDict, FilteringBoundLogger

from proxy.attempts import Attempt, Outcome
from proxy.call_facts import UNKNOWN, CallFacts, Failure
from proxy.dialects.bounds import BOUNDS as TOKEN_BOUNDS
from proxy.emit.attributes import usd
from proxy.emit.log_limits import LEVELS, LogLevel
from proxy.emit.redact import redacted
from proxy.emit.schemas import Schema, native
from proxy.errors import UpstreamFinding
from proxy.frozen import frozen
from proxy.record import Record
from proxy.spool import Spool, SpoolBounds, append
from proxy.summary import facts_of
from proxy.types.guard import Verdicts
from proxy.usage import NANO, TOKEN_TYPES, Tokens
from proxy.words import MAX_NAME, MAX_WORDS, word

MAX_LINES = 10_000
MAX_LINE = 32 * 1024
SIZES = (
    *TOKEN_BOUNDS, "n", "best_of", "temperature", "top_p", "frequency_penalty", "presence_penalty",
    "seed",
)  # fmt: skip
"""The parameters of a request that are numbers and that a rule may set or cap."""
NUMBERS = frozenset({int, float})
LEVEL_OF: Mapping[str, str] = {
    **dict.fromkeys(get_args(Outcome), "info"),
    **{"proxy_error": "error", "upstream_error": "warning", "timeout": "warning"},
}
FAILURE: Mapping[str, str] = {
    "error": "code",
    "upstream_status": "upstream_status",
    "upstream_error_cause": "cause",
    "upstream_error_text": "text",
    "upstream_error_type": "upstream_type",
    "upstream_error_code": "upstream_code",
}
"""The fields of a line that say why a call ended before its end, and the members of ``Failure``."""
NO_FAILURE = dict.fromkeys(FAILURE)
BOUNDS: SpoolBounds[bytes] = SpoolBounds("log-writer", gather_s=0.05, items=MAX_LINES, size=len)


def in_ms(seconds: float) -> float:
    """Return a duration in milliseconds, to the microsecond."""
    return round(seconds * 1000, 3)


def canonical(record: Record) -> dict[str, Any]:
    """Return the one line of a call as data. Unknown is null, never zero."""
    facts, call = record.facts or facts_of(record), record.call
    head, plan = record.head, record.plan
    warned = (call and call.warnings) or (head and head.warnings) or (plan and plan.warnings)
    target = facts.served.target if facts.served else None
    saved, failure = facts.saved, facts.failure
    is_used = facts.source != "none"
    cost, lost, ttft_s = facts.cost, facts.lost_cost, facts.ttft_s
    line = {
        "time": facts.started_at.isoformat(timespec="milliseconds"),
        "level": LEVEL_OF[facts.outcome],
        "event": "call",
        "request_id": facts.request_id,
        "trace_id": facts.trace_id,
        "span_id": facts.server_span,
        **_request_fields(facts),
        "models": facts.models or [],
        "parameters": {
            name: call.body[name]
            for name in SIZES
            if name in call.body and type(call.body[name]) in NUMBERS
        }
        if call is not None
        else {},
        "provider": target.upstream.provider if target else None,
        "upstream": target.upstream.name if target else None,
        "model": target.model if target else None,
        "status": facts.status,
        "outcome": facts.outcome,
        **(NO_FAILURE if failure is None else _failed(failure)),
        "duration_ms": in_ms(facts.duration_s),
        "ttft_ms": None if ttft_s is None else in_ms(ttft_s),
        "overhead_ms": in_ms(facts.overhead_s),
        "tokens": _counts(facts.tokens) if is_used and facts.source != "unknown" else None,
        "usage_source": facts.source,
        "cost_usd": cost / NANO if is_used and cost is not None else None,
        "lost_cost_usd": lost / NANO if is_used and lost is not None else None,
        "cache": facts.cache,
        "cache_semantic_match": facts.semantic_match,
        "guards": _verdicts(facts.verdicts) if facts.verdicts else [],
        "upstream_guards": [_finding(*each) for each in facts.upstream_findings]
        if facts.upstream_findings
        else [],
        "saved_tokens": saved.tokens.total if saved else None,
        "saved_usd": usd(saved.cost) if saved else None,
        "attempts": len(facts.attempts),
        "skipped": [skip.target.title for skip in facts.skips[:MAX_WORDS]] if facts.skips else [],
        "finish_reasons": facts.finish_reasons,
        "warnings": _warnings(record) if warned or record.warnings else [],
    }
    if facts.properties:
        line["properties"] = dict(facts.properties)
    if failure is not None:
        line.update(_of_failure(failure))
    return line


def _request_fields(facts: CallFacts) -> dict[str, Any]:
    """Return the fields that describe the request and the policy that applies to it."""
    return {
        "key": facts.key,
        "deployment": facts.deployment,
        "tags": {tag: word(value, MAX_NAME) for tag, value in (facts.tags or {}).items()},
        "policy": facts.policy,
        "rules": list(facts.rules),
        "shadow_rules": list(facts.shadow_rules),
        "dialect": facts.dialect or UNKNOWN,
        "route": facts.route,
        "endpoint": facts.endpoint or UNKNOWN,
        "stream": facts.is_stream is True,
    }


def _failed(failure: Failure) -> dict[str, Any]:
    return {name: getattr(failure, member) for name, member in FAILURE.items()}


def _of_failure(failure: Failure) -> dict[str, Any]:
    """Return what only lines of calls say that failed before they were known to anybody."""
    if failure.wanted is not None:
        return {"wanted_path": failure.wanted}
    if failure.lapse is not None:
        return {"unauthorized": {"reason": failure.lapse, "key": failure.lapsed_key}}
    return {}


def _counts(tokens: Tokens) -> dict[str, int]:
    """Return the disjoint counts that are not zero."""
    every = zip(TOKEN_TYPES, tokens.counts(), strict=True)
    counts = {name: count for name, count in every if count}
    if tokens.cache_write_1h or tokens.web_searches:
        counts |= tokens.beside()
    return counts


def shortened(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line without as many of its longest lists as it takes to make it short enough;
    ``cut`` names them."""
    cut: list[str] = []
    sizes = {name: len(orjson.dumps(value, str)) for name, value in line.items()}
    excess = sum(sizes.values()) - MAX_LINE // 2
    for name in sorted(line, key=lambda name: -sizes[name]):
        if excess > 0 and isinstance(line[name], (list, dict)):
            excess -= sizes[name]
            cut.append(name)
    empty = {name: type(line[name])() for name in cut}
    return {**line, **empty, "cut": cut}


def _warnings(record: Record) -> list[str]:
    """Return all that the client of a call was warned of."""
    warnings: list[str] = []
    for warned in (record.call, record.head, record.plan):
        if warned is not None:
            warnings += warned.warnings[:MAX_WORDS]
    return [*warnings, *record.warnings]


def _verdicts(verdicts: Verdicts) -> list[dict[str, Any]]:
    """Return what guards said: counts by kind, never a text."""
    return [
        {
            "guard": result.guard,
            "stage": stage,
            "verdict": result.verdict,
            "findings": result.findings,
            "fields": result.fields,
            "bytes": result.bytes,
            "shadow": result.shadow,
            "error": result.error,
        }
        for stage, result in verdicts
    ]


def _finding(upstream: str, finding: UpstreamFinding) -> dict[str, Any]:
    """Return what a guard of an upstream found: its name and its verdict."""
    guard = {"upstream": upstream, "guard": finding.detector}
    return {**guard, "stage": finding.stage, "verdict": "flagged" if finding.found else "passed"}


def in_share(sample_id: str, ratio: float) -> bool:
    """Return True if a call falls into a share of all, by its own number."""
    return int(sample_id[16:], 16) < ratio * 2**64


class LineWriter:
    """Writes lines to a file descriptor, from a thread of its own. ``put`` never waits.

    ``dropped`` is told why and how many lines are lost, ``failed`` of an exception that nobody
    foresaw.
    """

    def __init__(
        self,
        fd: int,
        dropped: Callable[[str, int], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._fd = fd
        self._torn = False  # the last line was taken in part
        self._spool = Spool(BOUNDS, self._write, dropped, failed)
        self.put: Callable[[bytes], object] = self._spool.put

    @property
    def waiting(self) -> int:
        """How many lines are not written yet."""
        return self._spool.waiting

    def close(self, timeout: float = 2.0) -> None:
        """Write what is waiting, for at most ``timeout`` seconds. Blocks."""
        self._spool.close(timeout)

    def _write(self, lines: list[bytes]) -> None:
        """Write lines. Those that a descriptor does not take are lost: a log waits for no disk. One
        that it took in part is lost too, and ended before another begins."""
        prefix = b"\n" if self._torn else b""
        data = prefix + b"".join(lines)
        written, error = append(self._fd, data)
        if written:
            self._torn = not data.endswith(b"\n", 0, written)
        if error is None:
            self._spool.done(len(lines))
            return
        end = written + data.startswith(b"\n", written)  # a line that lacks only its end is whole
        whole = max(0, data.count(b"\n", 0, end) - len(prefix))
        self._spool.done(whole)
        self._spool.drop("write_failed", len(lines) - whole)


@frozen
class CallLog:
    """Sink that writes one line per call, and at the level ``debug`` one per attempt.

    Of successful calls only the share ``ratio`` is written.
    """

    name: ClassVar[str] = "calllog"

    log: FilteringBoundLogger
    levels: LogLevel
    ratio: float = 1.0

    def end(self, record: Record) -> None:
        if not record.reported:
            return
        outcome, min_level = (record.facts or facts_of(record)).outcome, self.levels.number
        if self.ratio < 1 and outcome == "success" and not in_share(record.sample_id, self.ratio):
            return
        level = LEVEL_OF[outcome]
        if LEVELS[level] < min_level:
            return
        line = canonical(record)
        if record.unreported:
            line["suppressed"] = record.unreported
        if self.ratio < 1:
            line["sample_ratio"] = self.ratio if outcome == "success" else 1.0
        # As one value: structlog copies fields that are keyword arguments.
        self.log.log(LEVELS[level], "call", line=line)
        if min_level <= logging.DEBUG:
            for attempt in record.attempts:
                self.log.debug("attempt", line=_attempt_line(record, attempt))


def _attempt_line(record: Record, attempt: Attempt) -> dict[str, Any]:
    return {
        "time": record.started_at.isoformat(timespec="milliseconds"),
        "level": "debug",
        "event": "attempt",
        "request_id": record.request_id,
        "trace_id": record.ids.trace_id,
        "span_id": attempt.span_id,
        "upstream": attempt.target.upstream.name,
        "model": attempt.target.model,
        "why": attempt.why,
        "status": attempt.status,
        "error": attempt.error,
        "upstream_error_cause": attempt.cause,
        "upstream_error_text": attempt.system_text,
        "began_ms": in_ms(attempt.started - record.started),
        "duration_ms": in_ms((attempt.ended or attempt.started) - attempt.started),
    }


def line_logger(
    put: Callable[[bytes], object], levels: LogLevel, schema: Schema = native
) -> FilteringBoundLogger:
    """Return a logger that passes each line to ``put``, as bytes with a line end.

    ``levels`` may change while the process runs. A field ``line`` has all fields of a line.
    """

    def drop_below_level(_: object, level: str, fields: EventDict) -> EventDict:
        if not levels.allows(level):
            raise DropEvent
        return fields

    def serialize(line: dict[str, Any], default: Callable[[object], str]) -> bytes:
        options = orjson.OPT_APPEND_NEWLINE
        data = orjson.dumps(schema(line), default, options)
        if len(data) <= MAX_LINE:
            return data
        return orjson.dumps(schema(shortened(line)), default, options)

    logger: FilteringBoundLogger = structlog.wrap_logger(
        _Lines(put),
        processors=[drop_below_level, _complete, JSONRenderer(serialize, default=str), _redact],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        context_class=dict,
    ).bind()
    return logger


def _complete(_: object, level: str, fields: EventDict) -> EventDict:
    """Add the time and the level, unless there is a whole line."""
    line: EventDict | None = fields.get("line")
    if line is not None:
        return line
    return {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **fields, "level": level}


def _redact(_: object, level: str, line: Any) -> bytes:
    return redacted(line)


class _Lines:
    """Receives the lines of a logger of structlog, which calls the method of their level."""

    def __init__(self, put: Callable[[bytes], object]) -> None:
        self.debug = self.info = self.warning = self.error = put
