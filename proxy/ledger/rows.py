"""The rows of a call: one for itself, one for each of its attempts, in the columns named here.

What a client wrote is cut and made printable; no prompt, no answer and no key text is ever taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from operator import attrgetter
from typing import NamedTuple

import orjson

from proxy.attempts import Outcome
from proxy.billing import Billed, BudgetCharge, Saved
from proxy.record import Record, TraceIds
from proxy.types import EPOCH
from proxy.usage import TOKEN_TYPES
from proxy.words import Word, few, word

Value = str | int | None
Row = tuple[Value, ...]

CACHE = "cache"
MAX_SCOPE = 256
MILLISECOND = timedelta(milliseconds=1)

CALL = (
    "seq",
    "started_ms",
    "duration_us",
    "request_id",
    "trace_id",
    "span_id",
    "key",
    "deployment",
    "tags",
    "policy",
    "dialect",
    "endpoint",
    "stream",
    "models",
    "status",
    "outcome",
    "error",
    "cache",
    "attempts",
    "tokens",
    "cost_nano_usd",
)
CHARGE = ("seq", "budget", "scope", "started_ms", "cost_nano_usd")
TOKENS = tuple(f"{name}_tokens" for name in TOKEN_TYPES)
ATTEMPT = (
    "seq",
    "number",
    "leg",
    "why",
    "upstream",
    "provider",
    "model",
    "status",
    "error",
    *TOKENS,
    "usage_source",
    "cost_nano_usd",
    "saved_nano_usd",
    "served",
    "money",
    "loss",
)
_counts = attrgetter(*TOKEN_TYPES)


class Rows(NamedTuple):
    """The rows of a batch, or of one call: of calls, of their attempts, of what budgets they were
    charged to."""

    calls: list[Row]
    attempts: list[Row]
    charges: list[Row]


def joined(batch: Iterable[Rows]) -> Rows:
    """Return the rows of several batches as one."""
    rows = Rows([], [], [])
    for each in batch:
        for kind, more in zip(rows, each, strict=True):
            kind.extend(more)
    return rows


class CallEntry(NamedTuple):
    """What is left of a record on the event loop: references, so that noting it costs little.

    ``attempts`` come with what became of them, as the record has it.
    """

    seq: int
    started_at: datetime
    seconds: float
    ids: TraceIds
    request_id: str | None
    dialect: str | None
    endpoint: str | None
    key: str | None
    policy: str | None
    deployment: str | None
    tags: Mapping[str, str] | None
    stream: bool | None
    models: list[Word] | None
    status: int | None
    outcome: Outcome
    error: str | None
    cache: str
    attempts: Sequence[Billed]
    saved: Saved | None = None
    model: str = ""
    charges: Sequence[BudgetCharge] = ()

    @property
    def rows(self) -> int:
        """How many rows of attempts it has: an answer that was kept has one without an upstream."""
        return len(self.attempts) + (self.saved is not None)


def noted(seq: int, record: Record) -> CallEntry:
    """Note a record that is complete. The call's body is let go here."""
    head, call, plan, error = record.head, record.call, record.plan, record.error
    return CallEntry(
        seq=seq,
        started_at=record.started_at,
        seconds=(record.ended or record.started) - record.started,
        ids=record.ids,
        request_id=record.request_id,
        dialect=head.dialect if head else None,
        endpoint=head.endpoint if head else None,
        key=record.key,
        policy=record.revision,
        deployment=plan.deployment if plan else None,
        tags=plan.tags if plan else None,
        stream=call.stream if call else None,
        models=[word(model) for model in few(call.models)] if call else None,
        status=record.status,
        outcome=record.outcome,
        error=error.code if error else None,
        cache=record.cache,
        attempts=record.billing.attempts,
        saved=record.saved,
        model=plan.model_calls[0].targets[0].model if plan and plan.model_calls else "",
        charges=record.charges,
    )


def rows_of(entry: CallEntry) -> Rows:
    """Return the rows of a call."""
    attempts = attempt_rows(entry)
    return Rows([call_row(entry, attempts)], attempts, charge_rows(entry))


def charge_rows(entry: CallEntry) -> list[Row]:
    """Return a row for each counter of a budget that the call was charged to."""
    started_ms = _started_ms(entry)
    return [
        (entry.seq, each.budget, counter_name(each.scope), started_ms, each.cost)
        for each in entry.charges
    ]


def counter_name(scope: str) -> str:
    """Return a scope as rows have it: one that is long or cannot be printed, as what a client wrote
    is part of it, by its hash."""
    if scope.isprintable() and len(scope) <= MAX_SCOPE:
        return scope
    return f"sha256:{sha256(scope.encode(errors='surrogatepass')).hexdigest()}"


def _started_ms(entry: CallEntry) -> int:
    return (entry.started_at - EPOCH) // MILLISECOND


def attempt_rows(entry: CallEntry) -> list[Row]:
    """Return a row for each attempt, in the order in which they began."""
    rows = [_attempt_row(entry, number, billed) for number, billed in enumerate(entry.attempts, 1)]
    if entry.saved is not None:
        rows.append(_kept_row(entry, entry.saved))
    return rows


def _kept_row(entry: CallEntry, saved: Saved) -> Row:
    """The row of an answer that the cache gave: nothing was used, and this much saved."""
    asked = (entry.seq, entry.rows, 0, "first", CACHE, None, entry.model, entry.status, None)
    return (*asked, *_NOTHING, "none", None, saved.cost, 1, "cached", None)


def _attempt_row(entry: CallEntry, number: int, billed: Billed) -> Row:
    attempt, fate, bill = billed
    target = attempt.target
    return (
        entry.seq,
        number,
        attempt.leg,
        attempt.why,
        target.upstream.name,
        target.upstream.provider,
        target.model,
        attempt.status,
        attempt.error,
        *(_counts(bill.usage.tokens) if bill else _NOTHING),
        bill.usage.source if bill else "none",
        bill.cost if bill else None,
        0,  # an upstream was asked, so nothing was saved
        int(fate.served),
        fate.use,
        fate.loss,
    )


_NOTHING = (None,) * len(TOKENS)


def call_row(entry: CallEntry, attempts: list[Row]) -> Row:
    """Return the row of a call; its sums are those of its attempts' rows."""
    used = [row for row in attempts if row[_SOURCE] != "none"]
    return (
        entry.seq,
        _started_ms(entry),
        round(entry.seconds * 1_000_000),
        _word(entry.request_id),
        entry.ids.trace_id,
        entry.ids.server_span,
        entry.key,
        entry.deployment,
        _json({k: word(v) for k, v in entry.tags.items()} if entry.tags is not None else None),
        entry.policy,
        entry.dialect,
        entry.endpoint,
        None if entry.stream is None else int(entry.stream),
        _json(entry.models),
        entry.status,
        entry.outcome,
        entry.error,
        entry.cache,
        len(attempts),
        total(count for row in used for count in row[_FIRST : _FIRST + len(TOKENS)]),
        total(row[_COST] for row in used),
    )


_SOURCE, _COST = ATTEMPT.index("usage_source"), ATTEMPT.index("cost_nano_usd")
_FIRST = ATTEMPT.index(TOKENS[0])


def total(values: Iterator[Value]) -> int | None:
    """Add up; None as soon as one is unknown, or when there is none."""
    known = list(values)
    whole = [value for value in known if isinstance(value, int)]
    return sum(whole) if known and len(whole) == len(known) else None


def _word(text: str | None) -> str | None:
    return None if text is None else word(text)


def _json(value: object) -> str | None:
    return None if value is None else orjson.dumps(value).decode()
