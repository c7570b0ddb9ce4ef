"""OTLP metrics of calls, as a real collector gets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.doubles import ScriptedUpstream
from tests.telemetry.collector import Collector, said
from tests.telemetry.test_golden_spans import CALLS, spans_of

INFERENCE = "gen_ai.client.inference"


async def metrics_of(
    call: str, folder: Path, upstream: ScriptedUpstream, collector: Collector
) -> dict[str, list[tuple[dict[str, Any], float]]]:
    """Make a call. Return the labels and the sums of its series, by metric."""
    await spans_of(CALLS[call], folder, upstream, collector)
    series = {}
    for name, metric in collector.metrics.items():
        points = getattr(metric, metric.WhichOneof("data")).data_points
        series[name.removeprefix(INFERENCE + ".")] = [
            (said(point), point.sum if hasattr(point, "sum") else point.as_int) for point in points
        ]
    return series


async def test_tokens_are_counted_by_modality(
    tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    series = await metrics_of("whole", tmp_path, upstream, collector)

    counts = {
        (side, labels["gen_ai.token.modality"]): count
        for side in ("input", "output")
        for labels, count in series[f"usage.{side}_tokens"]
    }
    assert counts == {
        ("input", "audio"): 4,
        ("input", "image"): 3,
        ("input", "text"): 2,
        ("output", "audio"): 2,
        ("output", "image"): 1,
        ("output", "text"): 4,
    }
    [(labels, size)] = series["operation.input_tokens"]
    assert size == 9
    assert labels == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "smol",
        "server.address": "127.0.0.1",
        "server.port": labels["server.port"],
    }
    bounds = collector.metrics[f"{INFERENCE}.operation.input_tokens"].histogram.data_points[0]
    assert [*bounds.explicit_bounds] == [4**power for power in range(14)]
    assert "time_to_first_chunk" not in series


async def test_a_stream_has_a_time_to_its_first_chunk(
    tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    series = await metrics_of("stream", tmp_path, upstream, collector)

    [(_, first_seconds)] = series["time_to_first_chunk"]
    [(_, duration)] = series["duration"]
    assert 0 < first_seconds <= duration
    [(labels, _)] = series["usage.input_tokens"]
    assert labels["gen_ai.token.modality"] == "unknown"


async def test_a_failed_call_has_its_error_and_no_tokens(
    tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    series = await metrics_of("refused-by-upstream", tmp_path, upstream, collector)

    [(labels, _)] = series["duration"]
    assert labels["error.type"] == "upstream_refused"
    assert series.keys() == {"duration"}


async def test_embeddings_have_metrics_of_their_own(
    tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    series = await metrics_of("embeddings", tmp_path, upstream, collector)

    prefix = "gen_ai.client.embeddings"
    assert series.keys() == {f"{prefix}.duration", f"{prefix}.operation.input_tokens"}
    assert series[f"{prefix}.operation.input_tokens"][0][1] == 4


async def test_a_call_without_a_request_to_an_upstream_has_no_metrics(
    tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    assert await metrics_of("rule-refuses", tmp_path, upstream, collector) == {}
