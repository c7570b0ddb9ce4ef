"""Rows of calls, attempts and charges, and their columns.

Texts of clients are bounded and printable. Rows contain no prompt, no response and no key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import NamedTuple
from zlib import crc32

import orjson

from proxy.call.attempts import BilledAttempt, CacheSavings
from proxy.call.facts import CallSummary
from proxy.errors.words import shorten
from proxy.money.usage import TOKEN_TYPES
from proxy.types import EPOCH

Value = str | int | None
Row = tuple[Value, ...]

CACHE_UPSTREAM = "cache"
MAX_SCOPE = 256
MILLISECOND = timedelta(milliseconds=1)

CALL_COLUMNS = (
    "seq", "started_ms", "duration_us", "request_id", "trace_id", "span_id", "key", "deployment",
    "tags", "policy", "dialect", "endpoint", "stream", "models", "status", "outcome", "error",
    "cache", "attempts", "tokens", "cost_nano_usd", "charge_count", "charged_nano_usd",
    "charges_checksum",
)  # fmt: skip
CHARGE_COLUMNS = ("seq", "budget", "scope", "started_ms", "cost_nano_usd")
TOKEN_COLUMNS = tuple(f"{name}_tokens" for name in TOKEN_TYPES)
ATTEMPT_COLUMNS = (
    "seq", "number", "leg", "why", "upstream", "provider", "model", "status", "error",
    *TOKEN_COLUMNS, "usage_source", "cost_nano_usd", "saved_nano_usd", "served", "money", "loss",
    "cache_write_1h_tokens", "web_searches", "response_id", "upstream_error_cause",
    "upstream_error_text",
)  # fmt: skip


class Rows(NamedTuple):
    """Rows of calls, of their attempts, and of the budgets that they were charged to."""

    calls: list[Row]
    attempts: list[Row]
    charges: list[Row]


def join_rows(batch: Iterable[Rows]) -> Rows:
    """Return several batches as one."""
    parts = list(batch)
    return Rows(
        calls=[row for part in parts for row in part.calls],
        attempts=[row for part in parts for row in part.attempts],
        charges=[row for part in parts for row in part.charges],
    )


class CallEntry(NamedTuple):
    """Finished call, with its number in this run of the process."""

    seq: int
    summary: CallSummary


def make_rows(entry: CallEntry) -> Rows:
    """Return the rows of a call. Attempts are in the order of their start."""
    seq, summary = entry
    started_ms = to_ms(summary.started_at)
    attempts = [
        _make_attempt_row(seq, number, billed) for number, billed in enumerate(summary.attempts, 1)
    ]
    if summary.saved is not None:
        attempts.append(_make_cached_attempt_row(seq, summary, summary.saved))
    charges: list[Row] = [
        (seq, charge.budget, hash_long_or_unprintable_scope(charge.scope), started_ms, charge.cost)
        for charge in summary.charges
    ]
    calls = [_make_call_row(seq, summary, started_ms, attempts, charges)]
    return Rows(calls=calls, attempts=attempts, charges=charges)


def to_ms(moment: datetime) -> int:
    """Return a moment in milliseconds of UTC."""
    return (moment - EPOCH) // MILLISECOND


def compute_charge_checksum(budget: Value, scope: Value, cost: Value) -> int:
    """Return the checksum of a charge. The row of a call has the sum of its charges' checksums."""
    return crc32(f"{budget}\0{scope}\0{cost}".encode(errors="surrogatepass"))


def hash_long_or_unprintable_scope(scope: str) -> str:
    """Return the form of a scope in rows.

    A hash replaces a long or unprintable scope, part of which a client wrote.
    """
    if scope.isprintable() and len(scope) <= MAX_SCOPE:
        return scope
    return f"sha256:{sha256(scope.encode(errors='surrogatepass')).hexdigest()}"


def _make_cached_attempt_row(seq: int, summary: CallSummary, saved: CacheSavings) -> Row:
    """Return the attempt row of a cached response, which used no tokens."""
    number, model = len(summary.attempts) + 1, summary.first_model
    request = (seq, number, 0, "first", CACHE_UPSTREAM, None, model, summary.status, None)
    return (
        *request,
        *_NO_TOKENS,
        "none",
        None,
        saved.cost,
        1,
        "cached",
        *(None,) * TRAILING_COLUMNS,
    )


def _make_attempt_row(seq: int, number: int, billed: BilledAttempt) -> Row:
    attempt, result, bill = billed
    target = attempt.target
    tokens = bill.usage.tokens if bill and bill.usage.source != "unknown" else None
    return (
        seq,
        number,
        attempt.model_call,
        attempt.reason,
        target.upstream.name,
        target.upstream.provider,
        target.model,
        attempt.status,
        attempt.error,
        *(tokens.list_counts_by_type() if tokens else _NO_TOKENS),
        bill.usage.source if bill else "none",
        bill.cost if bill else None,
        0,  # cost saved by the cache
        int(result.served),
        result.use,
        result.loss,
        tokens.cache_write_1h if tokens else None,
        tokens.web_searches if tokens else None,
        attempt.response_id,
        attempt.cause,
        attempt.system_text,
    )


_NO_TOKENS = (None,) * len(TOKEN_COLUMNS)
TRAILING_COLUMNS = len(ATTEMPT_COLUMNS) - ATTEMPT_COLUMNS.index("loss")


def _make_call_row(
    seq: int, summary: CallSummary, started_ms: int, attempts: list[Row], charges: list[Row]
) -> Row:
    return (
        seq,
        started_ms,
        round(summary.duration_s * 1_000_000),
        None if summary.request_id is None else shorten(summary.request_id),
        summary.trace_id,
        summary.server_span,
        summary.key,
        summary.deployment,
        _serialize_json(
            {k: shorten(v) for k, v in summary.tags.items()} if summary.tags is not None else None
        ),
        summary.policy,
        summary.dialect,
        summary.endpoint,
        None if summary.is_stream is None else int(summary.is_stream),
        _serialize_json(summary.models),
        summary.status,
        summary.outcome,
        summary.error,
        summary.cache,
        len(attempts),
        _sum_columns_if_all_known(attempts, _FIRST_TOKENS, _END_TOKENS),
        _sum_columns_if_all_known(attempts, _COST, _COST + 1),
        len(charges),
        sum(charge.cost for charge in summary.charges),
        sum(compute_charge_checksum(budget, scope, cost) for _, budget, scope, _, cost in charges),
    )


_SOURCE, _COST = ATTEMPT_COLUMNS.index("usage_source"), ATTEMPT_COLUMNS.index("cost_nano_usd")
_FIRST_TOKENS = ATTEMPT_COLUMNS.index(TOKEN_COLUMNS[0])
_END_TOKENS = _FIRST_TOKENS + len(TOKEN_COLUMNS)


def _sum_columns_if_all_known(attempts: Sequence[Row], begin: int, end: int) -> int | None:
    """Return the sum of columns over attempts that used tokens, None if it is unknown."""
    total: int | None = None
    for row in attempts:
        if row[_SOURCE] == "none":
            continue
        for value in row[begin:end]:
            if type(value) is not int:
                return None
            total = value if total is None else total + value
    return total


def _serialize_json(value: object) -> str | None:
    return None if value is None else orjson.dumps(value).decode()
