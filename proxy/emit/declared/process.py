"""Metrics of the process itself, and those of it that the library tells."""

from __future__ import annotations

import proxy
from proxy.emit.declared import axes
from proxy.emit.declared.metric import Axis, Declared, Kind, closed, counter, gauge, histogram

LAG = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)
VERSION = closed("version", proxy.__version__)
SAMPLING = closed("decision", "sampled", "limited", usual=())
SECRET = Axis(("use", "fingerprint"), lambda roster: [], lambda roster: [])


def _of_library(name: str, help_text: str, kind: Kind = "gauge") -> Declared:
    return Declared(name, kind, help_text, own=False)


METRICS = (
    histogram(
        "headrace_event_loop_lag_seconds",
        "How late the event loop wakes what asked for a moment; a call waits as long for its turn.",
        edges=LAG,
    ),
    gauge(
        "headrace_telemetry_queue_length",
        "What waits to be written or sent.",
        (axes.SIGNAL,),
        lazy=True,
    ),
    gauge(
        "headrace_request_body_bytes", "What the bodies of the requests under way take.", lazy=True
    ),
    gauge(
        "headrace_answer_body_bytes",
        "What the bodies of the answers take that are held as a whole.",
        lazy=True,
    ),
    counter(
        "headrace_telemetry_dropped_total",
        "Log lines, spans and records that could not be emitted.",
        (axes.DROPPED, axes.DROP),
    ),
    counter(
        "headrace_traces_sampled_total",
        "Calls whose spans are exported (sampled), or are not because of the rate limit of the "
        "default sampler (limited).",
        (SAMPLING,),
    ),
    counter(
        "headrace_writer_failures_total",
        "Exceptions that nobody foresaw in a thread that writes or sends.",
        (axes.WRITER,),
    ),
    counter(
        "headrace_files_replaced_total",
        "Files that were gone, or damaged, while the process ran, and that it began anew.",
        (axes.KEEPER,),
    ),
    gauge("headrace_build_info", "Always 1; says what runs.", (VERSION,), lazy=True),
    gauge(
        "headrace_secret_info",
        "Always 1. A short digest of the secret for each use: ids and placeholders (ids), all "
        "secrets whose ids are accepted (accepted), and cache keys in Redis (cache).",
        (SECRET,),
        lazy=True,
    ),
    _of_library("process_cpu_seconds_total", "Processor time, of user and system.", "counter"),
    _of_library("process_resident_memory_bytes", "Memory that is in use."),
    _of_library("process_virtual_memory_bytes", "Memory that is addressed."),
    _of_library(
        "process_start_time_seconds", "When the process began, in seconds since the epoch."
    ),
    _of_library("process_open_fds", "Open files and sockets."),
    _of_library("process_max_fds", "How many of them there may be."),
)
