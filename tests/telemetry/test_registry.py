"""Metric series: created at zero, bounded for any labels, and retired."""

from __future__ import annotations

import random
from functools import partial

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from proxy.limits.kinds import KINDS
from proxy.money.usage import Price
from proxy.telemetry.catalog.labels import OTHER_VALUE
from proxy.telemetry.catalog.table import METRICS
from proxy.telemetry.exposition import Exposition
from proxy.telemetry.registry import RETIRED_S, Counter, Histogram, Registry
from proxy.types import Target, Upstream
from proxy.types.label_catalog import DeploymentLabels, LabelCatalog
from proxy.types.limit import Limit
from tests.cache.stores import Clock
from tests.guards.growth import lines as count_lines

OPENAI = Upstream("openai", "openai", "http://here", provider="openai")
PRICED = Target(OPENAI, "gpt-4o-mini", prices=(Price(input=None, output=None),))
LOCAL = Target(Upstream("local", "openai", "http://there"), "smol")
MINUTE = Limit("per-minute", KINDS["requests"], 60, 60)


def catalog(*deployments: str) -> LabelCatalog:
    listed = DeploymentLabels(
        targets=(PRICED, LOCAL),
        rules=("public/cheap",),
        guards=(("input", "secrets"),),
        tags=frozenset({("team", "support")}),
        limits=(MINUTE,),
    )
    return LabelCatalog(
        "abc",
        keys=("support-widget",),
        deployments=dict.fromkeys(deployments, listed),
        counters=((MINUTE, ""),),
        tags={"team": frozenset({"support", "search"}), "cost_center": frozenset()},
    )


def lines(registry: Registry) -> list[str]:
    exposed = CollectorRegistry()
    exposed.register(Exposition(registry.collect))
    text = generate_latest(exposed).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def of(registry: Registry, name: str) -> list[str]:
    return [line for line in lines(registry) if line.startswith(f"{name}{{")]


def test_configured_series_start_at_zero() -> None:
    registry = Registry()

    registry.allow_labels(catalog("support-chat"), "policies")()

    names = 'deployment="support-chat",dialect="openai",endpoint="chat"'
    assert f'headrace_requests_total{{{names},outcome="blocked",stream="true"}} 0.0' in lines(
        registry
    )
    text = 'headrace_tagged_cost_usd_total{{deployment="support-chat",tag="{}",value="{}"}} 0.0'
    assert sorted(of(registry, "headrace_tagged_cost_usd_total")) == [
        text.format("cost_center", "none"),
        text.format("team", "support"),
    ]
    assert 'headrace_writer_failures_total{writer="ledger"} 0.0' in lines(registry)


def test_cost_series_start_at_zero_only_with_a_price() -> None:
    registry = Registry()

    registry.allow_labels(catalog("support-chat"), "policies")()

    assert all("gpt-4o-mini" in line for line in of(registry, "headrace_cost_usd_total"))
    [unpriced] = of(registry, "headrace_unpriced_requests_total")
    assert "smol" in unpriced


def test_name_outside_the_policies_counts_as_other() -> None:
    registry = Registry()
    registry.allow_labels(catalog("support-chat"), "policies")()

    registry.get_series("headrace_key_cost_usd_total", "stranger").inc(2)

    assert 'headrace_key_cost_usd_total{key="other"} 2.0' in lines(registry)
    assert 'headrace_label_overflow_total{label="key"} 1.0' in lines(registry)


def test_related_labels_become_other_together() -> None:
    """A known model with an unknown deployment must not create a third series."""
    registry = Registry()
    registry.allow_labels(catalog("support-chat"), "policies")()

    registry.get_series("headrace_usage_estimated_total", "search-answers", "smol").inc()

    text = 'headrace_usage_estimated_total{deployment="other",model="other"} 1.0'
    assert text in lines(registry)


def test_retired_name_is_removed_after_a_period() -> None:
    clock = Clock(0.0)
    registry = Registry(clock)
    registry.allow_labels(catalog("support-chat", "search-answers"), "policies")()
    removed = ("search-answers", "client", "after_first")
    registry.get_series("headrace_stream_aborts_total", *removed).inc()

    registry.allow_labels(catalog("support-chat"), "policies")()
    registry.get_series("headrace_stream_aborts_total", *removed).inc()

    text = 'deployment="search-answers",phase="after_first",side="client"'
    assert f"headrace_stream_aborts_total{{{text}}} 2.0" in lines(registry)

    clock.now = RETIRED_S
    registry.drop_expired_series()

    assert not [line for line in lines(registry) if "search-answers" in line]


