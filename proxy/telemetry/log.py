"""The log line of a call, without prompts, responses and keys; log level and quota of lines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar, get_args

import orjson
from structlog.typing import FilteringBoundLogger

from proxy.call.attempts import Attempt, CallOutcome
from proxy.call.facts import UNKNOWN, CallSummary, Failure
from proxy.call.record import Record
from proxy.call.summary import summarize
from proxy.errors.words import MAX_WORDS
from proxy.fields.token_bounds import OUTPUT_LIMIT_FIELDS as TOKEN_BOUNDS
from proxy.money.usage import NANO_PER_USD, TOKEN_TYPES, Tokens
from proxy.runtime.frozen import frozen
from proxy.telemetry.attributes import to_usd
from proxy.types.guard import GuardResults

LEVELS: Mapping[str, int] = MappingProxyType(
    {
        "debug": logging.DEBUG,
        "info": logging.INFO,
        "warning": logging.WARNING,
        "error": logging.ERROR,
    }
)
MAX_LEVEL_S = 24 * 3600.0


class LogLevel:
    """Log level that can be changed temporarily. ``now`` returns monotonic seconds."""

    def __init__(self, usual: str, now: Callable[[], float]) -> None:
        self._usual = usual
        self._now = now
        self._other = usual
        self._until = 0.0

    @property
    def name(self) -> str:
        return self._other if self._until and self._now() < self._until else self._usual

    @property
    def number(self) -> int:
        """Number of the active level in ``LEVELS``."""
        return LEVELS[self.name if self._until else self._usual]

    @property
    def remaining_s(self) -> float:
        """Seconds until the usual level returns, 0 if it is active."""
        return max(0.0, self._until - self._now())

    def allows(self, level: str) -> bool:
        return LEVELS[level] >= self.number

    def set_temporarily(self, level: str, seconds: float) -> None:
        """Set a level for a number of seconds. Raises ``ValueError``."""
        if level not in LEVELS:
            raise ValueError(f"level must be one of {', '.join(LEVELS)}")
        if not 0 < seconds <= MAX_LEVEL_S:
            raise ValueError(f"seconds must be greater than 0 and at most {MAX_LEVEL_S:g}")
        self._other = level
        self._until = self._now() + seconds


LINES_PER_BURST = 20
REFILL_PER_MINUTE = 10


class Quota:
    """Token bucket that holds ``burst`` tokens and gets ``per_minute`` new ones.

    ``now`` returns monotonic seconds.
    """

    def __init__(
        self,
        now: Callable[[], float],
        burst: float = LINES_PER_BURST,
        per_minute: float = REFILL_PER_MINUTE,
    ) -> None:
        self._now = now
        self._burst = burst
        self._per_second = per_minute / 60
        self._tokens = burst
        self._updated_at = now()
        self._refused = 0

    def take_token(self) -> int | None:
        """Take a token. Return the number of refusals since the last token, None if empty."""
        now = self._now()
        self._tokens = min(self._burst, self._tokens + (now - self._updated_at) * self._per_second)
        self._updated_at = now
        if self._tokens < 1:
            self._refused += 1
            return None
        self._tokens -= 1
        refused, self._refused = self._refused, 0
        return refused


LOGGED_PARAMETERS = frozenset(
    {
        *TOKEN_BOUNDS, "n", "best_of", "temperature", "top_p", "frequency_penalty",
        "presence_penalty", "seed",
    }
)  # fmt: skip
"""Numeric parameters of a request that a rule may set or cap."""
NUMBER_TYPES = frozenset({int, float})
LEVEL_BY_OUTCOME: Mapping[str, str] = {
    **dict.fromkeys(get_args(CallOutcome), "info"),
    **{"proxy_error": "error", "upstream_error": "warning", "timeout": "warning"},
}
FAILURE_ATTRIBUTES: Mapping[str, str] = {
    "error": "code",
    "upstream_status": "upstream_status",
    "upstream_error_cause": "cause",
    "upstream_error_text": "text",
    "upstream_error_type": "upstream_type",
    "upstream_error_code": "upstream_code",
}
"""Attributes of ``Failure`` by the field of a line."""
NO_FAILURE_FIELDS = dict.fromkeys(FAILURE_ATTRIBUTES)


def to_ms(seconds: float) -> float:
    """Return milliseconds, rounded to microseconds."""
    return round(seconds * 1_000_000) / 1000


def format_time(moment: datetime) -> str:
    """Return a moment in UTC as ISO 8601 with milliseconds, faster than ``isoformat``."""
    text = orjson.dumps(moment).decode()
    return f"{text[1:24]}+00:00" if moment.microsecond else f"{text[1:20]}.000+00:00"


def build_call_line(record: Record) -> dict[str, Any]:
    """Return the line of a call as data. Unknown values are null, never zero."""
    summary, body = record.summary or summarize(record), record.call.body if record.call else {}
    target = summary.served.target if summary.served else None
    saved, failure = summary.saved, summary.failure
    is_used = summary.usage_source != "none"
    cost, lost_count, ttft_s = summary.cost, summary.lost_cost, summary.ttft_s
    line = {
        "time": format_time(summary.started_at),
        "level": LEVEL_BY_OUTCOME[summary.outcome],
        "event": "call",
        "request_id": summary.request_id,
        "trace_id": summary.trace_id,
        "span_id": summary.server_span,
        "key": summary.key,
        "deployment": summary.deployment,
        "tags": dict(summary.tags) if summary.tags else {},
        "policy": summary.policy,
        "rules": summary.rules,
        "shadow_rules": summary.shadow_rules,
        "dialect": summary.dialect or UNKNOWN,
        "route": summary.route,
        "endpoint": summary.endpoint or UNKNOWN,
        "stream": summary.is_stream is True,
        "models": summary.models or [],
        "parameters": {
            name: value
            for name, value in body.items()
            if name in LOGGED_PARAMETERS and type(value) in NUMBER_TYPES
        },
        "provider": target.upstream.provider if target else None,
        "upstream": target.upstream.name if target else None,
        "model": target.model if target else None,
        "status": summary.status,
        "outcome": summary.outcome,
        **(NO_FAILURE_FIELDS if failure is None else _make_failure_fields(failure)),
        "duration_ms": to_ms(summary.duration_s),
        "ttft_ms": None if ttft_s is None else to_ms(ttft_s),
        "overhead_ms": to_ms(summary.overhead_s),
        "tokens": _list_token_counts(summary.tokens)
        if is_used and summary.usage_source != "unknown"
        else None,
        "usage_source": summary.usage_source,
        "cost_usd": cost / NANO_PER_USD if is_used and cost is not None else None,
        "lost_cost_usd": lost_count / NANO_PER_USD if is_used and lost_count is not None else None,
        "cache": summary.cache,
        "cache_semantic_match": summary.semantic_match,
        "guards": _list_guard_results(summary.verdicts) if summary.verdicts else [],
        "upstream_guards": _list_upstream_verdicts(summary) if summary.upstream_findings else [],
        "saved_tokens": saved.tokens.total if saved else None,
        "saved_usd": to_usd(saved.cost) if saved else None,
        "attempts": len(summary.attempts),
        "skipped": [skip.target.id for skip in summary.skips[:MAX_WORDS]] if summary.skips else [],
        "finish_reasons": summary.finish_reasons,
        "warnings": _collect_warnings(record),
    }
    if summary.properties:
        line["properties"] = dict(summary.properties)
    return line


def _make_failure_fields(failure: Failure) -> dict[str, Any]:
    """Return the fields of a failed call, including an unknown path and an invalid key."""
    fields = {name: getattr(failure, FAILURE_ATTRIBUTES[name]) for name in FAILURE_ATTRIBUTES}
    if failure.path is not None:
        fields["wanted_path"] = failure.path
    elif failure.key_problem is not None:
        fields["unauthorized"] = {"reason": failure.key_problem, "key": failure.rejected_key}
    return fields


def _list_token_counts(tokens: Tokens) -> dict[str, int]:
    """Return the counts that are not zero. They do not overlap."""
    by_type = enumerate(tokens.list_counts_by_type())
    counts = {TOKEN_TYPES[index]: count for index, count in by_type if count}
    if tokens.cache_write_1h or tokens.web_searches:
        counts |= tokens.list_extra_billed_counts()
    return counts


def _collect_warnings(record: Record) -> list[str]:
    """Return all warnings that the client got."""
    warnings: list[str] = []
    for source in (record.call, record.head, record.plan):
        if source is not None and source.warnings:
            warnings += source.warnings[:MAX_WORDS]
    return [*warnings, *record.warnings]


def _list_guard_results(verdicts: GuardResults) -> list[dict[str, Any]]:
    """Return the results of guards: counts by kind, never a text."""
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


def _list_upstream_verdicts(summary: CallSummary) -> list[dict[str, Any]]:
    """Return the verdicts of the upstreams' own guards."""
    return [
        {
            "upstream": upstream,
            "guard": finding.detector,
            "stage": finding.stage,
            "verdict": "flagged" if finding.found else "passed",
        }
        for upstream, finding in summary.upstream_findings
    ]


