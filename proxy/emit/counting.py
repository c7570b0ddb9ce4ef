"""What one call adds to the metrics.

The series that a call adds to are looked up together, once for all calls that come the same way,
and kept until the policies change. What is counted of every call is added to their ``value``: to
call a method for it takes longer than the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from proxy.attempts import Attempt, Bill, Loss
from proxy.call_facts import UNKNOWN, CallFacts, Failure
from proxy.emit.declared.metric import OTHER, Histogram, observe_all
from proxy.usage import NANO, TOKEN_TYPES

NONE = "none"
MAX_KEPT = 4096
REPEATS = frozenset({"retry", "hedge", "guard"})
Names = tuple[str, str, str, str]
Observed = list[tuple[Histogram, float]]
Tags = Mapping[str, frozenset[str]]
Key = TypeVar("Key")
Made = TypeVar("Made")


class Child(Protocol):
    """Returns what counts for a metric and its labels."""

    def __call__(self, name: str, *labels: str) -> Any: ...


class SeriesCache(dict[Key, Made]):
    """Makes what is not there yet, and begins anew beyond ``MAX_KEPT``."""

    def __init__(self, make: Callable[[Key], Made]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Key) -> Made:
        if len(self) >= MAX_KEPT:
            self.clear()
        made = self[key] = self._make(key)
        return made


def by_labels(child: Child, name: str, *before: str) -> SeriesCache[tuple[str, ...], Any]:
    """Return a cache of the series of a metric, by the labels that follow those ``before``."""
    return SeriesCache(lambda labels: child(name, *before, *labels))


class RequestSeries:
    """Series of the calls of a deployment that come through one dialect in one form."""

    __slots__ = ("cost", "duration", "input", "outcomes", "output", "overhead", "uses")

    def __init__(self, child: Child, names: Names) -> None:
        deployment, dialect, endpoint, stream = names
        self.outcomes: SeriesCache[str, Any] = SeriesCache(
            lambda outcome: child(
                "headrace_requests_total", deployment, dialect, endpoint, outcome, stream
            )
        )
        self.uses = by_labels(child, "headrace_money_usd_total", deployment)
        self.duration = child("headrace_request_duration_seconds", deployment, endpoint, stream)
        self.overhead = child("headrace_overhead_seconds", deployment)
        self.input = child("headrace_request_tokens", deployment, "input")
        self.output = child("headrace_request_tokens", deployment, "output")
        self.cost = child("headrace_request_cost_usd", deployment)


class UpstreamSeries:
    """Series of the requests to one upstream for one model, and of those of one deployment."""

    __slots__ = ("between", "costs", "duration", "first", "left", "results", "speed", "tokens")

    def __init__(self, child: Child, names: Names) -> None:
        deployment, upstream, provider, model = names
        served = (deployment, provider, model)
        self.results = by_labels(child, "headrace_upstream_attempts_total", upstream, model)
        self.left: SeriesCache[str, Any] = SeriesCache(
            lambda what: child(f"headrace_upstream_ratelimit_remaining_{what}", upstream, model)
        )
        self.tokens = by_labels(child, "headrace_tokens_total", *served)
        self.costs = by_labels(child, "headrace_cost_usd_total", *served)
        self.duration = child("headrace_upstream_request_duration_seconds", upstream, model)
        self.first = child("headrace_time_to_first_token_seconds", deployment, model)
        self.between = child("headrace_inter_token_latency_seconds", deployment, model)
        self.speed = child("headrace_output_tokens_per_second", deployment, model)


class Counting:
    """Counts calls under one revision of the policies, by their ``tags``."""

    def __init__(self, child: Child, tags: Tags) -> None:
        self._child = child
        self._tags = tags
        self._requests: SeriesCache[Names, RequestSeries] = SeriesCache(
            lambda names: RequestSeries(child, names)
        )
        self._upstreams: SeriesCache[Names, UpstreamSeries] = SeriesCache(
            lambda names: UpstreamSeries(child, names)
        )
        self._tagged: SeriesCache[tuple[str | None, ...], list[tuple[Any, Any, Any]]] = SeriesCache(
            self._tag_series
        )
        self._credentials = by_labels(child, "headrace_key_last_used_timestamp_seconds")
        self._limits = by_labels(child, "headrace_limit_decisions_total")
        self._rules = by_labels(child, "headrace_policy_rules_total")
        self._guards: SeriesCache[tuple[str, str, str, bool], tuple[Any, Any]] = SeriesCache(
            self._guard_series
        )
        self._lookups = by_labels(child, "headrace_cache_lookups_total")
        self._stores = by_labels(child, "headrace_cache_lookup_duration_seconds")
        self._keys = by_labels(child, "headrace_key_cost_usd_total")

    def count(self, facts: CallFacts) -> None:
        """Count a call that has ended."""
        deployment = facts.deployment or UNKNOWN
        stream = "true" if facts.is_stream else "false"
        request = self._requests[
            deployment, facts.dialect or UNKNOWN, facts.endpoint or UNKNOWN, stream
        ]
        request.outcomes[facts.outcome].value += 1
        if facts.key is None:
            self._unauthorized(facts.failure)
        elif facts.credential is not None:
            ended = facts.started_at.timestamp() + facts.duration_s
            self._credentials[facts.key, facts.credential].value = ended
        observed: Observed = [
            (request.duration, facts.duration_s),
            (request.overhead, facts.overhead_s),
        ]
        tokens, cost = self._used(request, facts, observed) if facts.attempts else (0, 0)
        observe_all(observed, facts.trace_id)
        self._tag(deployment, facts.tags or {}, tokens, cost / NANO)
        for rule in facts.rules:
            self._rules[deployment, rule].value += 1
        if facts.limits or facts.each_verdict or facts.shadow_rules:
            self._decided(deployment, facts)
        if facts.cache_store is not None or facts.saved is not None:
            self._cached(deployment, facts)
        if facts.failure is not None or facts.skips or facts.dropped_tags:
            self._oddities(deployment, facts)
        if len(facts.attempts) > 1:
            self._fallbacks(deployment, facts)

    def _used(
        self, request: RequestSeries, facts: CallFacts, observed: Observed
    ) -> tuple[int, int]:
        """Count attempts, tokens and money. Return all tokens and the nano-USD that are known."""
        deployment, used, cost = facts.deployment or UNKNOWN, False, 0
        for attempt, fate, bill in facts.attempts:
            series = self._attempt(deployment, attempt, observed)
            if attempt is facts.served and facts.ttft_s is not None:
                observed += ((series.first, facts.ttft_s),)
            if bill is None:
                continue
            used = True
            self._bill(deployment, series, bill, fate.loss)
            if bill.cost:
                cost += bill.cost
                request.uses[fate.use,].value += bill.cost / NANO
            if fate.served and facts.failure is None:
                _pace(observed, series, attempt, bill.usage.tokens.completion_total)
        return (self._sums(request, facts, observed, cost) if used else 0), cost

    def _sums(self, request: RequestSeries, facts: CallFacts, observed: Observed, cost: int) -> int:
        """Count what all attempts have used, and the part of their cost that is known. Return the
        tokens."""
        prompt, completion = facts.tokens.prompt_total, facts.tokens.completion_total
        observed += ((request.input, prompt), (request.output, completion))
        if facts.cost is not None:
            observed += ((request.cost, facts.cost / NANO),)
        if cost:
            self._keys[facts.key or UNKNOWN,].value += cost / NANO
        return prompt + completion

    def _attempt(self, deployment: str, attempt: Attempt, observed: Observed) -> UpstreamSeries:
        """Count an attempt. Return the series of those like it."""
        target, upstream = attempt.target, attempt.target.upstream
        provider = upstream.provider or UNKNOWN
        series = self._upstreams[deployment, upstream.name, provider, target.model]
        result = attempt.error or f"{(attempt.status or 0) // 100}xx"
        series.results[result, attempt.cause or NONE].value += 1
        spent = (attempt.ended or attempt.started) - attempt.started
        observed += ((series.duration, spent),)
        for what in attempt.left:
            series.left[what].value = float(attempt.left[what])
        if attempt.why in REPEATS or attempt.meter.invalid_usage:
            self._rarities(attempt)
        return series

    def _rarities(self, attempt: Attempt) -> None:
        """Count what few attempts have to tell."""
        names = (attempt.target.upstream.name, attempt.target.model)
        if attempt.why in REPEATS:
            self._child("headrace_upstream_repeats_total", *names, attempt.why).inc()
        if attempt.meter.invalid_usage:
            invalid = self._child("headrace_usage_invalid_total", *names)
            invalid.inc(attempt.meter.invalid_usage)

    def _bill(self, deployment: str, series: UpstreamSeries, bill: Bill, loss: Loss | None) -> None:
        target = bill.target
        served = (deployment, target.upstream.provider or UNKNOWN, target.model)
        estimated = bill.usage.source == "partial_estimate"
        label = "true" if estimated else "false"
        for token_type, number in zip(TOKEN_TYPES, bill.usage.tokens.counts(), strict=True):
            if number:
                series.tokens[token_type, label].value += number
        if estimated:
            self._child("headrace_usage_estimated_total", deployment, target.model).inc()
        if bill.cost is None:
            lacking = "no_usage" if bill.usage.source == "unknown" else "no_price"
            self._child("headrace_unpriced_requests_total", *served, lacking).inc()
            return
        parts = bill.parts()
        for cost_type in parts:
            series.costs[cost_type,].value += parts[cost_type] / NANO
        if loss is not None:
            lost = self._child("headrace_lost_cost_usd_total", *served, loss)
            lost.inc(bill.cost / NANO)

    def _unauthorized(self, failure: Failure | None) -> None:
        """Count a call without a known key, some of which end before the key is looked at."""
        lapse, key = "not_checked", None
        if failure is not None and failure.lapse is not None:
            lapse, key = failure.lapse, failure.lapsed_key
        self._child("headrace_unauthenticated_requests_total", lapse, key or NONE).inc()

    def _tag(self, deployment: str, tags: Mapping[str, str], tokens: int, usd: float) -> None:
        """Count by every tag that the policies know, also where the call has none of it."""
        for requests, used, cost in self._tagged[deployment, *map(tags.get, self._tags)]:
            requests.value += 1
            used.value += tokens
            cost.value += usd

    def _tag_series(self, key: tuple[str | None, ...]) -> list[tuple[Any, Any, Any]]:
        found, deployment = [], key[0] or UNKNOWN
        for (tag, values), given in zip(self._tags.items(), key[1:], strict=True):
            value = NONE if given is None else given if given in values else OTHER
            names = (f"headrace_tagged_{what}_total" for what in ("requests", "tokens", "cost_usd"))
            requests, tokens, cost = (self._child(n, tag, value, deployment) for n in names)
            found.append((requests, tokens, cost))
        return found

    def _decided(self, deployment: str, facts: CallFacts) -> None:
        """Count what limits and guards have decided, and rules would have."""
        for rule in facts.shadow_rules:
            self._child("headrace_policy_shadow_rules_total", deployment, rule).inc()
        for limit, refuses in facts.limits:
            decision = "allow" if not refuses else "would_deny" if limit.shadow else "deny"
            self._limits[limit.name, decision].value += 1
        observed: Observed = []
        for stage, result in facts.each_verdict:
            decisions, spent = self._guards[result.guard, stage, result.verdict, result.shadow]
            decisions.value += 1
            observed += ((spent, result.seconds),)
        observe_all(observed, None)

    def _guard_series(self, key: tuple[str, str, str, bool]) -> tuple[Any, Any]:
        guard, stage, verdict, is_shadow = key
        names = (guard, stage, verdict, "true" if is_shadow else "false")
        spent = self._child("headrace_guard_duration_seconds", guard, stage)
        return self._child("headrace_guard_decisions_total", *names), spent

    def _cached(self, deployment: str, facts: CallFacts) -> None:
        if facts.cache_store is not None:
            self._lookups[deployment, facts.cache].value += 1
            if facts.lookup_s is not None:
                self._stores[facts.cache_store,].observe(facts.lookup_s)
        saved = facts.saved
        if saved is None:
            return
        sizes = {"input": saved.tokens.prompt_total, "output": saved.tokens.completion_total}
        for direction, size in sizes.items():
            self._child("headrace_cache_saved_tokens_total", deployment, direction).inc(size)
        if saved.cost:
            usd = saved.cost / NANO
            self._child("headrace_cache_saved_usd_total", deployment).inc(usd)

    def _oddities(self, deployment: str, facts: CallFacts) -> None:
        for skip in facts.skips:
            names = (skip.target.upstream.name, skip.target.model)
            self._child("headrace_upstream_skipped_total", *names, skip.reason).inc()
        if facts.dropped_tags:
            dropped = self._child("headrace_dropped_tags_total", deployment)
            dropped.inc(facts.dropped_tags)
        if facts.failure is not None and facts.attempts and facts.is_stream:
            phase = "before_first" if facts.first_sent is None else "after_first"
            labels = (deployment, facts.failure.side, phase)
            self._child("headrace_stream_aborts_total", *labels).inc()

    def _fallbacks(self, deployment: str, facts: CallFacts) -> None:
        for failed, next_one in _fallbacks([each.attempt for each in facts.attempts]):
            names = (failed.target.upstream.name, next_one.target.upstream.name)
            self._child("headrace_fallbacks_total", deployment, *names).inc()


def _fallbacks(attempts: Sequence[Attempt]) -> list[tuple[Attempt, Attempt]]:
    """Return the pairs of attempts of one leg of which the second stepped in for the first."""
    pairs = []
    for number, attempt in enumerate(attempts):
        before = [other for other in attempts[:number] if other.leg == attempt.leg]
        if attempt.why == "fallback" and before:
            pairs.append((before[-1], attempt))
    return pairs


def _pace(observed: Observed, series: UpstreamSeries, attempt: Attempt, tokens: int) -> None:
    """Observe how fast an answer of so many tokens came that reached its end: the mean seconds
    between them, but for one that came as a whole, and how many a second."""
    first, last = attempt.meter.first_token_at, attempt.meter.last_token_at
    if tokens >= 2 and first is not None and last is not None and last > first:
        observed += ((series.between, (last - first) / (tokens - 1)),)
    took = (attempt.ended or attempt.started) - attempt.started
    if tokens and took > 0:
        observed += ((series.speed, tokens / took),)