def test_series_continue_across_a_reload() -> None:
    clock = Clock(0.0)
    registry = Registry(clock)
    labels = ("headrace_dropped_tags_total", "support-chat")
    registry.allow_labels(catalog("support-chat"), "policies")()
    registry.get_series(*labels).inc()

    registry.allow_labels(catalog("support-chat", "search-answers"), "policies")()
    clock.now = RETIRED_S
    registry.drop_expired_series()
    registry.get_series(*labels).inc()

    assert registry.get_series(*labels).value == 2


def test_random_labels_stay_within_the_series_bound() -> None:
    """Half of them are real names in other labels."""
    registry, draw = Registry(), random.Random(1)  # noqa: S311  # repeatable
    labels = catalog("support-chat", "search-answers")
    registry.allow_labels(labels, "policies")()
    words = [
        "support-chat",
        "team",
        "support",
        "gpt-4o-mini",
        "smol",
        "openai",
        "true",
        "",
        OTHER_VALUE,
    ]
    metrics = [metric for metric in METRICS if metric.labels and metric.is_own]

    for number in range(100_000):
        metric = metrics[number % len(metrics)]
        made_up = [draw.choice([*words, f"m-{number}\n\x00é"]) for _ in metric.labels]
        registry.get_series(metric.name, *made_up)

    matches = lines(registry)
    bound = sum(metric.max_series(labels) for metric in METRICS)
    assert len(matches) <= bound
    for metric in metrics:
        mine = [
            line for line in matches if line.startswith((f"{metric.name}{{", f"{metric.name}_"))
        ]
        assert len(mine) <= metric.max_series(labels), metric.name


def test_metric_beyond_the_bound_has_one_other_series() -> None:
    registry = Registry(max_series=0)

    registry.allow_labels(catalog(*(f"d{number}" for number in range(100))), "policies")()

    assert of(registry, "headrace_dropped_tags_total") == [
        'headrace_dropped_tags_total{deployment="other"} 0.0'
    ]


def test_names_of_inactive_policies_are_dropped() -> None:
    clock = Clock(0.0)
    registry = Registry(clock)
    registry.allow_labels(catalog("support-chat"), "policies")()
    registry.allow_labels(catalog("dropped-names"), "policies")

    registry.allow_labels(catalog("support-chat"), "policies")()

    assert not [line for line in lines(registry) if "dropped-names" in line]
    clock.now = RETIRED_S
    registry.drop_expired_series()
    assert of(registry, "headrace_requests_total")


def test_histogram_starts_with_its_first_value() -> None:
    registry = Registry()
    registry.allow_labels(catalog("support-chat"), "policies")()
    assert not of(registry, "headrace_overhead_seconds_bucket")

    registry.get_series("headrace_overhead_seconds", "support-chat").observe(0.1)

    assert of(registry, "headrace_overhead_seconds_count") == [
        'headrace_overhead_seconds_count{deployment="support-chat"} 1.0'
    ]


def test_adding_a_catalog_is_independent_of_earlier_ones() -> None:
    registry = Registry()

    def admit(number: int) -> None:
        names = catalog(*(f"d{number}-{item}" for item in range(100)))
        registry.allow_labels(names, "policies")()

    steps = [count_lines(partial(admit, number)) for number in range(8)]

    assert max(steps) < 1.1 * min(steps)


NAME = "headrace_overhead_seconds"
TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_bucket_has_the_trace_of_its_latest_value() -> None:
    registry = Registry()
    registry.get_series(NAME, "support-chat").observe(0.0011, TRACE)

    text, media_type = Exposition(registry.collect).render("application/openmetrics-text")

    families = text_string_to_metric_families(text.decode())  # type: ignore[no-untyped-call]  # an untyped library
    [family] = [metric for metric in families if metric.name == NAME]
    exemplars = [metric.exemplar for metric in family.samples if metric.exemplar is not None]
    assert media_type.startswith("application/openmetrics-text")
    assert [(metric.labels, metric.value) for metric in exemplars] == [
        ({"trace_id": TRACE}, 0.0011)
    ]


EDGES = (0.1, 1, 2.5)


@given(st.lists(st.sampled_from([0.0, 0.1, 0.10001, 1.0, 2.5, 3.0, 1e9])))
def test_histogram_counts_like_the_client_library(values: list[float]) -> None:
    ours, registry = Histogram(EDGES), CollectorRegistry()
    theirs = prometheus_client.Histogram("x", "X.", buckets=EDGES, registry=registry)
    for value in values:
        ours.observe(value)
        theirs.observe(value)

    for edge, count, _ in ours.buckets():
        assert registry.get_sample_value("x_bucket", {"le": edge}) == count
    assert registry.get_sample_value("x_sum") == ours.sum


def test_counter_only_increases() -> None:
    count = Counter()
    count.inc()
    count.inc(0.5)

    with pytest.raises(ValueError, match="never"):
        count.inc(-1)

    assert count.value == 1.5
