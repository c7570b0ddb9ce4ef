"""How spans leave the process: OpenTelemetry's resource, exporter and variables, our own spans."""

from __future__ import annotations

import asyncio
from functools import partial

from opentelemetry.sdk.resources import Resource

import proxy
from proxy.app.context import Context, new_request_id
from proxy.emit import Sink
from proxy.emit.collector import Collector
from proxy.emit.otlp_request import RequestEncoder
from proxy.emit.outbox import Outbox
from proxy.emit.profiles import PROFILES
from proxy.emit.trace import Traces


def traces(context: Context, endpoint: str) -> Sink:
    """Return the sink of spans, which sends them to the collector at this address."""
    who = {"service.version": proxy.__version__, "service.instance.id": new_request_id()}
    resource = Resource.create({"service.name": "headrace", **who})
    collector = Collector(f"{endpoint.rstrip('/')}/v1/traces")
    dropped, failed = partial(context.metrics.dropped, "traces"), partial(context.failed, "traces")
    outbox = Outbox(collector, RequestEncoder(resource, "headrace").encode, dropped, failed)
    waiting = partial(getattr, outbox, "waiting")
    context.metrics.watch("headrace_telemetry_queue_length", "traces", read=waiting)
    context.opened.push_async_callback(asyncio.to_thread, outbox.close)
    profiles = [PROFILES[name] for name in context.settings.trace_profiles]
    return Traces(outbox, context.settings.trace_ratio, profiles)
