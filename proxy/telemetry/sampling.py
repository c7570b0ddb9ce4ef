"""Samplers of traces. They run when a call has ended, so they know its outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import (
    Decision,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util._importlib_metadata import entry_points
from opentelemetry.util.types import Attributes

from proxy.runtime.otel_settings import RATIO_SAMPLERS
from proxy.telemetry.attributes import OUTCOME
from proxy.telemetry.log_limits import Quota

CALLS_PER_S = 50  # a traced call takes 0.7 ms of processor time
SHARE = 0.01
UNREMARKABLE = frozenset({"success", "client_abort"})
SAMPLE, DROP = SamplingResult(Decision.RECORD_AND_SAMPLE), SamplingResult(Decision.DROP)


class RateLimitedSampler(Sampler):
    """Samples every call up to a rate, every failed or refused call up to a second such rate, and
    ``SHARE`` of all calls beyond.

    ``ratio`` is the share of the other calls that is considered at all. ``on_limit`` is called for
    a call that is dropped because of the rate. ``now`` returns monotonic seconds.
    """

    def __init__(
        self,
        now: Callable[[], float],
        on_limit: Callable[[], None],
        ratio: float = 1.0,
        calls_per_s: float = CALLS_PER_S,
    ) -> None:
        self._on_limit = on_limit
        self._ratio = TraceIdRatioBased.get_bound_for_rate(ratio)
        self._share = TraceIdRatioBased.get_bound_for_rate(SHARE)
        self._calls = Quota(now, calls_per_s, 60 * calls_per_s)
        self._failures = Quota(now, calls_per_s, 60 * calls_per_s)

    def should_sample(  # noqa: PLR0913, PLR0917  # the SDK's interface
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        number = trace_id & TraceIdRatioBased.TRACE_ID_LIMIT
        is_failure = (attributes or {}).get(OUTCOME) not in UNREMARKABLE
        if not is_failure and number >= self._ratio:
            return DROP
        if self._calls.take() is not None or (is_failure and self._failures.take() is not None):
            return SAMPLE
        if number < self._share:
            return SAMPLE
        self._on_limit()
        return DROP

    def get_description(self) -> str:
        return "RateLimitedSampler"


def load_sampler(name: str, argument: str | None) -> Sampler | None:
    """Return a sampler of the SDK or of another package, by its entry point, None without one."""
    for entry_point in entry_points(group="opentelemetry_traces_sampler", name=name.lower()):
        is_ratio = name.lower() in RATIO_SAMPLERS
        sampler: Sampler = entry_point.load()(float(argument or 1) if is_ratio else argument)
        return sampler
    return None
