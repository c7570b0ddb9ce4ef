"""Spans as bytes: read back, they are what the official encoder writes of the same spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from proxy.emit import semconv
from proxy.emit.collector import RequestEncoder
from proxy.emit.otlp import (
    EVENT,
    SPAN,
    Attributes,
    Value,
    before_float,
    encode_attributes,
    encode_events,
    encode_float,
    encode_named,
    encode_span,
    encode_time,
    varint,
)

RESOURCE = Resource(
    {"service.name": "headrace", "process.pid": 7, "process.command_args": ["serve", "é"]},
    schema_url="https://opentelemetry.io/schemas/1.25.0",
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
LONG = TEXTS | st.integers(120, 20_000).map(lambda size: "é" * size)
INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 127, 128, 16_383, 16_384, -1])
NAMES = st.sampled_from([semconv.KEY, semconv.GUARD_BYTES]) | TEXTS.filter(bool)
VALUES: st.SearchStrategy[Value] = (
    LONG | st.booleans() | INT64 | st.floats(allow_nan=False) | st.lists(LONG) | st.tuples(TEXTS)
)
ATTRIBUTES = st.dictionaries(NAMES, VALUES, max_size=5)
NANOSECONDS = st.integers(0, 2**64 - 1)


@dataclass(frozen=True)
class Spoken:
    """A span, before either encoder has seen it."""

    trace: int
    own: int
    parent: int | None
    name: str
    start: int
    end: int
    attributes: Attributes
    events: Sequence[tuple[str, Attributes]]
    serves: bool
    failed: bool


SPANS = st.builds(
    Spoken,
    trace=st.integers(1, 2**128 - 1),
    own=st.integers(1, 2**64 - 1),
    parent=st.none() | st.integers(1, 2**64 - 1),
    name=LONG,
    start=NANOSECONDS,
    end=NANOSECONDS,
    attributes=ATTRIBUTES,
    events=st.lists(st.tuples(TEXTS, ATTRIBUTES), max_size=3),
    serves=st.booleans(),
    failed=st.booleans(),
)


def ours(span: Spoken) -> bytes:
    contents = [encode_named(EVENT, name, attributes) for name, attributes in span.events]
    parent = span.parent.to_bytes(8) if span.parent is not None else b""
    return encode_span(
        (span.trace.to_bytes(16), span.own.to_bytes(8), parent),
        (span.start, span.end),
        encode_named(SPAN, span.name, span.attributes)
        + encode_events(encode_time(span.end), contents),
        serves=span.serves,
        failed=span.failed,
    )


def of_the_sdk(span: Spoken) -> ReadableSpan:
    def context(span_id: int, *, remote: bool = False) -> SpanContext:
        return SpanContext(span.trace, span_id, remote, TraceFlags(TraceFlags.SAMPLED))

    def known(attributes: Attributes) -> Any:
        return {name: value for name, value in attributes.items() if value is not None}

    return ReadableSpan(
        name=span.name,
        context=context(span.own),
        parent=context(span.parent, remote=span.serves) if span.parent is not None else None,
        resource=RESOURCE,
        attributes=known(span.attributes),
        events=[Event(name, known(attributes), span.end) for name, attributes in span.events],
        kind=SpanKind.SERVER if span.serves else SpanKind.CLIENT,
        status=Status(StatusCode.ERROR) if span.failed else Status(),
        start_time=span.start,
        end_time=span.end,
        instrumentation_scope=InstrumentationScope("headrace"),
    )


def read(request: bytes) -> ExportTraceServiceRequest:
    message: ExportTraceServiceRequest = ExportTraceServiceRequest.FromString(request)
    return message


@given(st.lists(SPANS, min_size=1, max_size=3))
def test_a_request_is_read_as_that_of_the_official_encoder(spans: list[Spoken]) -> None:
    request = RequestEncoder(RESOURCE, "headrace").encode(map(ours, spans))

    official = encode_spans([of_the_sdk(span) for span in spans])
    assert read(request) == read(official.SerializeToString())


@given(NANOSECONDS)
@example(127)
@example(128)
@example(2**64 - 1)
def test_a_number_takes_as_few_bytes_as_it_needs(number: int) -> None:
    written = varint(number)

    assert len(written) == max(1, -(-number.bit_length() // 7))
    assert sum((byte & 127) << 7 * place for place, byte in enumerate(written)) == number


def attributes_read(attributes: Attributes) -> list[tuple[str, str]]:
    """Return the names and texts of a span's attributes, as a collector reads them."""
    ids = (1).to_bytes(16), (1).to_bytes(8), b""
    span = encode_span(
        ids, (0, 0), encode_named(SPAN, "POST", attributes), serves=False, failed=False
    )
    [there] = read(RequestEncoder(RESOURCE, "headrace").encode([span])).resource_spans
    return [
        (pair.key, pair.value.string_value) for pair in there.scope_spans[0].spans[0].attributes
    ]


@given(NAMES, st.floats())
def test_a_float_that_is_prepared_is_written_as_any_other(name: str, value: float) -> None:
    whole = encode_attributes(EVENT, {name: value})

    assert before_float(EVENT, name) + encode_float(value) == whole


@pytest.mark.parametrize("unsayable", [None, 2**63, -(2**63) - 1])
def test_what_is_unknown_or_larger_than_the_protocol_knows_is_left_out(
    unsayable: int | None,
) -> None:
    assert attributes_read({"seed": unsayable, "key": "widget"}) == [("key", "widget")]


def test_half_a_character_costs_no_span() -> None:
    assert attributes_read({"\ud800": "a\udfffb"}) == [("?", "a?b")]
