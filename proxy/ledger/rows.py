"""Rows of calls, attempts and charges, by column.

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
Row = dict[str, Value]

CACHE_UPSTREAM = "cache"
MAX_SCOPE = 256
MILLISECOND = timedelta(milliseconds=1)
TOKEN_COLUMNS = tuple(f"{name}_tokens" for name in TOKEN_TYPES)


class Rows(NamedTuple):
    """Rows of a call, of its attempts, and of the budgets that it was charged to."""

    call: Row
    attempts: list[Row]
    charges: list[Row]


class CallEntry(NamedTuple):
    """Finished call, with its number in this run of the process."""

    seq: int
    summary: CallSummary


def make_rows(entry: CallEntry) -> Rows:
    """Return the rows of a call. Attempts are in the order of their start."""
    seq, summary = entry
    started_ms = to_ms(summary.started_at)
    billed = enumerate(summary.attempts, 1)
    attempts = [_make_attempt_row(seq, number, attempt) for number, attempt in billed]
    if summary.saved is not None:
        attempts.append(_make_cached_attempt_row(seq, len(attempts) + 1, summary, summary.saved))
    charges: list[Row] = [
        {
            "seq": seq,
            "budget": charge.budget,
            "scope": hash_long_or_unprintable_scope(charge.scope),
            "started_ms": started_ms,
            "cost_nano_usd": charge.cost,
        }
        for charge in summary.charges
    ]
    return Rows(_make_call_row(seq, summary, attempts, charges), attempts, charges)


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


_UNKNOWN_ATTEMPT: Row = dict.fromkeys(
    (
        "seq", "number", "leg", "why", "upstream", "provider", "model", "status", "error",
        *TOKEN_COLUMNS, "usage_source", "cost_nano_usd", "saved_nano_usd", "served", "money",
        "loss", "cache_write_1h_tokens", "web_searches", "response_id", "upstream_error_cause",
        "upstream_error_text",
    )
)  # fmt: skip


def _make_cached_attempt_row(
    seq: int, number: int, summary: CallSummary, saved: CacheSavings
) -> Row:
    """Return the attempt row of a cached response, which used no tokens."""
    return {
        **_UNKNOWN_ATTEMPT,
        "seq": seq,
        "number": number,
        "leg": 0,
        "why": "first",
        "upstream": CACHE_UPSTREAM,
        "model": summary.first_model,
        "status": summary.status,
        "usage_source": "none",
        "saved_nano_usd": saved.cost,
        "served": 1,
        "money": "cached",
    }


def _make_attempt_row(seq: int, number: int, billed: BilledAttempt) -> Row:
    attempt, result, bill = billed
    target = attempt.target
    row = {
        **_UNKNOWN_ATTEMPT,
        "seq": seq,
        "number": number,
        "leg": attempt.model_call,
        "why": attempt.reason,
        "upstream": target.upstream.name,
        "provider": target.upstream.provider,
        "model": target.model,
        "status": attempt.status,
        "error": attempt.error,
        "usage_source": bill.usage.source if bill else "none",
        "cost_nano_usd": bill.cost if bill else None,
        "saved_nano_usd": 0,
        "served": int(result.served),
        "money": result.use,
        "loss": result.loss,
        "response_id": attempt.response_id,
        "upstream_error_cause": attempt.cause,
        "upstream_error_text": attempt.system_text,
    }
    if bill and bill.usage.source != "unknown":
        tokens = bill.usage.tokens
        row.update(zip(TOKEN_COLUMNS, tokens.list_counts_by_type(), strict=True))
        row["cache_write_1h_tokens"] = tokens.cache_write_1h
        row["web_searches"] = tokens.web_searches
    return row


def _make_call_row(seq: int, summary: CallSummary, attempts: list[Row], charges: list[Row]) -> Row:
    tags = summary.tags
    return {
        "seq": seq,
        "started_ms": to_ms(summary.started_at),
        "duration_us": round(summary.duration_s * 1_000_000),
        "request_id": None if summary.request_id is None else shorten(summary.request_id),
        "trace_id": summary.trace_id,
        "span_id": summary.server_span,
        "key": summary.key,
        "deployment": summary.deployment,
        "tags": _to_json(None if tags is None else {k: shorten(v) for k, v in tags.items()}),
        "policy": summary.policy,
        "dialect": summary.dialect,
        "endpoint": summary.endpoint,
        "stream": None if summary.is_stream is None else int(summary.is_stream),
        "models": _to_json(summary.models),
        "status": summary.status,
        "outcome": summary.outcome,
        "error": summary.error,
        "cache": summary.cache,
        "attempts": len(attempts),
        "tokens": _sum_if_all_known(attempts, TOKEN_COLUMNS),
        "cost_nano_usd": _sum_if_all_known(attempts, ["cost_nano_usd"]),
        "charge_count": len(charges),
        "charged_nano_usd": sum(charge.cost for charge in summary.charges),
        "charges_checksum": sum(
            compute_charge_checksum(row["budget"], row["scope"], row["cost_nano_usd"])
            for row in charges
        ),
    }


def _sum_if_all_known(attempts: Iterable[Row], columns: Sequence[str]) -> int | None:
    """Return the sum of columns over attempts that used tokens, None if it is unknown."""
    parts = [row[c] for row in attempts if row["usage_source"] != "none" for c in columns]
    counts = [part for part in parts if isinstance(part, int)]
    return sum(counts) if parts and len(counts) == len(parts) else None


def _to_json(value: object) -> str | None:
    return None if value is None else orjson.dumps(value).decode()
