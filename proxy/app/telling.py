"""What a process tells of itself beside its calls: spans, warnings, bugs and where they are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource

import proxy
from proxy.app.site import Site, new_request_id
from proxy.emit import Sink
from proxy.emit.decisions import Decisions
from proxy.emit.outbox import Outbox
from proxy.emit.profiles import PROFILES
from proxy.emit.trace import Traces
from proxy.types.outcome import Standing


def traces(site: Site) -> tuple[Sink, ...]:
    """Give the sink of spans when there is a collector to send them to."""
    if site.settings.otlp_endpoint is None:
        return ()
    exporter = OTLPSpanExporter(f"{site.settings.otlp_endpoint.rstrip('/')}/v1/traces", timeout=2)
    outbox = Outbox(exporter, time.monotonic, partial(site.metrics.dropped, "traces"))
    waiting = partial(getattr, outbox, "waiting")
    site.metrics.watch("headrace_telemetry_queue_length", "traces", read=waiting)
    site.opened.push_async_callback(asyncio.to_thread, outbox.close)
    who = {"service.version": proxy.__version__, "service.instance.id": new_request_id()}
    resource = Resource.create({"service.name": "headrace", **who})
    profiles = [PROFILES[name] for name in site.settings.trace_profiles]
    return (Traces(outbox, resource, site.settings.trace_ratio, profiles),)


def decisions(site: Site) -> tuple[Decisions, ...]:
    """Give the sink of decisions when they are kept. It closes after the last call has ended."""
    path = site.settings.log.decisions
    if path is None:
        return ()
    kept = Decisions(path, partial(site.metrics.dropped, "decisions"), site.log)
    waiting = partial(getattr, kept, "waiting")
    site.metrics.watch("headrace_telemetry_queue_length", "decisions", read=waiting)
    site.opened.push_async_callback(asyncio.to_thread, kept.close)
    return (kept,)


def warn(site: Site) -> Callable[[Standing], None]:
    """Tell of a limit that is nearly used up. Whose it is may be a user's name: it is not told."""

    def tell(standing: Standing) -> None:
        limit = standing.limit
        site.metrics.limit_warned(limit.name)
        site.log.warning("limit.warned", limit=limit.name, used=standing.used, of=limit.capacity)

    return tell


def bug(site: Site) -> Callable[[BaseException, str], None]:
    """Log where a bug is, by type and line; its message could quote a request."""

    def tell(bug: BaseException, request_id: str) -> None:
        site.log.error("bug", request_id=request_id, **_where(bug))

    return tell


def report(site: Site) -> Callable[[Sink, BaseException], None]:
    def tell(sink: Sink, error: BaseException) -> None:
        site.metrics.dropped(type(sink).__name__.lower(), "error")
        site.log.error("emit.failed", sink=type(sink).__name__, **_where(error))

    return tell


def amiss(site: Site) -> Callable[[Exception], None]:
    """Log why budgets and ledger could not be compared."""

    def tell(error: Exception) -> None:
        site.log.error("drift.failed", **_where(error))

    return tell


def _where(error: BaseException) -> dict[str, str]:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    line = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"
    return {"type": type(error).__name__, "at": line}
