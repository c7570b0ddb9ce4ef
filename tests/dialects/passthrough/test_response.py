"""Passthrough requests and responses: headers, bodies that are read, and usage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from proxy.dialects.document import PassthroughWriter
from proxy.dialects.passthrough.request import (
    build_passthrough_request,
    check_media_type_syntax,
    read_passthrough_call,
)
from proxy.dialects.passthrough.response import (
    PassthroughByteReader,
    PassthroughDocumentReader,
    make_nosniff_and_disposition_headers,
    parse_passthrough_head,
)
from proxy.dialects.wire.strict_json import DocumentParser
from proxy.errors import BadRequest, InvalidField, ResponseTooLarge, UpstreamInvalid
from proxy.money.usage import Tokens
from proxy.types import Call, RequestHead, Target, Upstream
from proxy.types.events import UsageReport
from proxy.types.passthrough import PassthroughPath, PassthroughRequest
from proxy.upstream.passthrough import find_tokens
from tests.for_each import for_each

LIMIT = 1000


@for_each(
    ("headers", "status", "media_type", "read"),
    [
        ({"content-type": "application/json"}, 200, "application/json", True),
        ({"content-type": "application/problem+json; a=b"}, 201, None, True),
        ({"content-type": "application/json", "content-length": "1001"}, 200, None, False),
        ({"content-type": "application/json"}, 204, "application/json", True),
        ({"content-type": "audio/mpeg", "content-length": "0"}, 200, "audio/mpeg", True),
        ({"content-type": "application/jsonl"}, 200, "application/jsonl", False),
        ({"content-type": "text/event-stream"}, 200, "text/event-stream", False),
        ({"content-type": "text/\xff"}, 200, "application/octet-stream", False),
        ({"content-type": "a" * 300}, 200, "application/octet-stream", False),
        ({}, 200, "application/octet-stream", False),
    ],
)
def test_only_json_and_empty_bodies_are_read(
    headers: Mapping[str, str], status: int, media_type: str | None, read: bool
) -> None:
    head = parse_passthrough_head(status, headers, LIMIT)

    assert (head.status, head.parses_json) == (status, read)
    assert head.media_type == (media_type or headers["content-type"])


def test_only_content_disposition_is_forwarded() -> None:
    nosniff = ("x-content-type-options", "nosniff")

    shown_headers = {"content-disposition": "attachment"}
    assert make_nosniff_and_disposition_headers(shown_headers) == (nosniff, *shown_headers.items())
    for odd in ({"set-cookie": "a"}, *({"content-disposition": x} for x in ("a" * 257, "\xff"))):
        assert make_nosniff_and_disposition_headers(odd) == (nosniff,)


def document(raw: bytes) -> PassthroughDocumentReader:
    reader = PassthroughDocumentReader(0, DocumentParser(), LIMIT, find_tokens)
    reader.feed(raw)
    return reader


@for_each("raw", [b"", b'{"a": [1]}', b' [1, "b"]', b'"text"', b"true"])
def test_document_keeps_its_bytes_unless_changed(raw: bytes) -> None:
    reader = document(raw)
    [frame] = reader.read(reader.close()[0])
    writer = PassthroughWriter()

    assert writer.feed(frame) == raw
    if raw:
        assert json.loads(writer.feed(frame._replace(raw=None))) == json.loads(raw)


def tokens_in(reader: PassthroughByteReader, piece: bytes) -> Tokens | None:
    [frame] = reader.read(piece)
    reports = [event for event in frame.events if isinstance(event, UsageReport)]
    return reports[0].tokens if reports else None


def test_broken_or_too_large_document_is_refused() -> None:
    broken = document(b'{"a"')
    with pytest.raises(UpstreamInvalid):
        broken.read(broken.close()[0])
    with pytest.raises(ResponseTooLarge):
        document(b"a" * 1001)


def test_bytes_pass_in_bounded_pieces() -> None:
    reader = PassthroughByteReader(0, "audio/mpeg", find_tokens)

    pieces = reader.feed(b"a" * 200_000)

    assert [len(piece) for piece in pieces] == [65536, 65536, 65536, 3392]
    assert reader.read(b"\x00")[0].raw == b"\x00"
    assert reader.end()[0].last


def test_events_pass_unchanged_and_usage_is_read() -> None:
    reader = PassthroughByteReader(0, "text/event-stream; charset=utf-8", find_tokens)
    result = b'event: done\ndata: {"type":"done","usage":{"total_tokens":7}}\n\n'

    frames = [reader.read(result[index : index + 10])[0] for index in range(0, len(result), 10)]

    assert b"".join(frame.raw or b"" for frame in frames) == result
    usage = [event for frame in frames for event in frame.events[1:]]
    assert usage == [UsageReport(Tokens(input=7), {"usage": {"total_tokens": 7}})]
    for usage_of in (
        b'{"response":{"usage":{"input_tokens":1}}}', b'{"usageMetadata":{"promptTokenCount":1}}',
        b'{"delta":{"usage":{"billed_units":{"input_tokens":1}}}}',
    ):  # fmt: skip
        assert tokens_in(reader, b"data: %b\n\n" % usage_of) == Tokens(input=1)
    for odd in (b'"usage"', b'{"usage"', b'{"usage":[1]}'):
        assert tokens_in(reader, b"data: %b\n\n" % odd) is None


def test_too_large_event_passes_unread() -> None:
    reader = PassthroughByteReader(0, "text/event-stream", find_tokens)
    for _ in range(200):
        assert tokens_in(reader, b"data: " + b"a" * 65530) is None


HEAD = RequestHead(dialect="openai", endpoint="passthrough", route="/v1/files/{id}", request_id="r")
FILE = PassthroughPath("/v1/files/{id}", queries=frozenset({"limit"}))
OPENAI = Upstream(name="openai", dialect="openai", base_url="https://api.openai.com/v1")


def built(
    path: PassthroughPath, prompt: str, query: str = "", *, upstream: Upstream = OPENAI, **body: Any
) -> Any:
    request = PassthroughRequest(prompt, query)
    headers = {"openai-beta": "assistants=v2", "cookie": "a"}
    head = replace(HEAD, passthrough=request, headers=headers)
    call = Call(head=head, body=body, size=len(body) and 10)
    return build_passthrough_request(call, request, path, Target(upstream, "rerank-1"))


@for_each(
    ("base_url", "prompt", "url"),
    [
        ("https://h/v1", "/v1/rerank", "https://h/v1/rerank"),
        ("https://h", "/v1/rerank", "https://h/v1/rerank"),
        ("https://h/api/v3/", "/v1/rerank", "https://h/api/v3/rerank"),
        ("https://h/api", "/rerank", "https://h/api/rerank"),
        ("https://h", "/rerank", "https://h/rerank"),
        ("https://h/at/{model}", "/v1/rerank", "https://h/at/rerank-1/rerank"),
    ],
)
def test_path_is_appended_to_the_upstream_path(base_url: str, prompt: str, url: str) -> None:
    upstream = replace(OPENAI, base_url=base_url)

    assert built(PassthroughPath(prompt), prompt, upstream=upstream).url == url


def test_query_merges_policy_and_listed_client_parameters() -> None:
    upstream = replace(OPENAI, query="api-version=1")

    result = built(FILE, "/v1/files/a", "limit=2&x=3&limit=%C3%A9", upstream=upstream)

    assert result.url == "https://api.openai.com/v1/files/a?api-version=1&limit=2&limit=%C3%A9"
    assert result.dropped_fields == ("query parameters",)
    for odd in ("limit=%ff", "&".join(["limit=1"] * 65), "limit=" + "a" * 257):
        with pytest.raises(BadRequest):
            built(FILE, "/v1/files/a", odd)


def test_names_are_bounded() -> None:
    assert read_passthrough_call(HEAD, {"model": "m"}).requested_models == ("m",)
    assert read_passthrough_call(HEAD, {}).requested_models == ()
    for name in ("model", "user"):
        for odd in ("a" * 257, ["a"], 1):
            with pytest.raises(InvalidField):
                read_passthrough_call(HEAD, {name: odd})


def test_media_type_is_a_short_line() -> None:
    valid = "multipart/form-data; boundary=x"

    assert check_media_type_syntax(valid) == valid
    for odd in ("", "a" * 300, "a\tb", "\xff", " a"):
        with pytest.raises(InvalidField):
            check_media_type_syntax(odd)
