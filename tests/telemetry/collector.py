"""A collector of spans and metrics over OTLP and HTTP, as the handler of a real server."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Stores exported spans, the latest metrics, and their requests."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.resources: list[dict[str, Any]] = []
        self.spans: list[Any] = []
        self.batches: list[int] = []
        self.metrics: dict[str, Any] = {}
        self.has_metrics = asyncio.Event()

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Receive spans or metrics over HTTP."""
        self.paths.append(request.path)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.bodies.append(await request.read())
        if request.path.endswith("/metrics"):
            self.keep_metrics(ExportMetricsServiceRequest.FromString(self.bodies[-1]))
        else:
            self.keep(ExportTraceServiceRequest.FromString(self.bodies[-1]))
        return web.Response(body=b"")

    def keep(self, message: ExportTraceServiceRequest) -> None:
        spans = [
            span
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        self.resources += [
            attributes_of(resource_span.resource) for resource_span in message.resource_spans
        ]
        self.spans += spans
        self.batches.append(len(spans))

    def keep_metrics(self, message: ExportMetricsServiceRequest) -> None:
        for resource in message.resource_metrics:
            self.resources.append(attributes_of(resource.resource))
            for scope in resource.scope_metrics:
                self.metrics |= {metric.name: metric for metric in scope.metrics}
                self.has_metrics.set()

    def named(self, start: str) -> Any:
        [span] = [item for item in self.spans if item.name.startswith(start)]
        return span


def attributes_of(span: Any) -> dict[str, Any]:
    """Return the attributes of a span or a resource as plain data."""
    plain = {}
    for pair in span.attributes:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        plain[pair.key] = [v.string_value for v in value.values] if kind == "array_value" else value
    return plain
