"""Settings of traces from the variables of the OpenTelemetry SDK."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

from opentelemetry import environment_variables as api_variables
from opentelemetry.sdk import environment_variables as sdk_variables

from proxy.runtime.otel_settings import BatchBounds, OtelSettings, read_otel_settings
from tests.for_each import for_each

TOP = Path(__file__).parents[2]
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}
HTTP, GRPC = "otlp_proto_http", "otlp_proto_grpc"


def test_without_a_collector_there_are_no_exporters() -> None:
    assert read_otel_settings({}) == OtelSettings()
    assert read_otel_settings({"OTEL_SERVICE_NAME": "gateway"}) == OtelSettings()


@for_each(
    "name",
    ["HEADRACE_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"],
)
def test_endpoint_selects_otlp_over_http(name: str) -> None:
    assert read_otel_settings({name: "http://c"}) == OtelSettings((HTTP,))
    assert read_otel_settings({name: ""}) == OtelSettings()


@for_each(
    ("environ", "exporters"),
    [
        ({"OTEL_TRACES_EXPORTER": "otlp"}, (HTTP,)),
        ({"OTEL_TRACES_EXPORTER": "console,otlp, otlp"}, ("console", HTTP)),
        ({"OTEL_TRACES_EXPORTER": "otlp_proto_grpc"}, (GRPC,)),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "console"}, ("console",)),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "None"}, ()),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "True"}, ()),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "false"}, (HTTP,)),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, (GRPC,)),
        ({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, (HTTP,)),
    ],
)  # fmt: skip
def test_exporters_are_selected(environ: dict[str, str], exporters: tuple[str, ...]) -> None:
    settings = read_otel_settings(environ)

    assert settings.exporters == exporters
    assert settings.warnings == ()


def test_small_queue_limits_batches() -> None:
    settings = read_otel_settings({**ENDPOINT, "OTEL_BSP_MAX_QUEUE_SIZE": "10"})

    assert (settings.bounds.max_batch, settings.warnings) == (10, ())


def test_batch_is_no_larger_than_the_queue() -> None:
    settings = read_otel_settings({**ENDPOINT, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "4096"})

    assert settings.bounds.max_batch == settings.bounds.max_spans == 2048
    assert settings.warnings == (
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE must be at most OTEL_BSP_MAX_QUEUE_SIZE; 2048 is used",
    )


@for_each(
    ("name", "value"),
    [
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "many"),
        ("OTEL_BSP_SCHEDULE_DELAY", "-1"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "1000"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "soon"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
        ("OTEL_LOGS_EXPORTER", "console"),
    ],
)
def test_invalid_or_unused_variable_is_warned_of(name: str, value: str) -> None:
    settings = read_otel_settings({**ENDPOINT, name: value})

    [warning] = settings.warnings
    assert name in warning
    assert settings.exporters == (HTTP,)
    assert settings.bounds == BatchBounds()


@for_each(
    ("argument", "used"),
    [("0.5", "0.5"), ("", "1.0"), ("half", "1.0"), ("2", "1.0"), ("nan", "1.0")],
)
def test_invalid_ratio_is_replaced(argument: str, used: str) -> None:
    environ = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": argument}

    settings = read_otel_settings(ENDPOINT | environ)

    assert (settings.sampler, settings.sampler_arg) == ("traceidratio", used)
    assert bool(settings.warnings) == (argument != used)


@for_each(
    ("name", "value"),
    [
        ("OTEL_METRICS_EXPORTER", "none"),
        ("OTEL_LOGS_EXPORTER", "None"),
        ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "/ca.pem"),
        ("OTEL_EXPORTER_ZIPKIN_ENDPOINT", "http://z"),
        ("OTEL_RESOURCE_ATTRIBUTES", "a=b"),
        ("HEADRACE_LOG_LEVEL", "debug"),
    ],
)
def test_used_or_disabled_variables_have_no_warning(name: str, value: str) -> None:
    assert read_otel_settings({**ENDPOINT, name: value}).warnings == ()


METRICS = {"OTEL_METRICS_EXPORTER": "otlp"}
VALID = {
    "OTEL_SDK_DISABLED": "false",
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_METRICS_EXPORTER": "otlp",
    **{
        f"OTEL_EXPORTER_OTLP_{signal}{name}": value
        for signal in ("", "TRACES_", "METRICS_")
        for name, value in (("PROTOCOL", "grpc"), ("COMPRESSION", "gzip"))
    },
}


def test_metrics_are_off_unless_an_exporter_is_named() -> None:
    assert read_otel_settings(ENDPOINT).metric_exporters == ()
    assert read_otel_settings(ENDPOINT | METRICS).metric_exporters == (HTTP,)
    assert read_otel_settings(METRICS) == OtelSettings(metric_exporters=(HTTP,))
    assert read_otel_settings({**METRICS, "OTEL_SDK_DISABLED": "true"}) == OtelSettings()


def test_intervals_of_metrics_are_read() -> None:
    environ = {"OTEL_METRIC_EXPORT_INTERVAL": "500", "OTEL_METRIC_EXPORT_TIMEOUT": "0"}

    settings = read_otel_settings(METRICS | environ)

    assert (settings.metric_interval_ms, settings.metric_timeout_ms) == (500, 30_000)
    [warning] = settings.warnings
    assert "OTEL_METRIC_EXPORT_TIMEOUT" in warning


def test_page_lists_each_variable_as_used() -> None:
    """Prefixes on the page end with ``*``. The last row has the variables without effect."""
    rows = [
        re.findall(r"`(OTEL_[A-Z_]+\*?)`", line.split("|")[1])
        for line in (TOP / "docs" / "traces.md").read_text().splitlines()
        if line.startswith("| `OTEL_")
    ]
    names = {
        name
        for module in (api_variables, sdk_variables)
        for name in vars(module)
        if name.startswith("OTEL_")
    }
    assert len(names) > 60
    for name in sorted(names):
        value = VALID.get(name, "1")
        warnings = read_otel_settings(ENDPOINT | METRICS | {name: value}).warnings
        patterns = [(len(item), row) for row in rows for item in row if fnmatch(name, item)]
        assert patterns, name
        is_unused = max(patterns, key=lambda item: item[0])[1] is rows[-1]
        assert warnings == ((f"{name} is not supported and has no effect",) if is_unused else ()), (
            name
        )
