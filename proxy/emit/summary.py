"""What all emitters say of a record in the same words: names, durations, sums."""

from __future__ import annotations

from proxy.attempts import Attempt
from proxy.dialects.bounds import BOUNDS
from proxy.record import Record
from proxy.types.guard import GuardResult, Stage, Verdicts
from proxy.usage import TOKEN_TYPES

UNKNOWN = "unknown"
FINISHES = frozenset(
    {
        "content_filter",
        "end_turn",
        "eos",
        "eos_token",
        "error",
        "function_call",
        "length",
        "max_tokens",
        "model_length",
        "stop",
        "stop_sequence",
        "tool_calls",
        "tool_use",
    }
)

SIZES = (
    *BOUNDS, "n", "best_of", "temperature", "top_p", "frequency_penalty", "presence_penalty",
    "seed",
)  # fmt: skip
"""The parameters of a request that are numbers and that a rule may set or cap."""


def parameters(record: Record) -> dict[str, int | float]:
    """Return the ``SIZES`` that the request has: numbers, never a text."""
    body = record.call.body if record.call else {}
    sizes = {name: body[name] for name in SIZES if name in body}
    return {name: value for name, value in sizes.items() if type(value) in (int, float)}


def deployment(record: Record) -> str:
    """Return the deployment's name as policy has it; ``unknown`` for a call that reached none."""
    return (record.plan.deployment if record.plan else None) or UNKNOWN


def dialect(record: Record) -> str:
    return record.head.dialect if record.head else UNKNOWN


def endpoint(record: Record) -> str:
    return record.head.endpoint if record.head else UNKNOWN


def provider(attempt: Attempt) -> str:
    return attempt.target.upstream.provider or UNKNOWN


def served(record: Record) -> Attempt | None:
    """Return the attempt whose answer was used, else the last one."""
    if record.serving:
        return next(reversed(record.serving.values()))
    return record.attempts[-1] if record.attempts else None


def fallbacks(record: Record) -> list[tuple[Attempt, Attempt]]:
    """Return the pairs of attempts of one leg of which the second stepped in for the first."""
    pairs = []
    for number, attempt in enumerate(record.attempts):
        before = [a for a in record.attempts[:number] if a.leg == attempt.leg]
        if attempt.why == "fallback" and before:
            pairs.append((before[-1], attempt))
    return pairs


def duration(record: Record) -> float:
    return (record.ended or record.started) - record.started


def first_token(record: Record) -> float | None:
    """Seconds from the request to the first text of any leg."""
    moments = [m.first_token_at for m in record.meters() if m.first_token_at is not None]
    return min(moments) - record.started if moments else None


def between_tokens(attempt: Attempt, tokens: int) -> float | None:
    """Return the mean seconds between tokens; None where the answer came as a whole."""
    first, last = attempt.meter.first_token_at, attempt.meter.last_token_at
    if tokens < 2 or first is None or last is None or last <= first:
        return None
    return (last - first) / (tokens - 1)


def overhead(record: Record) -> float:
    """Seconds that the proxy itself took: all but the time from first to last of its upstreams,
    and the time for which it shared the answer of another call."""
    if not record.attempts:
        return max(0.0, duration(record) - record.waited)
    ends = [attempt.ended for attempt in record.attempts if attempt.ended is not None]
    waited = max(ends) - record.attempts[0].started if ends else 0.0
    return max(0.0, duration(record) - record.waited - waited)


def finish_reasons(record: Record) -> list[str]:
    """Return why answers ended, in known words only: an upstream may write anything."""
    reasons = {why for meter in record.meters() for why in meter.finish_reasons.values()}
    return sorted({why if why in FINISHES else "other" for why in reasons})


def verdicts(record: Record) -> Verdicts:
    """Return what guards said, each thing once: of a list of models every answer is looked at, and
    so many have no more to say than one."""
    all_verdicts = record.verdicts()
    merged: dict[tuple[object, ...], tuple[Stage, GuardResult]] = {}
    for stage, result in all_verdicts:
        key = stage, result.guard, result.verdict, result.shadow, result.error
        known = merged.get(key)
        merged[key] = (stage, result if known is None else _joined(known[1], result))
    return all_verdicts if len(merged) == len(all_verdicts) else list(merged.values())


def _joined(one: GuardResult, other: GuardResult) -> GuardResult:
    kinds = {**one.findings, **other.findings}
    return one._replace(
        findings={kind: one.findings.get(kind, 0) + other.findings.get(kind, 0) for kind in kinds},
        score=max(one.score, other.score),
        bytes=one.bytes + other.bytes,
        fields=one.fields + other.fields,
        seconds=one.seconds + other.seconds,
    )


def token_counts(record: Record) -> dict[str, int]:
    """Return the disjoint counts that are not zero."""
    tokens = record.billing.tokens
    return {name: count for name in TOKEN_TYPES if (count := getattr(tokens, name))}
