"""Construction of traces and OTLP metrics: exporters, sampler and resource of the SDK.

Imported only if one of them is exported: the SDK takes 200 ms.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler
from opentelemetry.util._importlib_metadata import entry_points

import proxy
from proxy.app.context import Context
from proxy.runtime.otel_settings import OtelSettings
from proxy.telemetry import RecordSink
from proxy.telemetry.attributes import ATTRIBUTE_PROFILES
from proxy.telemetry.log import Quota
from proxy.telemetry.span_queue import CLOSE_TIMEOUT_S, SpanQueue
from proxy.telemetry.trace import (
    CALLS_PER_S,
    MIN_SHARE,
    RateLimitedSampler,
    TraceSink,
    load_sampler,
)

SAMPLED_METRIC = "headrace_traces_sampled_total"
INSTALL_HINTS = {"otlp_proto_grpc": "pip install 'headrace[grpc]'"}


def build_trace_sinks(context: Context, otel: OtelSettings) -> tuple[TraceSink, ...]:
    """Return the sink of spans. An exporter that cannot be created is logged and skipped."""
    exporters = _iter_exporters(context, "traces", otel.exporters)
    queues = [_open_span_queue(context, exporter, otel) for exporter in exporters]
    if not queues:
        return ()
    context.metrics.add_gauge(
        "headrace_telemetry_queue_length",
        "traces",
        read=lambda: sum(queue.pending_count for queue in queues),
    )
    profiles = [ATTRIBUTE_PROFILES[name] for name in context.settings.trace_profiles]
    on_sample = partial(context.metrics.count, SAMPLED_METRIC, "sampled")
    return (
        TraceSink(queues, _build_sampler(context, otel), build_resource(), profiles, on_sample),
    )


def build_otlp_metric_sinks(context: Context, otel: OtelSettings) -> tuple[RecordSink, ...]:
    """Return the sink of OTLP metrics. The SDK exports them in one thread per exporter."""
    if not otel.metric_exporters:
        return ()
    # 40 ms of imports that traces do not need.
    from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

    from proxy.telemetry.genai_metrics import GenAiMetrics  # noqa: PLC0415

    readers = [
        PeriodicExportingMetricReader(exporter, otel.metric_interval_ms, otel.metric_timeout_ms)
        for exporter in _iter_exporters(context, "metrics", otel.metric_exporters)
    ]
    if not readers:
        return ()
    provider = MeterProvider(
        readers, build_resource(), exemplar_filter=AlwaysOffExemplarFilter(), shutdown_on_exit=False
    )
    context.opened.push_async_callback(asyncio.to_thread, provider.shutdown, CLOSE_TIMEOUT_S * 1000)
    return (GenAiMetrics(provider.get_meter("headrace")),)


def _iter_exporters(context: Context, signal: str, names: Sequence[str]) -> Iterator[Any]:
    """Yield the exporters of a signal by the names of their entry points."""
    for name in names:
        exporter = _build_exporter(context, signal, name)
        if exporter is not None:
            yield exporter


def _build_exporter(context: Context, signal: str, name: str) -> Any:
    endpoint = context.settings.otlp_endpoint
    options = {}
    if endpoint is not None and name == "otlp_proto_http":
        options["endpoint"] = f"{endpoint.rstrip('/')}/v1/{signal}"
    elif endpoint is not None and name == "otlp_proto_grpc":
        options["endpoint"] = endpoint
    reason = INSTALL_HINTS.get(name, "no installed package provides this exporter")
    try:
        for entry_point in entry_points(group=f"opentelemetry_{signal}_exporter", name=name):
            return entry_point.load()(**options)
    except ImportError:
        pass
    except Exception as error:  # noqa: BLE001 # exporters are third-party code
        reason = f"{type(error).__name__}: {error}"
    context.log.error("otel.exporter_missing", signal=signal, exporter=name, reason=reason)
    return None


def _open_span_queue(context: Context, exporter: SpanExporter, otel: OtelSettings) -> SpanQueue:
    on_drop = partial(context.metrics.count_dropped, "traces")
    queue = SpanQueue(exporter, on_drop, partial(context.on_writer_error, "traces"), otel.bounds)
    context.opened.push_async_callback(asyncio.to_thread, queue.close)
    return queue


def _build_sampler(context: Context, otel: OtelSettings) -> Sampler:
    if otel.sampler is not None:
        sampler = load_sampler(otel.sampler, otel.sampler_arg)
        if sampler is not None:
            return sampler
        context.log.warning("traces.sampler_missing", sampler=otel.sampler)
    quota = Quota(time.monotonic, burst=1, per_minute=1)

    def limited() -> None:
        context.metrics.count(SAMPLED_METRIC, "limited")
        if (suppressed := quota.take_token()) is not None:
            context.log.warning(
                "traces.limited",
                calls_per_second=CALLS_PER_S,
                share=MIN_SHARE,
                suppressed=suppressed,
            )

    ratio = context.settings.trace_ratio
    return ParentBased(RateLimitedSampler(time.monotonic, limited, ratio, CALLS_PER_S))


def build_resource() -> Resource:
    """Return the attributes of this process. Those of ``OTEL_`` variables have precedence."""
    configured = Resource.create()
    if str(configured.attributes["service.name"]).startswith("unknown_service"):
        configured = configured.merge(Resource({"service.name": "headrace"}))
    return Resource({"service.version": proxy.__version__}).merge(configured)
