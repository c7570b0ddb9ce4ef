"""The variables of the OpenTelemetry SDK, in processes that export to a real collector."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.cli.test_init import ROUTE, serving
from tests.conftest import policies_for
from tests.doubles import ScriptedUpstream
from tests.telemetry.collector import Collector, attributes_of
from tests.telemetry.grpc_collector import grpc_collector
from tests.test_pipeline import BEARER

PROTOCOLS = ("http/protobuf", "grpc")
pytestmark = pytest.mark.process


@asynccontextmanager
async def collecting(protocol: str, http: Collector) -> AsyncIterator[Collector]:
    """Return the collector for a protocol."""
    async with nullcontext(http) if protocol == "http/protobuf" else grpc_collector() as collector:
        yield collector


async def printed(folder: Path, upstream: ScriptedUpstream, **environ: str) -> str:
    """Make one call through a process with these variables. Return its output."""
    async with serving(folder / "p", policies_for(upstream.url), **environ) as (served, url):
        async with (
            aiohttp.ClientSession(base_url=url, headers=BEARER) as client,
            client.post(ROUTE.path, json=ROUTE.body(streamed=False)) as response,
        ):
            assert response.status == 200
        served.process.terminate()
        remainder, _ = await served.process.communicate()
        assert served.process.returncode == 0
    return "\n".join([*map(json.dumps, served.lines), remainder.decode()])


def events(output: str, name: str) -> list[dict[str, Any]]:
    """Return the log lines of an event."""
    lines = [json.loads(line) for line in output.splitlines() if line.startswith('{"')]
    return [line for line in lines if line.get("event") == name]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("signals", [("",), ("TRACES_", "METRICS_")], ids=["both", "each"])
async def test_spans_and_metrics_are_exported_by_sdk_variables(
    signals: tuple[str, ...],
    protocol: str,
    tmp_path: Path,
    upstream: ScriptedUpstream,
    collector: Collector,
) -> None:
    variables = {
        "OTEL_METRICS_EXPORTER": "otlp",
        "OTEL_METRIC_EXPORT_INTERVAL": "60000",
        "OTEL_METRIC_EXPORT_TIMEOUT": "5000",
        "OTEL_SERVICE_NAME": "gateway",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=other,deployment.environment.name=prod",
    }
    async with collecting(protocol, collector) as to:
        for signal in signals:
            path = f"/own/{signal[:-1].lower()}" if signal and protocol != "grpc" else ""
            prefix = f"OTEL_EXPORTER_OTLP_{signal}"
            variables |= {
                f"{prefix}ENDPOINT": to.url + path,
                f"{prefix}PROTOCOL": protocol,
                f"{prefix}HEADERS": "authorization=Bearer%20collector",
                f"{prefix}COMPRESSION": "gzip",
                f"{prefix}TIMEOUT": "5",
            }

        output = await printed(tmp_path, upstream, **variables)

        assert [span.name.split()[0] for span in to.spans] == ["POST", "text_completion", "POST"]
        [duration] = to.metrics["gen_ai.client.inference.duration"].histogram.data_points
    assert (duration.count, duration.explicit_bounds[:3]) == (1, [0.01, 0.02, 0.04])
    assert attributes_of(duration)["gen_ai.request.model"] == "gpt-4o-mini"
    assert {headers["authorization"] for headers in to.headers} == {"Bearer collector"}
    assert len(to.resources) == 2
    for resource in to.resources:
        assert resource["service.name"] == "gateway"
        assert resource["deployment.environment.name"] == "prod"
        assert resource["service.version"]
        assert resource["service.instance.id"]
    assert events(output, "otel.variable") == []
    if protocol != "grpc":  # the gRPC library hides the encoding
        assert {headers["content-encoding"] for headers in to.headers} == {"gzip"}
        folder = "/v1" if signals == ("",) else "/own"
        assert sorted(to.paths) == [f"{folder}/metrics", f"{folder}/traces"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_headrace_endpoint_variable_takes_precedence(
    protocol: str, tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    async with collecting(protocol, collector) as to:
        variables = {
            "HEADRACE_OTLP_ENDPOINT": to.url,
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        }

        await printed(tmp_path, upstream, **variables)

        assert len(to.spans) == 3
        assert to.resources[0]["service.name"] == "headrace"


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_SAMPLER": "always_off"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"},
        {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.0"},
    ],
    ids=str,
)
async def test_traces_can_be_turned_off(
    variables: dict[str, str], tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    output = await printed(
        tmp_path, upstream, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **variables
    )

    assert collector.bodies == []
    assert events(output, "otel.variable") == []


async def test_batch_processor_variables_apply(
    tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    variables = {
        "HEADRACE_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "2",
        "OTEL_BSP_MAX_QUEUE_SIZE": "3",
        "OTEL_BSP_SCHEDULE_DELAY": "60000",
    }

    await printed(tmp_path, upstream, **variables)

    assert collector.batches == [2, 1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_hanging_collector_delays_no_exit(
    protocol: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """The server accepts connections and never responds."""
    connections: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(
        lambda reader, writer: connections.append(writer), "127.0.0.1", 0
    )
    async with silent:
        variables = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_TIMEOUT": "0.2",
            "OTEL_BSP_SCHEDULE_DELAY": "10",
        }

        dropped = 'headrace_telemetry_dropped_total{reason="export_failed",signal="traces"} 3.0'
        counts = await counted(tmp_path, upstream, dropped, **variables)
        assert dropped in counts
        assert 'headrace_traces_sampled_total{decision="sampled"} 1.0' in counts
    for connection in connections:
        connection.close()
        await connection.wait_closed()


async def counted(folder: Path, upstream: ScriptedUpstream, line: str, **environ: str) -> list[str]:
    """Make one call through a process, and return its metrics once they have a line."""
    async with (
        serving(folder / "p", policies_for(upstream.url), **environ) as (served, url),
        aiohttp.ClientSession(headers=BEARER) as client,
        asyncio.timeout(20),
    ):
        async with client.post(url + ROUTE.path, json=ROUTE.body(streamed=False)) as response:
            assert response.status == 200
        metrics: list[str] = []
        while line not in metrics:
            async with client.get(f"http://{served.lines[-1]['admin']}/metrics") as response:
                metrics = (await response.text()).splitlines()
    return metrics


async def test_metrics_are_exported_at_their_interval(
    tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    variables = {
        "HEADRACE_OTLP_ENDPOINT": collector.url,
        "OTEL_METRICS_EXPORTER": "otlp",
        "OTEL_METRIC_EXPORT_INTERVAL": "10",
    }
    async with (
        serving(tmp_path / "p", policies_for(upstream.url), **variables) as (_, url),
        aiohttp.ClientSession(headers=BEARER) as client,
        client.post(url + ROUTE.path, json=ROUTE.body(streamed=False)),
        asyncio.timeout(20),
    ):
        await collector.has_metrics.wait()
    assert "/v1/metrics" in collector.paths


async def test_spans_can_be_printed_and_sent(
    tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    variables = {
        "OTEL_TRACES_EXPORTER": "console, otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
    }

    output = await printed(tmp_path, upstream, **variables)

    assert len(collector.spans) == 3
    assert '"name": "text_completion gpt-4o-mini"' in output


async def test_variables_without_effect_are_warned_of(
    tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    """``tests/runtime/test_otel_settings.py`` checks the warning of each variable."""
    variables = {"OTEL_TRACES_SAMPLER": "always_of", "OTEL_LOGS_EXPORTER": "otlp"}

    output = await printed(tmp_path, upstream, HEADRACE_OTLP_ENDPOINT=collector.url, **variables)

    lines = [json.loads(line) for line in output.splitlines() if line.startswith('{"')]
    warnings = str([line for line in lines if line.get("level") == "warning"])
    assert "always_of" in warnings
    assert "OTEL_LOGS_EXPORTER is not supported and has no effect" in warnings
    assert len(collector.spans) == 3


async def test_missing_grpc_extra_is_logged_with_its_command(
    tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    """Python imports the module ``sitecustomize`` at start. Here it forbids the exporter."""
    module = "opentelemetry.exporter.otlp.proto.grpc"
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{module!r}] = None\n")
    variables = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "PYTHONPATH": str(tmp_path)}

    output = await printed(tmp_path, upstream, HEADRACE_OTLP_ENDPOINT=collector.url, **variables)

    [line] = events(output, "otel.exporter_missing")
    assert line["reason"] == "pip install 'headrace[grpc]'"


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_EXPORTER_OTLP_COMPRESSION": "zstd", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    ],
    ids=str,
)
async def test_failed_exporter_is_logged(
    variables: dict[str, str], tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    output = await printed(
        tmp_path, upstream, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **variables
    )

    [line] = events(output, "otel.exporter_missing")
    assert line["level"] == "error"
    assert collector.bodies == []
