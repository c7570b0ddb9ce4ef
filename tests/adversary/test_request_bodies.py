"""Searches for request bodies that are too deep, ambiguous or split into tiny chunks."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from proxy.dialects.vendors.portkey import CONFIG_HEADER, _parse_object_header
from proxy.dialects.wire.strict_json import DocumentParser, parse_rejecting_duplicates, read_json
from proxy.errors import BadRequest, UpstreamInvalid
from proxy.guards.kinds.json_schema import JsonSchema
from proxy.guards.services import wire
from proxy.policy.review.diff import parse_recorded_call
from proxy.runtime.fair_queue import LARGE_BYTES
from tests.adversary.event_loops import LoopLag
from tests.conftest import KEY, Proxy
from tests.dialects.wire.test_large_json import JSON
from tests.doubles import (
    Json,
    ReceivedRequest,
    ScriptedUpstream,
    Wire,
    chat,
    legacy_completion,
    respond,
)
from tests.for_each import for_each
from tests.guards.calls import guarded
from tests.test_pipeline import BEARER, ROUTES

MAX_LEVELS = 254
RULES = """
  cache: {ttl: 1h, semantic: {embeddings: support-chat}},
  capture: {share: 100%, fields: [input, output]},
  limits: [{name: month, usd: 100000 per month, unpriced: allow}],
  opaque: allow,
  input: [{guard: pii, entities: [email], action: mask, restore: true}],
  rules: [{name: steady, set: {temperature: 0.5}}]
