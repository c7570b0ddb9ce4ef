"""What is around spans in a request to a collector: written once, by OpenTelemetry's own encoder.

The SDK and its protobuf are some 200 modules, which only a process that sends spans imports.
"""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from proxy.emit.otlp import field_tag, length_delimited


class RequestEncoder:
    """What is around the spans of a request: who tells of them, written once."""

    def __init__(self, resource: Resource, scope: str) -> None:
        context, library = SpanContext(1, 1, is_remote=False), InstrumentationScope(scope)
        empty = ReadableSpan("", context, resource=resource, instrumentation_scope=library)
        [around] = encode_spans([empty]).resource_spans
        [inner] = around.scope_spans
        del inner.spans[:], around.scope_spans[:]
        self._resource, self._scope = around.SerializeToString(), inner.SerializeToString()

    def encode(self, spans: Iterable[bytes]) -> bytes:
        """Return the request that tells of these spans."""
        of_scope = length_delimited(field_tag(2), b"".join((self._scope, *spans)))
        return length_delimited(field_tag(1), self._resource + of_scope)
