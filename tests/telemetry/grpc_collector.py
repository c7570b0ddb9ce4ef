"""A collector of spans and metrics over OTLP and gRPC, as a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tests.telemetry.collector import Collector


class GrpcCollector(Collector):
    """Stores exported data and the metadata of each request."""

    async def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  # the method's name in gRPC
        self.headers.append(dict(context.invocation_metadata()))
        if isinstance(request, ExportMetricsServiceRequest):
            self.keep_metrics(request)
            return ExportMetricsServiceResponse()
        self.keep(request)
        return ExportTraceServiceResponse()


@asynccontextmanager
async def grpc_collector() -> AsyncIterator[GrpcCollector]:
    """Run a collector until the block ends."""
    collector, server = GrpcCollector(), grpc.aio.server()
    add_servicer: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
    add_servicer(collector, server)
    add_metrics_servicer: Any = metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server
    add_metrics_servicer(collector, server)
    collector.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield collector
    finally:
        await server.stop(None)