"""
TEXT = "Write to ann@example.com"
HELLO: Json = {"messages": [{"role": "user", "content": TEXT}]}
BODIES: dict[str, Json] = {
    "/v1/chat/completions": HELLO,
    "/v1/messages": {**HELLO, "max_tokens": 5},
    "/v1/messages/count_tokens": HELLO,
    "/v1/completions": {"prompt": TEXT},
    "/v1/embeddings": {"input": TEXT},
}
VECTOR = {"object": "embedding", "index": 0, "embedding": [0.5]}
VECTORS = {"object": "list", "model": "m", "data": [VECTOR]}
SIZES = pytest.mark.parametrize("extra", ["", "x" * 70_000], ids=["small", "large"])


async def respond_by_path(request: ReceivedRequest, wire: Wire) -> None:
    document = chat() if "chat" in request.path else legacy_completion()
    await respond(VECTORS if "embeddings" in request.path else document)(request, wire)


def with_depth(body: Json, levels: int, extra: str) -> bytes:
    """Return a body with an unknown field of ``levels`` levels."""
    raw = orjson.dumps({**body, "model": "support-chat", "more": extra, "unknown": 0})
    nested = b"[" * (levels - 1) + b"1" + b"]" * (levels - 1)
    return raw.removesuffix(b"0}") + nested + b"}"


def nested_json(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def with_arguments(arguments: str) -> Json:
    function = {"name": "find", "arguments": arguments}
    calls = [{"id": "call_1", "type": "function", "function": function}]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "Paris"}
    return {"messages": [{"role": "user", "content": "Hi"}, message, result]}


@SIZES
async def test_depth_of_a_body_is_bounded(
    extra: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond_by_path)
    async with guarded(tmp_path, upstream, RULES) as proxy:
        for path, body in BODIES.items():
            for levels, status in ((MAX_LEVELS, 200), (MAX_LEVELS + 1, 400)):
                headers = BEARER | {"content-type": "application/json"}
                reply = await proxy.send(path, with_depth(body, levels, extra), headers)
                assert reply.status == status, path


@SIZES
async def test_body_that_is_too_deep_when_translated_is_refused(extra: str, proxy: Proxy) -> None:
    schema = json.loads(nested_json(MAX_LEVELS - 3))
    tool = {"name": "find", "input_schema": schema, "description": extra}
    body = {"model": "support-chat", **HELLO, "max_tokens": 5, "tools": [tool]}
    reply = await proxy.send("/v1/messages", body)
    assert (reply.status, b"tools: is nested more than 254" in reply.raw) == (400, True)
    for levels in (247, 300, 1000, 1024, 5000):
        body = {**with_arguments(nested_json(levels)), "user": extra[:64]}
        reply = await proxy.chat(**{**body, "model": "via-anthropic"})

        message = b"must be a JSON object nested at most 246"
        assert (reply.status, message in reply.raw) == (400, True), levels


@for_each("levels", [246, 247, 255, 1000, 1024, 5000])
async def test_deep_arguments_are_returned(
    levels: int, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    arguments = nested_json(levels)
    message = with_arguments(arguments)["messages"][1]
    choices = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    upstream.answer_with(respond(chat(choices=choices)))
    reply = await proxy.send("/v1/messages", {"model": "support-chat", "max_tokens": 5, **HELLO})

    assert reply.status == 200
    [block] = orjson.loads(reply.raw)["content"]
    is_parsed = levels <= 246
    assert block["input"] == (json.loads(arguments) if is_parsed else {"arguments": arguments})


REPEATED_NAMES = {
    "compact": b'{"findings":["x"],"findings":[]}',
    "spaced": b'{"findings": ["x"], "findings": []}',
    "equal values": b'{"findings":[],"findings":[]}',
    "escaped name": b'{"findings": ["x"], "f\\u0069ndings": []}',
    "in an object": b'{"answer": {"findings": ["x"], "findings": []}}',
    "in a list": b'{"answers": [{}, {"findings": ["x"], "findings": []}]}',
    "beside other spellings": b'{"n": 1e2, "t": "\\u00e9\\/", "findings": 1.0, "findings": 1}',
    "within the dropped value": b'{"a": {"b": 1, "b": 2}, "a": 1}',
}


def read_schema(raw: bytes) -> None:
    kind, _ = JsonSchema().find_problem_and_schema_path(raw.decode())
    if kind is not None:
        raise ValueError(kind)


def read_recorded_call(raw: bytes) -> None:
    call = b'{"event": "call", "models": ["m"], "time": "2026-06-01T00:00:00Z", '
    if parse_recorded_call(call + b'"request_id": "r", "key": "k", ' + raw[1:]) is None:
        raise ValueError("unknown")


READERS: dict[str, Callable[[bytes], Any]] = {
    "request": read_json,
    "response": DocumentParser().read,
    "large response": lambda raw: DocumentParser().read(
        b'{"pad":"' + b"x" * LARGE_BYTES + b'",' + raw[1:]
    ),
    "guard service": partial(wire.parse_answer, TypeAdapter(dict[str, Any])),
    "judged text": read_schema,
    "header": lambda raw: _parse_object_header(CONFIG_HEADER, {CONFIG_HEADER: raw.decode()}),
    "recorded call": read_recorded_call,
}
ERRORS = (BadRequest, UpstreamInvalid, wire.BadAnswer, ValueError)


@for_each("document", REPEATED_NAMES)
@for_each("reader", READERS)
def test_repeated_name_is_refused(document: str, reader: str) -> None:
    with pytest.raises(ERRORS):
        READERS[reader](REPEATED_NAMES[document])


@for_each("document", REPEATED_NAMES)
@for_each("reader", READERS)
def test_equal_names_in_different_objects_are_accepted(document: str, reader: str) -> None:
    """The same documents are accepted if their second name differs."""
    raw = REPEATED_NAMES[document].replace(b"f\\u0069ndings", b"findings")
    head, _, tail = raw.rpartition(b'"findings"')
    distinct = head + b'"others"' + tail if head else b'{"a": {"b": 1}, "b": {"a": 1}}'

    READERS[reader](distinct)


@given(
    whole=st.dictionaries(st.text(max_size=3), JSON, min_size=1),
    dropped=JSON,
    separators=st.sampled_from([(",", ":"), (", ", ": ")]),
    is_ascii=st.booleans(),
)
def test_any_repeated_name_is_found(
    whole: dict[str, Any], dropped: Any, separators: tuple[str, str], is_ascii: bool
) -> None:
    raw = json.dumps(whole, separators=separators, ensure_ascii=is_ascii).encode()
    first_data = json.dumps({next(iter(whole)): dropped}).encode()

    assert parse_rejecting_duplicates(raw) == whole
    with pytest.raises(ValueError, match="an object has the same name twice"):
        parse_rejecting_duplicates(first_data[:-1] + b"," + raw[1:])


ROUTE = ROUTES["openai"]
HEAD = f"POST {ROUTE.path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
WITH_KEY = f"{HEAD}Authorization: Bearer {KEY}\r\n\r\n".encode()
WITHOUT_KEY = f"{HEAD}\r\n".encode()
SENT_BYTES = 2 * 1024 * 1024
CALLERS = 6
MAX_LAG_S = 0.05
MAX_CPU_S = 0.2  # of the loop for all bytes of one caller


def send_chunks(address: tuple[str, int], head: bytes, chunk: bytes) -> bytes:
    with socket.create_connection(address, timeout=20) as connection:
        try:
            connection.sendall(head + chunk * (SENT_BYTES // len(chunk)))
            return connection.recv(65536)
        except ConnectionError:
            return b""


@for_each(("head", "status"), [(WITH_KEY, b"400"), (WITHOUT_KEY, b"401")], ids=["key", "no key"])
@for_each("size", [1, 2, 9, 17])
async def test_tiny_chunks_do_not_block_the_loop(
    size: int, head: bytes, status: bytes, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    host, port = proxy.url.removeprefix("http://").split(":")
    chunk = b"%x\r\n%b\r\n" % (size, b"x" * size)
    started_at = time.thread_time()
    with LoopLag() as lag:
        sent = (host, int(port)), head, chunk
        calls = [asyncio.to_thread(send_chunks, *sent) for _ in range(CALLERS)]
        replies = await asyncio.gather(*calls)

    assert {reply[9:12] for reply in replies} <= {status, b""}
    assert lag.worst_s < MAX_LAG_S
    assert time.thread_time() - started_at < CALLERS * MAX_CPU_S
    assert upstream.requests == []


@for_each(("size", "total"), [(1, 5_000), (64, 320_000), (20_000, 1_000_000)])
async def test_chunks_of_any_size_are_read(
    size: int, total: int, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    text = "".join(f"{number} " for number in range(total))[:total]
    body = json.dumps({**ROUTE.body(streamed=False), "prompt": text}).encode()
    parts = (body[index : index + size] for index in range(0, len(body), size))
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    reader, writer = await proxy.connect()
    writer.write(WITH_KEY + chunks)
    async with asyncio.timeout(20):
        response = await reader.read()
    writer.close()

    assert response.startswith(b"HTTP/1.1 200")
    assert response.count(b"HTTP/1.1") == 1
    assert upstream.requests[0].json["prompt"] == text
