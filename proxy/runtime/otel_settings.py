"""Settings of traces and metrics from the environment variables of the OpenTelemetry SDK.

An exporter of the SDK reads its own variables. An invalid value never stops the process, as the
SDK's specification demands: a warning names the variable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from proxy.runtime.frozen import frozen

EXPORTER_BY_PROTOCOL = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
"""Exporters of ``otlp``, by the value of ``OTEL_EXPORTER_OTLP_PROTOCOL``."""
COMPRESSIONS = ("none", "gzip", "deflate")
ENDPOINT_VARIABLES = (
    *("HEADRACE_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
    "OTEL_EXPORTER_OTLP_ENDPOINT",
)
RATIO_SAMPLERS = ("traceidratio", "parentbased_traceidratio")
METRIC_INTERVALS = ("OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT")
VARIABLES_BY_SIGNAL = {
    "TRACES": (
        *("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_SCHEDULE_DELAY"),
        *("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"),
    ),
    "METRICS": METRIC_INTERVALS,
    "LOGS": (),
}
"""Variables of each signal in addition to those of its exporters."""
COMMON_VARIABLES = (
    *("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "OTEL_METRICS_EXPORTER", "OTEL_RESOURCE_ATTRIBUTES"),
    *("OTEL_SDK_DISABLED", "OTEL_SERVICE_NAME", "OTEL_TRACES_EXPORTER"),
)


@frozen
class BatchBounds:
    """Bounds of an exporter's queue. A span waits at most ``delay_ms`` for its batch."""

    max_spans: int = 2048
    max_batch: int = 512
    delay_ms: int = 1000


@frozen
class OtelSettings:
    """Settings for sampling and exporting spans and metrics.

    Exporters and ``sampler`` are entry points of the SDK. Without exporters there are no spans or
    no metrics. ``warnings`` name the variables that have an invalid value or no effect.
    """

    exporters: tuple[str, ...] = ()
    sampler: str | None = None
    sampler_arg: str | None = None
    bounds: BatchBounds = BatchBounds()  # immutable
    warnings: tuple[str, ...] = ()
    metric_exporters: tuple[str, ...] = ()
    metric_interval_ms: int = 60_000
    metric_timeout_ms: int = 30_000

    @property
    def has_any_exporter(self) -> bool:
        """True if spans or metrics are exported."""
        return bool(self.exporters or self.metric_exporters)


def read_otel_settings(environ: Mapping[str, str]) -> OtelSettings:
    """Read the variables ``OTEL_*``."""
    values = {name: value.strip() for name, value in environ.items() if value.strip()}
    warnings: list[str] = []
    has_collector = any(name in values for name in ENDPOINT_VARIABLES)
    exporters = _read_exporters(values, "TRACES", "otlp" if has_collector else "none", warnings)
    metric_exporters = _read_exporters(values, "METRICS", "none", warnings)
    by_signal = {"TRACES": exporters, "METRICS": metric_exporters}
    signals = [signal for signal, names in by_signal.items() if names]
    if not signals:
        return OtelSettings(warnings=tuple(warnings))
    sampler, sampler_arg = values.get("OTEL_TRACES_SAMPLER"), values.get("OTEL_TRACES_SAMPLER_ARG")
    if sampler is not None and sampler.lower() in RATIO_SAMPLERS and not _is_number(sampler_arg, 1):
        warnings.append(f"OTEL_TRACES_SAMPLER_ARG must be from 0 to 1 for {sampler}; 1.0 is used")
        sampler_arg = "1.0"
    bounds = _read_batch_bounds(values, warnings)
    interval_ms, timeout_ms = (
        _read_positive(values, name, default, warnings)
        for name, default in zip(METRIC_INTERVALS, (60_000, 30_000), strict=True)
    )
    for prefix in ("OTEL_EXPORTER_OTLP_", *(f"OTEL_EXPORTER_OTLP_{name}_" for name in signals)):
        if values.get(f"{prefix}COMPRESSION", "none").lower() not in COMPRESSIONS:
            warnings.append(f"{prefix}COMPRESSION must be {', '.join(COMPRESSIONS)}")
        if not _is_number(values.get(f"{prefix}TIMEOUT", "1")):
            warnings.append(f"{prefix}TIMEOUT must be a number of seconds")
    warnings += [
        f"{name} is not supported and has no effect"
        for name in sorted(values)
        if _is_ignored(name, values[name], signals)
    ]
    return OtelSettings(
        exporters=exporters,
        metric_exporters=metric_exporters,
        metric_interval_ms=interval_ms,
        metric_timeout_ms=timeout_ms,
        sampler=sampler,
        sampler_arg=sampler_arg,
        bounds=bounds,
        warnings=tuple(warnings),
    )


