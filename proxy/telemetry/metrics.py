"""Sink that counts calls, and metrics of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar, Literal

from proxy.call.attempts import Attempt, Bill, LossReason
from proxy.call.facts import UNKNOWN, CallSummary
from proxy.call.record import Record
from proxy.call.summary import summarize
from proxy.money.usage import NANO_PER_USD, TOKEN_TYPES
from proxy.telemetry.catalog.labels import NO_VALUE, OTHER_VALUE
from proxy.telemetry.registry import Activate, Registry, SeriesCache, make_gauges
from proxy.types import Endpoint, Target
from proxy.types.label_catalog import LabelCatalog
from proxy.types.limit import CounterState

if TYPE_CHECKING:
    from proxy.telemetry.exposition import Exposition

LAG_INTERVAL_S = 0.25
OF_CALL = (
    "headrace_requests_total", "headrace_request_duration_seconds", "headrace_overhead_seconds",
)  # fmt: skip
OF_ATTEMPT = ("headrace_upstream_attempts_total", "headrace_upstream_request_duration_seconds")
TAGGED = tuple(f"headrace_tagged_{unit}_total" for unit in ("requests", "tokens", "cost_usd"))
REPEAT_REASONS = frozenset({"retry", "hedge", "guard"})
Tags = Mapping[str, frozenset[str]]


class CallMetrics:
    """Counts calls under one revision of the policies. ``tags`` has the declared values by tag."""

    def __init__(self, registry: Registry, tags: Tags) -> None:
        self._series = SeriesCache(registry)
        self._tags = tags

    def count(self, summary: CallSummary) -> None:
        series, trace_id = self._series, summary.trace_id
        deployment, endpoint = summary.deployment or UNKNOWN, summary.endpoint or UNKNOWN
        dialect, stream = summary.dialect or UNKNOWN, "true" if summary.is_stream else "false"
        labels = (OF_CALL, deployment, dialect, endpoint, summary.outcome, stream)
        calls, durations, overheads = series[labels]
        calls.value += 1
        durations.observe(summary.duration_s, trace_id)
        overheads.observe(summary.overhead_s, trace_id)
        if summary.key is None or summary.credential is not None:
            self._record_key_use_or_problem(summary)
        self._count_usage(deployment, summary)
        for rule in summary.rules:
            series["headrace_policy_rules_total", deployment, rule].value += 1
        if summary.limits or summary.all_verdicts or summary.shadow_rules:
            self._count_decisions(deployment, summary)
        if summary.cache_store is not None or summary.saved is not None:
            self._count_cache(deployment, summary)
        if summary.dropped_tags:
            series["headrace_dropped_tags_total", deployment].value += summary.dropped_tags
        if summary.failure is not None or summary.skips:
            self._count_skips_and_aborts(deployment, summary)
        if len(summary.attempts) > 1:
            self._count_fallbacks(deployment, [attempt.attempt for attempt in summary.attempts])

    def _record_key_use_or_problem(self, summary: CallSummary) -> None:
        """Record the time at which a key was used, or count a call without a valid key."""
        if summary.key is not None and summary.credential is not None:
            last_used = "headrace_key_last_used_timestamp_seconds"
            ended = summary.started_at.timestamp() + summary.duration_s
            self._series[last_used, summary.key, summary.credential].value = ended
            return
        key_problem, key = "not_checked", None
        if summary.failure is not None and summary.failure.key_problem is not None:
            key_problem, key = summary.failure.key_problem, summary.failure.rejected_key
        self._series[
            "headrace_unauthenticated_requests_total", key_problem, key or NO_VALUE
        ].value += 1

    def _count_tags(self, deployment: str, tags: Mapping[str, str], tokens: int, cost: int) -> None:
        """Count a call by each declared tag. A call without the tag has the value ``none``."""
        series, usd = self._series, cost / NANO_PER_USD
        for tag, values in self._tags.items():
            value = tags.get(tag, NO_VALUE)
            if value not in values and tag in tags:
                value = OTHER_VALUE
            requests, token_counts, costs = series[TAGGED, tag, value, deployment]
            requests.value += 1
            token_counts.value += tokens
            costs.value += usd

    def _count_usage(self, deployment: str, summary: CallSummary) -> None:
        """Count the attempts of a call, and their tokens and known cost, also by tag."""
        is_used, cost, series = False, 0, self._series
        for attempt, result, bill in summary.attempts:
            self._count_attempt(attempt, summary.trace_id)
            model = attempt.target.model
            if attempt is summary.served and summary.ttft_s is not None:
                delays = series["headrace_time_to_first_token_seconds", deployment, model]
                delays.observe(summary.ttft_s, summary.trace_id)
            if bill is None:
                continue
            is_used = True
            self._count_tokens_and_cost(deployment, bill, result.loss)
            if bill.cost:
                cost += bill.cost
                series["headrace_money_usd_total", deployment, result.use].value += (
                    bill.cost / NANO_PER_USD
                )
            if result.served and summary.failure is None:
                tokens = bill.usage.tokens.completion_total
                self._observe_token_gap_and_rate(deployment, attempt, tokens, summary.trace_id)
        if cost:
            series["headrace_key_cost_usd_total", summary.key or UNKNOWN].value += (
                cost / NANO_PER_USD
            )
        tokens = self._observe_tokens_and_cost(deployment, summary) if is_used else 0
        self._count_tags(deployment, summary.tags or {}, tokens, cost)

    def _observe_tokens_and_cost(self, deployment: str, summary: CallSummary) -> int:
        """Observe the tokens of all attempts and their cost, if it is known. Return the tokens."""
        prompt, completion = summary.tokens.prompt_total, summary.tokens.completion_total
        name, series = "headrace_request_tokens", self._series
        series[name, deployment, "input"].observe(prompt, summary.trace_id)
        series[name, deployment, "output"].observe(completion, summary.trace_id)
        if summary.cost is not None:
            costs = series["headrace_request_cost_usd", deployment]
            costs.observe(summary.cost / NANO_PER_USD, summary.trace_id)
        return prompt + completion

    def _observe_token_gap_and_rate(
        self, deployment: str, attempt: Attempt, tokens: int, trace_id: str
    ) -> None:
        """Observe the mean seconds between the tokens of a stream, and the tokens per second."""
        model, meter = attempt.target.model, attempt.meter
        first_at, last_at = meter.first_token_at, meter.last_token_at
        if tokens >= 2 and first_at is not None and last_at is not None and last_at > first_at:
            gaps = self._series["headrace_inter_token_latency_seconds", deployment, model]
            gaps.observe((last_at - first_at) / (tokens - 1), trace_id)
        duration = (attempt.ended or attempt.started) - attempt.started
        if tokens and duration > 0:
            speeds = self._series["headrace_output_tokens_per_second", deployment, model]
            speeds.observe(tokens / duration, trace_id)

    def _count_attempt(self, attempt: Attempt, trace_id: str) -> None:
        series = self._series
        upstream, model = attempt.target.upstream.name, attempt.target.model
        result = attempt.error or f"{(attempt.status or 0) // 100}xx"
        cause = attempt.cause or NO_VALUE
        attempts, durations = series[OF_ATTEMPT, upstream, model, result, cause]
        attempts.value += 1
        durations.observe((attempt.ended or attempt.started) - attempt.started, trace_id)
        for unit in attempt.remaining:
            remaining = f"headrace_upstream_ratelimit_remaining_{unit}"
            series[remaining, upstream, model].value = float(attempt.remaining[unit])
        if attempt.reason in REPEAT_REASONS:
            series["headrace_upstream_repeats_total", upstream, model, attempt.reason].value += 1
        if attempt.meter.invalid_usage:
            invalid = series["headrace_usage_invalid_total", upstream, model]
            invalid.value += attempt.meter.invalid_usage

    def _count_tokens_and_cost(self, deployment: str, bill: Bill, loss: LossReason | None) -> None:
        target, source, series = bill.target, bill.usage.source, self._series
        provider, model = target.upstream.provider or UNKNOWN, target.model
        is_estimated = source == "partial_estimate"
        label = "true" if is_estimated else "false"
        for index, number in enumerate(bill.usage.tokens.list_counts_by_type()):
            if number:
                name, kind = "headrace_tokens_total", TOKEN_TYPES[index]
                series[name, deployment, provider, model, kind, label].value += number
        if is_estimated:
            series["headrace_usage_estimated_total", deployment, model].value += 1
        if bill.cost is None:
            reason = "no_usage" if source == "unknown" else "no_price"
            unpriced = "headrace_unpriced_requests_total"
            series[unpriced, deployment, provider, model, reason].value += 1
            return
        for cost_type, cost in bill.cost_by_type.items():
            costs = series["headrace_cost_usd_total", deployment, provider, model, cost_type]
            costs.value += cost / NANO_PER_USD
        if loss is not None:
            lost_cost = series["headrace_lost_cost_usd_total", deployment, provider, model, loss]
            lost_cost.value += bill.cost / NANO_PER_USD

    def _count_decisions(self, deployment: str, summary: CallSummary) -> None:
        """Count decisions of limits and guards, and matches of rules in shadow mode."""
        series = self._series
        for rule in summary.shadow_rules:
            series["headrace_policy_shadow_rules_total", deployment, rule].value += 1
        for limit, refuses in summary.limits:
            decision = "allow" if not refuses else "would_deny" if limit.shadow else "deny"
            series["headrace_limit_decisions_total", limit.name, decision].value += 1
        for stage, result in summary.all_verdicts:
            guard, verdict, shadow = result.guard, result.verdict, result.shadow
            is_shadow = "true" if shadow else "false"
            series["headrace_guard_decisions_total", guard, stage, verdict, is_shadow].value += 1
            series["headrace_guard_duration_seconds", guard, stage].observe(result.seconds)

    def _count_cache(self, deployment: str, summary: CallSummary) -> None:
        series, saved = self._series, summary.saved
        if summary.cache_store is not None:
            series["headrace_cache_lookups_total", deployment, summary.cache].value += 1
            if summary.lookup_s is not None:
                lookups = series["headrace_cache_lookup_duration_seconds", summary.cache_store]
                lookups.observe(summary.lookup_s)
        if saved is None:
            return
        sizes = {"input": saved.tokens.prompt_total, "output": saved.tokens.completion_total}
        for direction, size in sizes.items():
            series["headrace_cache_saved_tokens_total", deployment, direction].value += size
        if saved.cost:
            series["headrace_cache_saved_usd_total", deployment].value += saved.cost / NANO_PER_USD

    def _count_skips_and_aborts(self, deployment: str, summary: CallSummary) -> None:
        for skip in summary.skips:
            target = (skip.target.upstream.name, skip.target.model)
            self._series["headrace_upstream_skipped_total", *target, skip.reason].value += 1
        if summary.failure is not None and summary.attempts and summary.is_stream:
            phase = "before_first" if summary.first_sent is None else "after_first"
            labels = (deployment, summary.failure.side, phase)
            self._series["headrace_stream_aborts_total", *labels].value += 1

    def _count_fallbacks(self, deployment: str, attempts: list[Attempt]) -> None:
        """Count each fallback, from the attempt of the same model call before it."""
        for number, attempt in enumerate(attempts):
            earlier_attempts = [
                earlier for earlier in attempts[:number] if earlier.model_call == attempt.model_call
            ]
            if attempt.reason == "fallback" and earlier_attempts:
                names = (earlier_attempts[-1].target.upstream.name, attempt.target.upstream.name)
                self._series["headrace_fallbacks_total", deployment, *names].value += 1


Circuit = Literal["closed", "half_open", "open"]
CIRCUIT_VALUES: dict[Circuit, int] = {"closed": 0, "half_open": 1, "open": 2}


class Metrics(Registry):
    """Sink that counts calls, in one thread. Other threads may scrape."""

    name: ClassVar[str] = "metrics"

    def __init__(self, version: str) -> None:
        super().__init__()
        self.catalog = LabelCatalog()
        self._calls = CallMetrics(self, {})
        self.replace("headrace_build_info", {(version,): 1})
        self._exposition: Exposition | None = None

    def set_secret_fingerprints(self, fingerprints: Mapping[str, str]) -> None:
        """Set the gauge with a fingerprint of each secret, by the use of the secret."""
        self.replace("headrace_secret_info", dict.fromkeys(fingerprints.items(), 1.0))

    def allow_policy_labels(self, catalog: LabelCatalog) -> Activate:
        """Allow the names in policies as labels. Call the returned function once they are active.

        Large policies take long, so call this method off the event loop. The returned function is
        fast.
        """
        activate_names = self.allow_labels(catalog, "policies")
        info = make_gauges(
            {
                (name, tag, value): 1.0
                for name, deployment in catalog.deployments.items()
                for tag, value in (deployment.tags or {("none", "none")})
            }
        )
        replaced: list[LabelCatalog] = []

        def activate() -> None:
            activate_names()
            replaced.append(self.catalog)  # kept until the next reload, which frees it in a thread
            self.catalog = catalog
            self._calls = CallMetrics(self, catalog.tags)
            self.replace("headrace_policy_info", {(catalog.revision,): 1})
            self._series["headrace_deployment_info"] = info
            if catalog.prices_as_of is not None:
                taken = datetime.combine(catalog.prices_as_of, datetime.min.time(), UTC).timestamp()
                self.get_series("headrace_price_table_timestamp_seconds").value = taken

        return activate

    def count(self, name: str, *labels: str) -> None:
        """Add 1 to a counter."""
        self.get_series(name, *labels).inc()

    def observe(self, name: str, value: float) -> None:
        """Add a value to a histogram without labels."""
        self.get_series(name).observe(value)

    def count_dropped(self, signal: str, reason: str, count: int = 1) -> None:
        """Count lost log lines, spans or rows."""
        self.get_series("headrace_telemetry_dropped_total", signal, reason).inc(count)

    def count_reload(self, result: str) -> None:
        self.get_series("headrace_policy_reloads_total", result).inc()
        self.get_series("headrace_policy_last_reload_success").value = float(result != "rejected")
        now = datetime.now(UTC).timestamp()
        self.get_series("headrace_policy_last_reload_timestamp_seconds").value = now

    def set_counters_degraded(self, degraded: bool) -> None:
        """Set the gauge that shows whether limits are counted without the shared store."""
        self.get_series("headrace_limit_store_degraded").value = float(degraded)

    def set_limit_gauges(self, states: Iterable[CounterState], now: float) -> None:
        """Replace the gauges of limits and budgets. A counter that no call has used gets no gauge.

        ``now`` is in seconds since the epoch.
        """
        shown: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in _LIMIT_GAUGES}
        for state in states:
            if state.is_fresh:
                continue
            limit = state.limit
            amounts: tuple[float, ...] = (state.remaining / limit.capacity,)
            if limit.is_budget:
                usd = (limit.capacity, state.used, state.remaining)
                amounts += (
                    *(nano_usd / NANO_PER_USD for nano_usd in usd),
                    now + (state.reset_s or 0.0),
                )
            for name, amount in zip(_LIMIT_GAUGES, amounts, strict=False):
                shown[name][limit.name, state.scope or "all"] = amount
        for name, values in shown.items():
            self.replace(name, values)

    def set_ledger_drift(self, drifts: Mapping[str, int]) -> None:
        """Replace the gauges of the spend in counters minus that in the ledger, in nano-USD."""
        usd: dict[tuple[str, ...], float] = {
            (limit,): nano / NANO_PER_USD for limit, nano in drifts.items()
        }
        self.replace("headrace_ledger_drift_usd", usd)

    def set_circuit(self, target: Target, endpoint: Endpoint, state: Circuit) -> None:
        """Set the gauge of the circuit breaker of a target's endpoint."""
        names = (target.upstream.name, target.model, endpoint)
        self.get_series("headrace_circuit_state", *names).value = float(CIRCUIT_VALUES[state])

    def set_cache_size(self, store: str, entries: int, size: int) -> None:
        """Set the gauges of the entries and bytes of a cache store."""
        self.get_series("headrace_cache_entries", store).value = float(entries)
        self.get_series("headrace_cache_bytes", store).value = float(size)

    def count_cache_evictions(self, reason: str, count: int) -> None:
        self.get_series("headrace_cache_evictions_total", reason).inc(count)

    def count_cache_failure(self, store: str) -> None:
        self.get_series("headrace_cache_store_failures_total", store).inc()

    def emit(self, record: Record) -> None:
        self._calls.count(record.summary or summarize(record))

    def render(self, accept: str = "") -> tuple[bytes, str]:
        self.drop_expired_series()
        return self.get_or_create_exposition().render(accept)

    def get_or_create_exposition(self) -> Exposition:
        """Return the exposition, created at the first call."""
        if self._exposition is None:
            from proxy.telemetry.exposition import Exposition  # noqa: PLC0415  # 30 modules that only scrapes need

            self._exposition = Exposition(self.collect)
        return self._exposition


_LIMIT_GAUGES = (
    "headrace_limit_remaining_ratio",
    "headrace_budget_limit_usd",
    "headrace_budget_spent_usd",
    "headrace_budget_remaining_usd",
    "headrace_budget_reset_timestamp_seconds",
)
"""Gauges: the first is of all limits, the others are of budgets only."""


class LoopLagMonitor:
    """Reports the delay of an event loop timer every ``LAG_INTERVAL_S`` seconds while entered."""

    def __init__(self, on_lag: Callable[[float], None]) -> None:
        self._on_lag = on_lag

    async def __aenter__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._schedule()

    async def __aexit__(self, *exc_info: object) -> None:
        self._timer.cancel()

    def _schedule(self) -> None:
        due_at = self._loop.time() + LAG_INTERVAL_S
        self._timer = self._loop.call_at(due_at, self._on_timer, due_at)

    def _on_timer(self, due_at: float) -> None:
        self._on_lag(max(0.0, self._loop.time() - due_at))
        self._schedule()
