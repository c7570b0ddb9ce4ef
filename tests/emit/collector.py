"""A collector of spans over OTLP: it keeps what it is sent, as the handler of a real server."""

from __future__ import annotations

from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Keeps every span that was exported to it."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[bytes] = []
        self.spans: list[Any] = []

    async def handle(self, request: web.BaseRequest) -> web.Response:
        self.bodies.append(await request.read())
        message = ExportTraceServiceRequest.FromString(self.bodies[-1])
        for resource in message.resource_spans:
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)
        return web.Response(body=b"")

    def named(self, start: str) -> Any:
        [span] = [each for each in self.spans if each.name.startswith(start)]
        return span


def said(span: Any) -> dict[str, Any]:
    """Give a span's attributes as plain data."""
    plain = {}
    for pair in span.attributes:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        plain[pair.key] = [v.string_value for v in value.values] if kind == "array_value" else value
    return plain