def _read_batch_bounds(values: Mapping[str, str], warnings: list[str]) -> BatchBounds:
    defaults = BatchBounds()
    max_spans = _read_positive(values, "OTEL_BSP_MAX_QUEUE_SIZE", defaults.max_spans, warnings)
    max_batch = _read_positive(
        values, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", defaults.max_batch, warnings
    )
    if max_batch > max_spans:
        if "OTEL_BSP_MAX_EXPORT_BATCH_SIZE" in values:
            problem = "OTEL_BSP_MAX_EXPORT_BATCH_SIZE must be at most OTEL_BSP_MAX_QUEUE_SIZE"
            warnings.append(f"{problem}; {max_spans} is used")
        max_batch = max_spans
    delay_ms = _read_positive(values, "OTEL_BSP_SCHEDULE_DELAY", defaults.delay_ms, warnings)
    return BatchBounds(max_spans, max_batch, delay_ms)


def _read_exporters(
    values: Mapping[str, str], signal: str, default: str, warnings: list[str]
) -> tuple[str, ...]:
    """Return the names of a signal's exporters as entry points, without repetitions."""
    text = values.get(f"OTEL_{signal}_EXPORTER", default)
    if values.get("OTEL_SDK_DISABLED", "").lower() == "true" or text.lower() == "none":
        return ()
    names = [name.strip() for name in text.split(",") if name.strip()]
    if "otlp" in names:
        variable = f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL"
        if variable not in values:
            variable = "OTEL_EXPORTER_OTLP_PROTOCOL"
        protocol = values.get(variable, "http/protobuf")
        if protocol not in EXPORTER_BY_PROTOCOL:
            protocols = " or ".join(EXPORTER_BY_PROTOCOL)
            warning = f"{variable} must be {protocols}, not {protocol!r}; http/protobuf is used"
            warnings += [warning] if warning not in warnings else []
        otlp = EXPORTER_BY_PROTOCOL.get(protocol, "otlp_proto_http")
        names = [otlp if name == "otlp" else name for name in names]
    return tuple(dict.fromkeys(names))


def _read_positive(values: Mapping[str, str], name: str, default: int, warnings: list[str]) -> int:
    text = values.get(name, str(default))
    if text.isdecimal() and int(text) > 0:
        return int(text)
    warnings.append(f"{name} must be a positive integer, not {text!r}; {default} is used")
    return default


def _is_number(text: str | None, high: float = inf) -> bool:
    try:
        return 0 <= float(text or "") <= high
    except ValueError:
        return False


def _is_ignored(name: str, value: str, signals: Sequence[str]) -> bool:
    """Return True for a variable of the SDK that neither Headrace nor an exporter reads."""
    if not name.startswith("OTEL_") or name in COMMON_VARIABLES:
        return False
    if name == "OTEL_LOGS_EXPORTER":
        return value.lower() != "none"
    for signal, names in VARIABLES_BY_SIGNAL.items():
        if name in names or name.startswith(f"OTEL_EXPORTER_OTLP_{signal}_"):
            return signal not in signals
    return not name.startswith(("OTEL_EXPORTER_", "OTEL_PYTHON_EXPORTER_"))