def is_in_sample(sample_id: str, ratio: float) -> bool:
    """Return True if the ``sample_id`` of a call falls into the share ``ratio`` of all calls."""
    return int(sample_id[16:], 16) < ratio * 2**64


@frozen
class CallLog:
    """Sink that writes one line per call, and at the level ``debug`` one per attempt.

    Of successful calls only the share ``ratio`` is written. ``on_line`` gets the line of every
    call, whether it is written or not.
    """

    name: ClassVar[str] = "calllog"

    log: FilteringBoundLogger
    levels: LogLevel
    ratio: float = 1.0
    on_line: Callable[[Record, dict[str, Any]], None] | None = None

    def emit(self, record: Record) -> None:
        if not record.is_reported:
            return
        outcome, min_level = (record.summary or summarize(record)).outcome, self.levels.number
        level = LEVEL_BY_OUTCOME[outcome]
        is_written = LEVELS[level] >= min_level and self._is_sampled(record, outcome)
        if not is_written and self.on_line is None:
            return
        line = build_call_line(record)
        if self.on_line is not None:
            self.on_line(record, line)
        if is_written:
            self._write(record, line, level)

    def _is_sampled(self, record: Record, outcome: CallOutcome) -> bool:
        return self.ratio >= 1 or outcome != "success" or is_in_sample(record.sample_id, self.ratio)

    def _write(self, record: Record, line: dict[str, Any], level: str) -> None:
        if record.unreported_count:
            line["suppressed"] = record.unreported_count
        if self.ratio < 1:
            line["sample_ratio"] = self.ratio if line["outcome"] == "success" else 1.0
        # As one value: structlog copies fields that are keyword arguments.
        self.log.log(LEVELS[level], "call", line=line)
        if self.levels.number <= logging.DEBUG:
            for attempt in record.attempts:
                self.log.debug("attempt", line=_make_attempt_line(record, attempt))


def _make_attempt_line(record: Record, attempt: Attempt) -> dict[str, Any]:
    return {
        "time": format_time(record.started_at),
        "level": "debug",
        "event": "attempt",
        "request_id": record.request_id,
        "trace_id": record.ids.trace_id,
        "span_id": attempt.span_id,
        "upstream": attempt.target.upstream.name,
        "model": attempt.target.model,
        "why": attempt.reason,
        "status": attempt.status,
        "error": attempt.error,
        "upstream_error_cause": attempt.cause,
        "upstream_error_text": attempt.system_text,
        "began_ms": to_ms(attempt.started - record.started),
        "duration_ms": to_ms((attempt.ended or attempt.started) - attempt.started),
    }
