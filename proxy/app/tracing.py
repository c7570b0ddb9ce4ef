"""How spans leave the process: OpenTelemetry's resource, exporter and variables, our own spans."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import proxy
from proxy.app.context import Context, new_request_id
from proxy.emit import Sink
from proxy.emit.outbox import Outbox
from proxy.emit.profiles import PROFILES
from proxy.emit.trace import Traces

if TYPE_CHECKING:
    from proxy.emit.collector import Collector
    from proxy.emit.otlp_request import RequestEncoder


class LateCollector:
    """A collector that is asked for when there are spans to send, in the thread that sends them.

    OpenTelemetry brings 200 modules, a tenth of a start, for which no call is to wait.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._instance = new_request_id()
        self._made: tuple[RequestEncoder, Collector] | None = None

    def encode(self, spans: Iterable[bytes]) -> bytes:
        """Return the request that carries spans."""
        return self._ready()[0].encode(spans)

    def send(self, request: bytes) -> bool:
        """Send a request; True if it was taken. Blocks."""
        return self._ready()[1].send(request)

    def close(self) -> None:
        if self._made is not None:
            self._made[1].close()

    def _ready(self) -> tuple[RequestEncoder, Collector]:
        if self._made is None:
            self._made = self._collector()
        return self._made

    def _collector(self) -> tuple[RequestEncoder, Collector]:
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  # see above

        from proxy.emit.collector import Collector  # noqa: PLC0415
        from proxy.emit.otlp_request import RequestEncoder  # noqa: PLC0415

        who = {"service.version": proxy.__version__, "service.instance.id": self._instance}
        resource = Resource.create({"service.name": "headrace", **who})
        url = f"{self._endpoint.rstrip('/')}/v1/traces"
        return RequestEncoder(resource, "headrace"), Collector(url)


def traces(context: Context, endpoint: str) -> Sink:
    """Return the sink of spans, which sends them to the collector at this address."""
    collector = LateCollector(endpoint)
    dropped, failed = partial(context.metrics.dropped, "traces"), partial(context.failed, "traces")
    outbox = Outbox(collector, collector.encode, dropped, failed)
    waiting = partial(getattr, outbox, "waiting")
    context.metrics.watch("headrace_telemetry_queue_length", "traces", read=waiting)
    context.opened.push_async_callback(asyncio.to_thread, outbox.close)
    profiles = [PROFILES[name] for name in context.settings.trace_profiles]
    return Traces(outbox, context.settings.trace_ratio, profiles)
