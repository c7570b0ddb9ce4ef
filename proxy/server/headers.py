"""Response headers. Of an upstream's headers only those that the dialect forwards are sent."""

from __future__ import annotations

from proxy.call.record import Record
from proxy.dialects.base import ClientDialect
from proxy.errors import ProxyError
from proxy.limits.kinds import KINDS
from proxy.money.usage import usd_text
from proxy.types import UNBILLED, Json, ResponseHead
from proxy.types.limit import Limit, LimitKind
from proxy.types.outcome import READING, LimitDecision

MAX_WARNING = 1024
ERROR = "x-headrace-error"
FLAGGED = "flagged by a guard of the upstream"
RATES = tuple(kind for kind in KINDS.values() if kind.headers is not None)


def of_every_response(record: Record, *, flagged: bool = False) -> dict[str, str]:
    """Return the headers of every response, errors included."""
    headers = {
        "content-type": "application/json",
        "cache-control": "no-store",
        "server": "headrace",
        "x-trace-id": record.ids.trace_id,
        "x-headrace-cache": record.cache,
    }
    head, plan = record.head, record.plan
    if head is not None and head.echo:
        headers.update(head.echo)
    if record.revision is not None:
        headers["x-headrace-policy"] = record.revision
    if plan is not None and plan.deployment is not None:
        headers["x-headrace-deployment"] = plan.deployment
    if record.limit_decision is not None:
        headers.update(of_limits(record.limit_decision))
    if warnings := _warnings(record, flagged=flagged):
        headers["x-headrace-warning"] = "; ".join(warnings)[:MAX_WARNING]
    return headers


def _warnings(record: Record, *, flagged: bool) -> list[str]:
    warnings: list[str] = list(record.warnings)
    for warned in (record.call, record.head, record.plan):
        if warned is not None and warned.warnings:
            warnings += warned.warnings
    if flagged:
        warnings.append(FLAGGED)
    return warnings


def of_refusal(record: Record, error: ProxyError) -> dict[str, str]:
    """Return the headers of an error response, including our error code."""
    return {**of_every_response(record), ERROR: error.code}


def of_limits(admission: LimitDecision) -> dict[str, str]:
    """Return the rate limit headers of the tightest rate of each kind."""
    tightest: dict[LimitKind, tuple[float, Limit, int, int]] = {}
    for index, claim in enumerate(admission.claims):
        limit = claim.limit
        kind = limit.kind
        if kind.headers is not None and not limit.shadow:
            debt = admission.readings[index * READING]
            available = limit.capacity + -debt // limit.debt_per_unit
            share = available / limit.capacity if available > 0 else 0.0
            if kind not in tightest or share < tightest[kind][0]:
                tightest[kind] = share, limit, available if available > 0 else 0, debt
    headers: dict[str, str] = {}
    for kind in RATES:
        if kind in tightest and kind.headers is not None:
            size, remaining, reset = kind.headers
            _, limit, available, debt = tightest[kind]
            headers[size] = str(limit.capacity)
            headers[remaining] = str(available)
            headers[reset] = f"{-(-debt // limit.drain_per_ms) / 1000:g}s"
    return headers


def of_answer(
    record: Record, head: ResponseHead, client: ClientDialect, media_type: str, data: Json | None
) -> dict[str, str]:
    """Return the headers of a response. Streams lack the cost, which is known only at the end."""
    headers = of_every_response(record, flagged=head.is_flagged)
    headers["content-type"] = media_type
    if head.headers:
        headers.update(head.headers)
    if client.headers is not None:
        headers.update(client.headers(data, len(record.attempts), record.cache))
    request_head = record.head
    is_free = request_head is not None and request_head.endpoint in UNBILLED
    is_priced = record.attempts or record.saved or is_free
    if head.streamed:
        headers["x-accel-buffering"] = "no"
    elif is_priced and (cost := record.billing.cost) is not None:
        headers["x-headrace-cost-usd"] = usd_text(cost)
    return headers
