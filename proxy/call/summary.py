"""Computes the summary of a call."""

from __future__ import annotations

from proxy import errors
from proxy.call.attempts import Attempt, CallOutcome, sum_lost_cost
from proxy.call.facts import CallSummary, Failure, Side
from proxy.call.meter import Meter
from proxy.call.record import Record
from proxy.errors.words import MAX_WORDS, shorten
from proxy.types.guard import GuardResult, GuardResults, Stage

KNOWN_FINISH_REASONS = frozenset(
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


def summarize(record: Record) -> CallSummary:
    """Return the summary of a call. It is cached once the call has ended."""
    if record.summary is not None:
        return record.summary
    summary = CallSummary()
    _set_request(summary, record)
    _set_outcome(summary, record)
    _set_decisions(summary, record)
    if record.ended is not None:
        record.summary = summary
    return summary


def _set_request(summary: CallSummary, record: Record) -> None:
    head, call, plan = record.head, record.call, record.plan
    summary.trace_id = record.ids.trace_id
    summary.server_span = record.ids.server_span
    summary.started_at = record.started_at
    summary.request_id = record.request_id
    summary.key = record.key
    summary.credential = record.credential
    summary.policy = record.revision
    summary.deployment = plan.deployment if plan else None
    summary.tags = plan.tags if plan else None
    summary.dropped_tags = plan.dropped_tags if plan else 0
    summary.properties = head.properties if head else ()
    summary.rules = plan.rules if plan else ()
    summary.shadow_rules = plan.shadow_rules if plan else ()
    summary.dialect = head.dialect if head else None
    summary.endpoint = head.endpoint if head else None
    summary.route = head.route if head else None
    summary.method = head.method if head else "POST"
    summary.is_stream = call.stream if call else None
    summary.models = (
        [shorten(model) for model in call.requested_models[:MAX_WORDS]] if call else None
    )
    summary.first_model = plan.model_calls[0].targets[0].model if plan and plan.model_calls else ""
    summary.cache_store = plan.cache.store if plan and plan.cache else None


def _set_outcome(summary: CallSummary, record: Record) -> None:
    attempts, billing, meters = record.attempts, record.billing, record.get_used_meters()
    outcome = record.outcome
    billed = record.build_billed_attempts(outcome)
    duration_s = (record.ended or record.started) - record.started
    overhead_s = duration_s - record.wait_s - _measure_attempts_span_s(attempts)
    summary.duration_s = duration_s
    summary.ttft_s = _compute_seconds_to_first_token(meters, record.started)
    summary.overhead_s = overhead_s if overhead_s > 0 else 0.0
    summary.status = record.status
    summary.outcome = outcome
    summary.failure = _build_failure(record.error, outcome) if record.error is not None else None
    summary.attempts = billed
    last_used = reversed(record.used_attempts.values())
    summary.served = next(last_used, attempts[-1]) if attempts else None
    summary.first_sent = record.first_sent
    summary.usage_source = billing.usage_source
    summary.tokens = billing.tokens
    summary.cost = billing.cost
    summary.lost_cost = sum_lost_cost(billed)
    summary.finish_reasons = _collect_finish_reasons(meters)
    summary.skips = record.skips
    summary.upstream_findings = _pair_upstreams_with_findings(attempts)


def _set_decisions(summary: CallSummary, record: Record) -> None:
    verdicts = record.list_guard_results()
    summary.limits = (
        record.limit_decision.pair_limit_refusals() if record.limit_decision is not None else ()
    )
    summary.charges = record.charges
    summary.verdicts = _merge_guard_results(verdicts) if verdicts else verdicts
    summary.all_verdicts = verdicts
    summary.cache = record.cache
    summary.semantic_match = record.semantic_match
    summary.lookup_s = record.cache_lookup_s
    summary.saved = record.saved


def _pair_upstreams_with_findings(
    attempts: list[Attempt],
) -> list[tuple[str, errors.UpstreamFinding]]:
    findings: list[tuple[str, errors.UpstreamFinding]] = []
    for attempt in attempts:
        if attempt.findings:
            findings += [(attempt.target.upstream.name, finding) for finding in attempt.findings]
    return findings[:MAX_WORDS]


def _compute_seconds_to_first_token(meters: list[Meter], started: float) -> float | None:
    first_at: float | None = None
    for meter in meters:
        token_at = meter.first_token_at
        if token_at is not None and (first_at is None or token_at < first_at):
            first_at = token_at
    return None if first_at is None else first_at - started


def _measure_attempts_span_s(attempts: list[Attempt]) -> float:
    """Return the seconds from the start of the first attempt to the end of the last one."""
    ended_at: float | None = None
    for attempt in attempts:
        if attempt.ended is not None and (ended_at is None or attempt.ended > ended_at):
            ended_at = attempt.ended
    return 0.0 if ended_at is None else ended_at - attempts[0].started


def _build_failure(error: errors.ProxyError, outcome: CallOutcome) -> Failure:
    refused = (
        error if isinstance(error, errors.LimitExceeded | errors.LimitStoreUnavailable) else None
    )
    unauthorized = error if isinstance(error, errors.Unauthorized) else None
    is_upstreams = isinstance(error, errors.UpstreamError | errors.BlockedByUpstream)
    side: Side = "upstream" if is_upstreams else "proxy"
    is_about_request = isinstance(
        error, errors.UpstreamRejected | errors.BlockedByUpstream
    )  # the message may quote it
    return Failure(
        code=error.code,
        side="client" if outcome == "client_abort" else side,
        upstream_status=error.upstream_status,
        limit=refused.limit if refused else None,
        key_problem=unauthorized.key_problem if unauthorized else None,
        rejected_key=unauthorized.key if unauthorized else None,
        path=error.path if isinstance(error, errors.PathNotFound) else None,
        cause=error.cause,
        text=error.system_text,
        upstream_type=None if is_about_request else error.upstream_type,
        upstream_code=None if is_about_request else error.upstream_code,
    )


def _collect_finish_reasons(meters: list[Meter]) -> list[str]:
    """Return the finish reasons of a call, sorted. Unknown reasons become "other"."""
    reasons: set[str] = set()
    for meter in meters:
        for number in meter.finish_reasons:
            reason: str = meter.finish_reasons[number]
            reasons |= {reason if reason in KNOWN_FINISH_REASONS else "other"}
    return sorted(reasons)


def _merge_guard_results(verdicts: GuardResults) -> GuardResults:
    """Merge results that a guard returned for several responses of the call."""
    if len({(stage, result.guard) for stage, result in verdicts}) == len(verdicts):
        return verdicts
    merged: dict[tuple[object, ...], tuple[Stage, GuardResult]] = {}
    for stage, result in verdicts:
        key = stage, result.guard, result.verdict, result.shadow, result.error
        earlier = merged.get(key)
        merged[key] = (stage, result if earlier is None else _add_guard_result(earlier[1], result))
    return verdicts if len(merged) == len(verdicts) else list(merged.values())


def _add_guard_result(result: GuardResult, addition: GuardResult) -> GuardResult:
    kinds = {**result.findings, **addition.findings}
    return result._replace(
        findings={
            kind: result.findings.get(kind, 0) + addition.findings.get(kind, 0) for kind in kinds
        },
        score=max(result.score, addition.score),
        bytes=result.bytes + addition.bytes,
        fields=result.fields + addition.fields,
        seconds=result.seconds + addition.seconds,
    )
