"""What one record adds to the metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from proxy.emit import summary
from proxy.emit.declared.metric import OTHER
from proxy.errors import UpstreamError
from proxy.record import Attempt, Bill, Record, Saved
from proxy.types import Plan
from proxy.types.guard import Result
from proxy.types.outcome import Outcome
from proxy.usage import TOKEN_TYPES, micro_usd

MICRO = 1_000_000
NONE = "none"
Tags = Mapping[str, frozenset[str]]


class Child(Protocol):
    """Gives what counts for a metric and its labels."""

    def __call__(self, name: str, *labels: str) -> Any: ...


def count(child: Child, record: Record, tags: Tags) -> None:
    """Count a record that is complete."""
    deployment, endpoint = summary.deployment(record), summary.endpoint(record)
    stream = "true" if record.call is not None and record.call.stream else "false"
    dialect, trace_id = summary.dialect(record), record.ids.trace_id
    labels = (deployment, dialect, endpoint, record.outcome, stream)
    child("headrace_requests_total", *labels).inc()
    duration = child("headrace_request_duration_seconds", deployment, endpoint, stream)
    duration.observe(summary.duration(record), trace_id)
    child("headrace_overhead_seconds", deployment).observe(summary.overhead(record), trace_id)
    for attempt in record.attempts:
        _attempt(child, attempt, trace_id)
    if record.attempts:
        _billed(child, deployment, record)
    if record.plan is not None:
        _ruled(child, deployment, record.plan)
        _cached(child, deployment, record, record.plan)
    _tagged(child, deployment, record, tags)
    if record.admission is not None:
        _limited(child, record.admission)
    for stage, result in record.verdicts():
        _guarded(child, stage, result)
    if record.serving:
        _pace(child, deployment, record, trace_id)
    _oddities(child, deployment, record)


def _attempt(child: Child, attempt: Attempt, trace_id: str) -> None:
    upstream, model = attempt.target.upstream.name, attempt.target.model
    result = attempt.error or f"{(attempt.status or 0) // 100}xx"
    child("headrace_upstream_attempts_total", upstream, model, result).inc()
    spent = child("headrace_upstream_request_duration_seconds", upstream, model)
    spent.observe((attempt.ended or attempt.started) - attempt.started, trace_id)
    if attempt.why in ("retry", "hedge"):
        child("headrace_upstream_repeats_total", upstream, model, attempt.why).inc()
    for what, left in attempt.left.items():
        child(f"headrace_upstream_ratelimit_remaining_{what}", upstream, model).set(left)


def _billed(child: Child, deployment: str, record: Record) -> None:
    """Count tokens and money. A call none of whose attempts was accepted has used nothing."""
    whole, known, bills = 0, True, record.bills()
    for bill in bills:
        if bill.usage.source == "none":
            continue
        _bill(child, deployment, bill)
        known = known and bill.whole is not None
        whole += bill.whole or 0
    for use, cost in record.money():
        child("headrace_money_usd_total", deployment, use).inc(cost / MICRO)
    if not bills:
        return
    tokens, trace_id = record.tokens, record.ids.trace_id
    sizes = {"input": tokens.prompt_total, "output": tokens.completion_total}
    for direction, size in sizes.items():
        child("headrace_request_tokens", deployment, direction).observe(size, trace_id)
    if known:
        child("headrace_request_cost_usd", deployment).observe(whole / MICRO, trace_id)
    if whole:
        child("headrace_key_cost_usd_total", record.key or summary.UNKNOWN).inc(whole / MICRO)


def _bill(child: Child, deployment: str, bill: Bill) -> None:
    model, provider = bill.target.model, bill.target.upstream.provider or summary.UNKNOWN
    served = (deployment, provider, model)
    estimated = bill.usage.source == "partial_estimate"
    said = "true" if estimated else "false"
    for token_type in TOKEN_TYPES:
        number = getattr(bill.usage.tokens, token_type)
        if number:
            child("headrace_tokens_total", *served, token_type, said).inc(number)
    if estimated:
        child("headrace_usage_estimated_total", deployment, model).inc()
    whole = bill.whole
    if whole is None:
        child("headrace_unpriced_requests_total", *served).inc()
        return
    for cost_type, part in bill.parts().items():
        child("headrace_cost_usd_total", *served, cost_type).inc(part / MICRO)
    if not bill.served:
        child("headrace_lost_cost_usd_total", *served).inc(whole / MICRO)


def _tagged(child: Child, deployment: str, record: Record, tags: Tags) -> None:
    """Count by every tag that the policies know, also where the call has none of it."""
    said = record.plan.tags if record.plan is not None else {}
    tokens, whole = 0, 0
    if record.attempts:
        tokens = record.tokens.total
        whole = sum([bill.whole or 0 for bill in record.bills()])
    for tag, values in tags.items():
        value = said.get(tag)
        if value is None:
            value = NONE
        elif value not in values:  # of a pattern: there is no end to such values
            value = OTHER
        child("headrace_tagged_requests_total", tag, value, deployment).inc()
        if tokens:
            child("headrace_tagged_tokens_total", tag, value, deployment).inc(tokens)
        if whole:
            child("headrace_tagged_cost_usd_total", tag, value, deployment).inc(whole / MICRO)


def _pace(child: Child, deployment: str, record: Record, trace_id: str) -> None:
    """Observe how fast answers came that reached their end."""
    first = summary.first_token(record)
    attempt = summary.served(record)
    if attempt is not None and first is not None:
        seconds = child("headrace_time_to_first_token_seconds", deployment, attempt.target.model)
        seconds.observe(first, trace_id)
    if record.error is not None:
        return
    for attempt, bill in record.billed():
        if bill is None or not bill.served or attempt.ended is None:
            continue
        model, tokens = attempt.target.model, bill.usage.tokens.completion_total
        between = summary.between_tokens(attempt, tokens)
        if between is not None:
            latency = child("headrace_inter_token_latency_seconds", deployment, model)
            latency.observe(between, trace_id)
        took = attempt.ended - attempt.started
        if tokens and took > 0:
            speed = child("headrace_output_tokens_per_second", deployment, model)
            speed.observe(tokens / took, trace_id)


def _ruled(child: Child, deployment: str, plan: Plan) -> None:
    for rule in plan.rules:
        child("headrace_policy_rules_total", deployment, rule).inc()
    for rule in plan.would:
        child("headrace_policy_would_total", deployment, rule).inc()


def _guarded(child: Child, stage: str, result: Result) -> None:
    shadow = "true" if result.shadow else "false"
    names = (result.guard, stage, result.verdict, shadow)
    child("headrace_guard_decisions_total", *names).inc()
    child("headrace_guard_duration_seconds", result.guard, stage).observe(result.seconds)


def _limited(child: Child, admission: Outcome) -> None:
    for standing in admission.standings:
        said = "allow"
        if standing.refuses:
            said = "would_deny" if standing.limit.shadow else "deny"
        child("headrace_limit_decisions_total", standing.limit.name, said).inc()


def _cached(child: Child, deployment: str, record: Record, plan: Plan) -> None:
    if plan.cache is not None:
        child("headrace_cache_lookups_total", deployment, record.cache).inc()
        if record.looked is not None:
            looked = child("headrace_cache_lookup_duration_seconds", plan.cache.store)
            looked.observe(record.looked)
    if record.saved is not None:
        _saved(child, deployment, record.saved)


def _saved(child: Child, deployment: str, saved: Saved) -> None:
    tokens = saved.tokens
    sizes = {"input": tokens.prompt_total, "output": tokens.completion_total}
    for direction, size in sizes.items():
        child("headrace_cache_saved_tokens_total", deployment, direction).inc(size)
    if saved.cost:
        child("headrace_cache_saved_usd_total", deployment).inc(micro_usd(saved.cost) / MICRO)


def _oddities(child: Child, deployment: str, record: Record) -> None:
    for failed, next_one in summary.fallbacks(record):
        names = (failed.target.upstream.name, next_one.target.upstream.name)
        child("headrace_fallbacks_total", deployment, *names).inc()
    for skip in record.skips:
        names = (skip.target.upstream.name, skip.target.model)
        child("headrace_upstream_skipped_total", *names, skip.reason).inc()
    if record.plan is not None and record.plan.dropped_tags:
        child("headrace_dropped_tags_total", deployment).inc(record.plan.dropped_tags)
    for attempt in record.attempts:
        if attempt.meter.invalid_usage:
            names = (attempt.target.upstream.name, attempt.target.model)
            child("headrace_usage_invalid_total", *names).inc(attempt.meter.invalid_usage)
    streamed = record.call is not None and record.call.stream
    if streamed and record.error is not None and record.attempts:
        phase = "before_first" if record.first_sent is None else "after_first"
        child("headrace_stream_aborts_total", deployment, _side(record), phase).inc()


def _side(record: Record) -> str:
    if record.outcome == "client_abort":
        return "client"
    return "upstream" if isinstance(record.error, UpstreamError) else "proxy"
