"""A collector of spans over OTLP and HTTP, as the handler of a real server."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Keeps every span that was exported to it, and the requests that brought them."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.resources: list[dict[str, Any]] = []
        self.spans: list[Any] = []
        self.batches: list[int] = []

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """Receive spans over HTTP."""
        self.paths.append(request.path)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.bodies.append(await request.read())
        self.keep(ExportTraceServiceRequest.FromString(self.bodies[-1]))
        return web.Response(body=b"")

    def keep(self, message: ExportTraceServiceRequest) -> None:
        spans = [
            span
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        self.resources += [said(each.resource) for each in message.resource_spans]
        self.spans += spans
        self.batches.append(len(spans))

    def named(self, start: str) -> Any:
        [span] = [each for each in self.spans if each.name.startswith(start)]
        return span


def said(span: Any) -> dict[str, Any]:
    """Return the attributes of a span or a resource as plain data."""
    plain = {}
    for pair in span.attributes:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        plain[pair.key] = [v.string_value for v in value.values] if kind == "array_value" else value
    return plain
