"""What is scraped is what was counted, with the trace of the last value of each range."""

from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from proxy.telemetry.exposition import Exposition
from proxy.telemetry.metrics import Registry

NAME = "headrace_overhead_seconds"
TRACE = "0af7651916cd43dd8448eb211c80319c"


def test_a_range_shows_the_trace_of_its_last_value() -> None:
    registry = Registry()
    registry.child(NAME, "support-chat").observe(0.0011, TRACE)

    text, media_type = Exposition(registry.collect).render("application/openmetrics-text")

    families = text_string_to_metric_families(text.decode())  # type: ignore[no-untyped-call]  # it has none
    [family] = [metric for metric in families if metric.name == NAME]
    exemplars = [metric.exemplar for metric in family.samples if metric.exemplar is not None]
    assert media_type.startswith("application/openmetrics-text")
    assert [(metric.labels, metric.value) for metric in exemplars] == [
        ({"trace_id": TRACE}, 0.0011)
    ]
