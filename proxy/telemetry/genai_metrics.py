"""Sink that records the client metrics of OpenTelemetry's GenAI conventions v0.1.0, for OTLP.

``gen_ai.response.model`` is omitted, because an upstream chooses it. ``time_per_output_chunk`` is
omitted, because it would cost a record for each chunk of a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from opentelemetry.metrics import Meter

from proxy.call.record import Record
from proxy.call.summary import summarize
from proxy.money.usage import UNCOUNTED_SOURCES, Tokens
from proxy.telemetry.attributes import (
    OTHER_OPERATIONS,
    get_model_metric_attributes,
    get_upstream_first_chunk_seconds,
)

DURATION_BUCKETS_S = [0.01 * 2**power for power in range(14)]
TOKEN_BUCKETS = [4**power for power in range(14)]
INFERENCE_PREFIX, EMBEDDINGS_PREFIX = "gen_ai.client.inference", "gen_ai.client.embeddings"
PREFIX_BY_ENDPOINT: Mapping[str, str] = {"embeddings": EMBEDDINGS_PREFIX} | dict.fromkeys(
    OTHER_OPERATIONS, "gen_ai.client.operation"
)
"""Prefixes of metric names by the endpoint of a call; of all other endpoints it is inference."""
MODALITY_ATTRIBUTE = "gen_ai.token.modality"
COUNTER_BY_TOKEN_TYPE: Mapping[str, str] = {
    "cached_input": f"{INFERENCE_PREFIX}.usage.cache_read.input_tokens",
    "cache_write": f"{INFERENCE_PREFIX}.usage.cache_write.input_tokens",
    "reasoning": f"{INFERENCE_PREFIX}.usage.reasoning.output_tokens",
}
"""Counters of token types that no provider splits by modality."""


class GenAiMetrics:
    """Records the duration and the tokens of each model call that reached an upstream."""

    name: ClassVar[str] = "genai_metrics"

    def __init__(self, meter: Meter) -> None:
        durations = [
            f"{kind}.duration" for kind in (INFERENCE_PREFIX, *PREFIX_BY_ENDPOINT.values())
        ]
        sizes = [
            f"{INFERENCE_PREFIX}.operation.{side}" for side in ("input_tokens", "output_tokens")
        ]
        self._histograms = {
            name: meter.create_histogram(name, unit, explicit_bucket_boundaries_advisory=edges)
            for unit, edges, names in (
                ("s", DURATION_BUCKETS_S, {*durations, f"{INFERENCE_PREFIX}.time_to_first_chunk"}),
                ("{token}", TOKEN_BUCKETS, {*sizes, f"{EMBEDDINGS_PREFIX}.operation.input_tokens"}),
            )
            for name in names
        }
        sides = (
            f"{INFERENCE_PREFIX}.usage.input_tokens",
            f"{INFERENCE_PREFIX}.usage.output_tokens",
        )
        names = (*sides, *COUNTER_BY_TOKEN_TYPE.values())
        self._counters = {name: meter.create_counter(name, "{token}") for name in names}

    def emit(self, record: Record) -> None:
        """Record a call, whether its trace is sampled or not."""
        if not record.attempts:
            return
        summary = summarize(record)
        kind = PREFIX_BY_ENDPOINT.get(summary.endpoint or "", INFERENCE_PREFIX)
        labels: dict[str, Any] = get_model_metric_attributes(record, summary)
        error = {} if summary.error is None else {"error.type": summary.error}
        first_attempt, last_attempt = record.attempts[0], record.attempts[-1]
        ended = last_attempt.ended or record.ended or last_attempt.started
        self._histograms[f"{kind}.duration"].record(ended - first_attempt.started, labels | error)
        if (
            kind == INFERENCE_PREFIX
            and (first_s := get_upstream_first_chunk_seconds(record, summary)) is not None
        ):
            self._histograms[f"{kind}.time_to_first_chunk"].record(first_s, labels)
        has_token_metrics = kind in (INFERENCE_PREFIX, EMBEDDINGS_PREFIX)
        if summary.usage_source in UNCOUNTED_SOURCES or not has_token_metrics:
            return
        sides = {"input_tokens": summary.tokens.prompt_total}
        if kind == INFERENCE_PREFIX:
            sides["output_tokens"] = summary.tokens.completion_total
            self._count_tokens_by_modality(summary.tokens, labels)
        for side, count in sides.items():
            self._histograms[f"{kind}.operation.{side}"].record(count, labels)

    def _count_tokens_by_modality(self, tokens: Tokens, labels: Mapping[str, Any]) -> None:
        """Add tokens by modality: ``unknown`` if no provider reports a modality."""
        for side, total, audio, image in (
            ("input", tokens.prompt_total, tokens.audio_input, tokens.image_input),
            ("output", tokens.completion_total, tokens.audio_output, tokens.image_output),
        ):
            remaining_counts = "text" if audio or image else "unknown"
            counts = {
                "audio": audio,
                "image": image,
                remaining_counts: max(0, total - audio - image),
            }
            for modality, count in counts.items():
                if count:
                    counter = self._counters[f"{INFERENCE_PREFIX}.usage.{side}_tokens"]
                    counter.add(count, {**labels, MODALITY_ATTRIBUTE: modality})
        for token_type, name in COUNTER_BY_TOKEN_TYPE.items():
            if count := getattr(tokens, token_type):
                self._counters[name].add(count, {**labels, MODALITY_ATTRIBUTE: "unknown"})
