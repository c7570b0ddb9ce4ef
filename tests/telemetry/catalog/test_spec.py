"""Numbers between two scrapes count as the library's own would."""

from __future__ import annotations

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from proxy.telemetry.catalog.spec import Counter, Histogram

EDGES = (0.1, 1, 2.5)


@given(st.lists(st.sampled_from([0.0, 0.1, 0.10001, 1.0, 2.5, 3.0, 1e9])))
def test_a_spread_counts_as_the_library_does(values: list[float]) -> None:
    ours, registry = Histogram(EDGES), CollectorRegistry()
    theirs = prometheus_client.Histogram("x", "X.", buckets=EDGES, registry=registry)
    for value in values:
        ours.observe(value)
        theirs.observe(value)

    for edge, count, _ in ours.buckets():
        assert registry.get_sample_value("x_bucket", {"le": edge}) == count
    assert registry.get_sample_value("x_sum") == ours.sum


def test_a_count_only_goes_up() -> None:
    count = Counter()
    count.inc()
    count.inc(0.5)

    with pytest.raises(ValueError, match="never"):
        count.inc(-1)

    assert count.value == 1.5
