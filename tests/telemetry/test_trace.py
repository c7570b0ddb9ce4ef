"""Spans, as a real OTLP receiver gets them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from proxy.call.record import Captured
from proxy.telemetry.attributes import Attributes, to_number
from proxy.telemetry.trace import TraceSink, drop_none_and_redact
from tests.conftest import Proxy, Reply, policies_for, running_proxy
from tests.doubles import ScriptedUpstream, respond, response
from tests.for_each import for_each
from tests.telemetry.collector import Collector, attributes_of
from tests.telemetry.test_log_page import SECRETS
from tests.test_pipeline import BEARER

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
SERVER, CLIENT = 2, 3


async def traced(
    folder: Path,
    upstream: ScriptedUpstream,
    collector: Collector,
    headers: Mapping[str, str] | None = None,
    policies: str | None = None,
    **settings: Any,
) -> tuple[Proxy, Reply]:
    """Make one call through a proxy that exports its spans, and stop it to flush them."""
    settings = {"otlp_endpoint": collector.url, **settings}
    policies = policies or policies_for(upstream.url)
    async with running_proxy(folder / "p", policies, **settings) as proxy:
        reply = await proxy.complete({**BEARER, **(headers or {})})
        await proxy.sink.wait()
    return proxy, reply


async def test_call_has_three_spans_in_the_trace_of_the_caller(
    tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    await traced(
        tmp_path, upstream, collector, headers={"traceparent": PARENT, "baggage": "user=x"}
    )

    server, model, attempt = (
        collector.named("POST /v1/completions"),
        collector.named("text_completion gpt-4o-mini"),
        next(span for span in collector.spans if span.name == "POST"),
    )
    assert {span.trace_id.hex() for span in collector.spans} == {PARENT[3:35]}
    assert server.parent_span_id.hex() == PARENT[36:52]
    assert model.parent_span_id == server.span_id
    assert attempt.parent_span_id == model.span_id
    assert [span.kind for span in (server, model, attempt)] == [SERVER, CLIENT, CLIENT]
    assert server.start_time_unix_nano <= attempt.start_time_unix_nano
    assert attempt.end_time_unix_nano <= server.end_time_unix_nano
    event = attributes_of(model)
    assert event["gen_ai.operation.name"] == "text_completion"
    assert (event["gen_ai.usage.input_tokens"], event["gen_ai.usage.output_tokens"]) == (5, 3)
    assert event["gen_ai.response.finish_reasons"] == ["stop"]
    assert event["server.address"] == "127.0.0.1"
    event = attributes_of(server)
    assert event["headrace.deployment"] == "support-chat"
    assert event["headrace.deployment.tags"] == ["env=prod", "team=support"]
    assert event["headrace.cost.usd"] == pytest.approx(0.00000255)
    assert "baggage" not in upstream.requests[0].headers
    assert "traceparent" not in upstream.requests[0].headers


@dataclass
class Spans:
    """Receiver that stores spans."""

    received: list[ReadableSpan] = field(default_factory=list)

    def enqueue(self, spans: Sequence[ReadableSpan]) -> None:
        self.received += spans


async def test_spans_are_exported_if_captured_texts_cannot_be_read(
    tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    """The error is logged like that of any sink."""

    def failing() -> Captured:
        raise IndexError

    proxy, _ = await traced(tmp_path, upstream, collector)
    [record] = proxy.sink.records
    spans = Spans()

    with pytest.raises(IndexError):
        TraceSink([spans], ALWAYS_ON, Resource({})).emit(replace(record, captured=failing))

    assert len(spans.received) == len(collector.spans) == 3


async def test_spans_have_request_method_and_client_response_id(
    tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    upstream.then(respond(response()), respond(response()), respond({"id": "x", "deleted": True}))
    settings: dict[str, Any] = {"otlp_endpoint": collector.url, "id_secrets": ("s" * 32,)}
    body = {"model": "gpt-4o-mini", "input": "Hi"}
    async with running_proxy(tmp_path / "p", policies_for(upstream.url), **settings) as proxy:
        previous = (await proxy.send("/v1/responses", body)).json["id"]
        second = await proxy.send("/v1/responses", {**body, "previous_response_id": previous})
        assert second.status == 200, second.raw
        deleted = await proxy.send(f"/v1/responses/{previous}", b"", method="DELETE")
        assert deleted.status == 200, deleted.raw
        await proxy.sink.wait(3)

    name = "gen_ai.request.previous_response.id"
    spans = [attributes_of(span) for span in collector.spans if span.name.startswith("chat ")]
    assert [attributes.get(name) for attributes in spans] == [None, previous]
    attempts = [span for span in collector.spans if span.name in ("POST", "DELETE")]
    methods = ["POST", "POST", "DELETE"]
    assert [attributes_of(span)["http.request.method"] for span in attempts] == methods
    assert [request.method for request in upstream.requests] == methods


@for_each("secret", SECRETS)
@for_each("header", ["x-headrace-properties", "x-request-id", "helicone-property-note"])
async def test_header_credentials_are_in_no_span_and_no_log_line(
    header: str, secret: str, tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    """Spans and log lines pass the same filter."""
    value = f"note={secret}" if header.endswith("properties") else secret
    log = tmp_path / "log"
    with log.open("wb") as file:
        await traced(tmp_path, upstream, collector, {header: value}, log_fd=file.fileno())
    exported = b"".join(collector.bodies) + log.read_bytes()
    collector.bodies.clear()

    assert b"headrace.request.id" in exported
    assert b'"request_id"' in exported
    assert secret.encode() not in exported


@pytest.mark.parametrize(("flag", "ratio", "spans"), [("01", 0.0, 3), ("00", 1.0, 0)])
async def test_permitted_key_decides_sampling_by_traceparent(
    flag: str,
    ratio: float,
    spans: int,
    tmp_path: Path,
    upstream: ScriptedUpstream,
    collector: Collector,
) -> None:
    policies = policies_for(upstream.url).replace("may: [refresh]", "may: [refresh, trace]")
    headers = {"traceparent": PARENT[:-2] + flag}

    await traced(tmp_path, upstream, collector, headers, policies, trace_ratio=ratio)

    assert len(collector.spans) == spans


async def test_calls_dropped_by_the_default_sampler_are_counted(
    tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    log, metrics = tmp_path / "log", ""
    with log.open("wb") as file:
        settings = {"otlp_endpoint": collector.url, "log_fd": file.fileno()}
        async with (
            running_proxy(tmp_path / "p", policies_for(upstream.url), **settings) as proxy,
            asyncio.timeout(60),
        ):
            while not re.search(r'sampled_total{decision="limited"} [1-9]', metrics):
                lists = (proxy.send("/v1/models", b"", method="GET") for _ in range(100))
                await asyncio.gather(*lists)
                metrics = await proxy.metrics()

    [line] = [
        line
        for line in map(orjson.loads, log.read_bytes().splitlines())
        if line["event"] == "traces.limited"
    ]
    assert (line["level"], line["calls_per_second"], line["share"]) == ("warning", 50, 0.01)


async def test_traceparent_is_sent_to_permitted_upstreams(
    tmp_path: Path, upstream: ScriptedUpstream, collector: Collector
) -> None:
    policies = policies_for(upstream.url).replace("timeouts:", "propagate_trace: true, timeouts:")
    _, reply = await traced(tmp_path, upstream, collector, policies=policies)

    text = upstream.requests[0].headers["traceparent"]
    assert text.split("-")[1] == reply.headers["x-trace-id"]
    attempt = next(span for span in collector.spans if span.name == "POST")
    assert text.split("-")[2] == attempt.span_id.hex()


def test_number_beyond_otlp_is_omitted() -> None:
    numbers = [2**63 - 1, 2**63, -(2**63), 0.5, True, "1", None]

    assert [to_number(value) for value in numbers] == [2**63 - 1, None, None, 0.5, None, None, None]


@for_each("secret", SECRETS)
def test_credentials_in_names_lists_and_texts_are_redacted(secret: str) -> None:
    described: Attributes = {"list": ["a", secret], "text": secret, "size": 1, "unknown": None}

    [values] = drop_none_and_redact([described])

    assert values.keys() == {"list", "text", "size"}
    assert secret not in str(values)
    assert values["size"] == 1


def test_lone_surrogate_loses_no_span() -> None:
    assert drop_none_and_redact([{"text": "a\ud800"}]) == [{"text": "a?"}]
