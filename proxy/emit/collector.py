"""Sends requests of spans by OpenTelemetry's own exporter, so that its variables count here too.

Headers, certificates, compression and retries are the exporter's, as ``OTEL_EXPORTER_OTLP_HEADERS``
and its like say. It would encode spans of the SDK's first, and takes no bytes; so it is given no
span, and its session, which anybody may give it, sends ours in place of what it has made of none.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import requests
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from proxy.emit.otlp import field_tag, length_delimited
from proxy.settings import Address

TIMEOUT_S = 2.0  # for a request with all its retries
COMPRESSIONS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
}


class _Carrier(requests.Session):
    """The exporter's session: whatever that one sends, it sends ``spans``."""

    def __init__(self) -> None:
        super().__init__()
        self.spans = b""
        self.sent = False
        self._settings: Any = None
        self._prepared: requests.PreparedRequest | None = None

    def merge_environment_settings(self, url: Any, *options: Any) -> Any:
        """Return proxies and certificates. They are read from the environment once, not for each
        request. A collector on this machine is reached without a proxy."""
        if self._settings is None:
            self._settings = super().merge_environment_settings(url, *options)
            if Address(urlsplit(url).hostname or "", 0).loopback:
                self._settings["proxies"] = {}
        return self._settings

    def prepare_request(self, request: requests.Request) -> requests.PreparedRequest:
        """Return the request, which is always the same but for its body: to prepare it reads all
        variables there are, and a file of passwords, too."""
        if self._prepared is None:
            self._prepared = super().prepare_request(request)
        return self._prepared.copy()

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send the request with our spans as its body."""
        compress = COMPRESSIONS.get(str(request.headers.get("Content-Encoding")))
        request.prepare_body(compress(self.spans) if compress else self.spans, None)
        self.sent = True
        return super().send(request, **options)


class Collector:
    """A collector of spans at a URL. ``send`` blocks; all is called from one thread."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        self._session = _Carrier()
        self._exporter = OTLPSpanExporter(url, session=self._session, timeout=timeout_s)

    def send(self, request: bytes) -> bool:
        """Return True if a request was taken, be it after some retries."""
        self._session.spans, self._session.sent = request, False
        result = self._exporter.export(())
        return result is SpanExportResult.SUCCESS and self._session.sent

    def close(self) -> None:
        self._session.close()


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
