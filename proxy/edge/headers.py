"""The headers of a response, made by us alone; of an upstream's only those its dialect shows."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.dialects.base import Client
from proxy.record import Record
from proxy.types import Head, Json
from proxy.types.outcome import Standing

MAX_WARNING = 1024


def of_every_response(record: Record) -> dict[str, str]:
    """What a response carries whatever it says, a refusal too."""
    headers = {
        "content-type": "application/json",
        "cache-control": "no-store",
        "server": "headrace",
        "x-trace-id": record.ids.trace_id,
        "x-headrace-cache": record.cache,
    }
    if record.cache == "hit_semantic":
        headers["x-headrace-cache"] = "hit"
        headers["x-headrace-cache-score"] = f"{record.likeness or 0:.3f}"
    warnings = list(record.warnings)
    if record.door is not None:
        headers.update(record.door.echo)
        warnings += record.door.warnings
    if record.revision is not None:
        headers["x-headrace-policy"] = record.revision
    if record.plan is not None:
        warnings += record.plan.warnings
        if record.plan.deployment is not None:
            headers["x-headrace-deployment"] = record.plan.deployment
    if record.admission is not None:
        headers.update(of_limits(record.admission.standings))
    if warnings:
        headers["x-headrace-warning"] = "; ".join(warnings)[:MAX_WARNING]
    return headers


def of_limits(standings: Iterable[Standing]) -> dict[str, str]:
    """Say how far the client is from its tightest rates of requests and of tokens."""
    headers: dict[str, str] = {}
    for kind in ("requests", "tokens"):
        rates = [each for each in standings if each.limit.kind == kind and not each.limit.shadow]
        if rates:
            tightest = min(rates, key=lambda each: each.remaining / each.limit.capacity)
            headers |= {
                f"x-ratelimit-limit-{kind}": str(tightest.limit.capacity),
                f"x-ratelimit-remaining-{kind}": str(tightest.remaining),
                f"x-ratelimit-reset-{kind}": f"{tightest.reset_s or 0:g}s",
            }
    return headers


def of_answer(
    record: Record, head: Head, client: Client, media_type: str, data: Json | None
) -> dict[str, str]:
    """What an answer carries beside. The cost of a stream is known only at its end."""
    headers = of_every_response(record)
    headers["content-type"] = media_type
    headers.update(head.headers)
    if client.headers is not None:
        headers.update(client.headers(data, len(record.attempts), record.cache))
    if head.streamed:
        headers["x-accel-buffering"] = "no"
    elif (record.attempts or record.saved) and (cost := record.cost) is not None:
        headers["x-headrace-cost-usd"] = f"{cost / 1_000_000:f}"
    return headers
