"""The default sampler and samplers by name."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, TraceIdRatioBased

from proxy.telemetry.attributes import OUTCOME
from proxy.telemetry.trace import RateLimitedSampler, load_sampler
from tests.for_each import for_each

RATE = 10
FIRST, LAST = 0, 2**128 - 1  # trace ids: the first is in every share, the last in none but all


@dataclass
class Sampled:
    """A sampler, its clock, and what it has decided."""

    ratio: float = 1.0
    now: float = 0.0
    limited: int = 0
    sampler: RateLimitedSampler = field(init=False)

    def __post_init__(self) -> None:
        self.sampler = RateLimitedSampler(lambda: self.now, self.limit, self.ratio, RATE)

    def limit(self) -> None:
        self.limited += 1

    def count(self, calls: int, outcome: str = "success", trace_id: int = LAST) -> int:
        """Return how many of these calls are sampled."""
        decisions = [
            self.sampler.should_sample(
                Context(), trace_id, "POST /v1/completions", attributes={OUTCOME: outcome}
            ).decision
            for _ in range(calls)
        ]
        return decisions.count(Decision.RECORD_AND_SAMPLE)


def test_every_call_up_to_the_rate_is_sampled() -> None:
    sampled = Sampled()

    assert sampled.count(3 * RATE) == RATE
    assert sampled.limited == 2 * RATE


def test_the_quota_refills_with_time() -> None:
    sampled = Sampled()
    sampled.count(RATE)

    sampled.now = 0.5
    assert sampled.count(3 * RATE) == RATE / 2
    sampled.now = 100
    assert sampled.count(3 * RATE) == RATE


@for_each("outcome", ["blocked", "limited", "client_error", "upstream_error", "timeout"])
def test_failed_and_refused_calls_have_a_second_quota(outcome: str) -> None:
    sampled = Sampled()
    sampled.count(RATE)

    assert sampled.count(3 * RATE, outcome) == RATE
    assert sampled.count(1) == 0


def test_a_share_of_the_calls_beyond_is_sampled_by_their_number() -> None:
    sampled = Sampled()
    sampled.count(2 * RATE, "timeout")
    limit = sampled.limited

    assert sampled.count(5, trace_id=FIRST) == 5
    assert sampled.count(5, "timeout", FIRST) == 5
    assert sampled.limited == limit


def test_a_ratio_applies_to_successful_calls_before_the_rate() -> None:
    sampled = Sampled(ratio=0.5)

    assert sampled.count(5) == 0
    assert sampled.count(5, trace_id=FIRST) == 5
    assert sampled.count(5, "timeout") == 5
    assert sampled.limited == 0


def test_a_call_of_an_unknown_outcome_is_no_success() -> None:
    sampler = Sampled(ratio=0.0).sampler

    assert sampler.should_sample(None, LAST, "").decision is Decision.RECORD_AND_SAMPLE
    assert sampler.get_description() == "RateLimitedSampler"


@pytest.mark.parametrize(("argument", "rate"), [("0.25", 0.25), (None, 1.0)])
def test_a_sampler_of_the_sdk_is_loaded_by_its_name(argument: str | None, rate: float) -> None:
    sampler = load_sampler("TraceIdRatio", argument)

    assert isinstance(sampler, TraceIdRatioBased)
    assert sampler.rate == rate


def test_a_sampler_without_a_ratio_takes_any_argument() -> None:
    sampler = load_sampler("always_off", "x")

    assert sampler is not None
    assert sampler.get_description() == ALWAYS_OFF.get_description()


def test_an_unknown_sampler_is_none() -> None:
    assert load_sampler("jaeger_remote", "endpoint=http://jaeger") is None
