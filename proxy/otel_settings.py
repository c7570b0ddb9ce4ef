"""Settings of traces from the environment variables of the OpenTelemetry SDK.

An exporter of the SDK reads its own variables. An invalid value never stops the process, as the
SDK's specification demands: a warning names the variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from proxy.frozen import frozen

PROTOCOLS = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
"""Exporters of ``otlp``, by the value of ``OTEL_EXPORTER_OTLP_PROTOCOL``."""
COMPRESSIONS = ("none", "gzip", "deflate")
ENDPOINTS = (
    "HEADRACE_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
)
RATIO_SAMPLERS = ("traceidratio", "parentbased_traceidratio")
READ_HERE = (
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
    "OTEL_BSP_MAX_QUEUE_SIZE",
    "OTEL_BSP_SCHEDULE_DELAY",
    "OTEL_SDK_DISABLED",
    "OTEL_TRACES_EXPORTER",
    "OTEL_TRACES_SAMPLER",
    "OTEL_TRACES_SAMPLER_ARG",
)
READ_BY_SDK = (
    "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS",
    "OTEL_RESOURCE_ATTRIBUTES",
    "OTEL_SERVICE_NAME",
)
OTHER_SIGNALS = ("OTEL_EXPORTER_OTLP_LOGS_", "OTEL_EXPORTER_OTLP_METRICS_")


@frozen
class BatchBounds:
    """Bounds of the queue in front of an exporter. A span waits at most ``delay_ms`` for its
    batch."""

    max_spans: int = 2048
    max_batch: int = 512
    delay_ms: int = 1000


@frozen
class OtelSettings:
    """How spans are sampled and exported.

    ``exporters`` and ``sampler`` are entry points of the SDK. Without exporters there are no spans;
    without a sampler the default one is used. ``warnings`` name the variables that have an invalid
    value or no effect.
    """

    exporters: tuple[str, ...] = ()
    sampler: str | None = None
    sampler_arg: str | None = None
    bounds: BatchBounds = BatchBounds()  # it is frozen
    warnings: tuple[str, ...] = ()


def otel_settings(environ: Mapping[str, str]) -> OtelSettings:
    """Read the variables ``OTEL_*``."""
    given = {name: value.strip() for name, value in environ.items() if value.strip()}
    warnings: list[str] = []
    exporters = _exporters(given, warnings)
    if not exporters:
        return OtelSettings(warnings=tuple(warnings))
    sampler, sampler_arg = given.get("OTEL_TRACES_SAMPLER"), given.get("OTEL_TRACES_SAMPLER_ARG")
    if sampler is not None and sampler.lower() in RATIO_SAMPLERS and not _is_number(sampler_arg, 1):
        warnings.append(f"OTEL_TRACES_SAMPLER_ARG must be from 0 to 1 for {sampler}; 1.0 is used")
        sampler_arg = "1.0"
    bounds = _bounds(given, warnings)
    for signal in ("", "TRACES_"):
        compression = f"OTEL_EXPORTER_OTLP_{signal}COMPRESSION"
        if given.get(compression, "none").lower() not in COMPRESSIONS:
            warnings.append(f"{compression} must be {', '.join(COMPRESSIONS)}")
        timeout = f"OTEL_EXPORTER_OTLP_{signal}TIMEOUT"
        if not _is_number(given.get(timeout, "1")):
            warnings.append(f"{timeout} must be a number of seconds")
    warnings += [f"{name} has no effect" for name in sorted(given) if _is_ignored(name, given)]
    return OtelSettings(
        exporters=exporters,
        sampler=sampler,
        sampler_arg=sampler_arg,
        bounds=bounds,
        warnings=tuple(warnings),
    )


def _bounds(given: Mapping[str, str], warnings: list[str]) -> BatchBounds:
    defaults = BatchBounds()
    max_spans = _positive(given, "OTEL_BSP_MAX_QUEUE_SIZE", defaults.max_spans, warnings)
    max_batch = _positive(given, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", defaults.max_batch, warnings)
    if max_batch > max_spans:
        if "OTEL_BSP_MAX_EXPORT_BATCH_SIZE" in given:
            warnings.append("OTEL_BSP_MAX_EXPORT_BATCH_SIZE is more than OTEL_BSP_MAX_QUEUE_SIZE")
        max_batch = max_spans
    delay_ms = _positive(given, "OTEL_BSP_SCHEDULE_DELAY", defaults.delay_ms, warnings)
    return BatchBounds(max_spans, max_batch, delay_ms)


def _exporters(given: Mapping[str, str], warnings: list[str]) -> tuple[str, ...]:
    """Return the names of the exporters' entry points, without repetitions."""
    default = "otlp" if any(name in given for name in ENDPOINTS) else "none"
    text = given.get("OTEL_TRACES_EXPORTER", default)
    if given.get("OTEL_SDK_DISABLED", "").lower() == "true" or text.lower() == "none":
        return ()
    names = [name.strip() for name in text.split(",") if name.strip()]
    if "otlp" in names:
        variable = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
        if variable not in given:
            variable = "OTEL_EXPORTER_OTLP_PROTOCOL"
        protocol = given.get(variable, "http/protobuf")
        if protocol not in PROTOCOLS:
            known = " or ".join(PROTOCOLS)
            warnings.append(f"{variable} must be {known}, not {protocol!r}; http/protobuf is used")
        otlp = PROTOCOLS.get(protocol, "otlp_proto_http")
        names = [otlp if name == "otlp" else name for name in names]
    return tuple(dict.fromkeys(names))


def _positive(given: Mapping[str, str], name: str, default: int, warnings: list[str]) -> int:
    text = given.get(name, str(default))
    if text.isdecimal() and int(text) > 0:
        return int(text)
    warnings.append(f"{name} must be a positive integer, not {text!r}; {default} is used")
    return default


def _is_number(text: str | None, high: float = inf) -> bool:
    try:
        return 0 <= float(text or "") <= high
    except ValueError:
        return False


def _is_ignored(name: str, given: Mapping[str, str]) -> bool:
    """Return True for a variable of the SDK that neither Headrace nor an exporter reads."""
    if not name.startswith("OTEL_") or name in READ_HERE or name in READ_BY_SDK:
        return False
    if name.endswith("_EXPORTER"):  # of metrics or logs, which are off
        return given[name].lower() != "none"
    is_exporters = name.startswith(("OTEL_EXPORTER_", "OTEL_PYTHON_EXPORTER_"))
    return name.startswith(OTHER_SIGNALS) or not is_exporters
