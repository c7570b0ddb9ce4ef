"""Request bodies that are deep, ambiguous or in tiny chunks are bounded and read once."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from proxy.dialects.vendors.portkey import CONFIG, _parse_object_header
from proxy.dialects.wire.strict_json import DocumentParser, read_json, read_without_duplicates
from proxy.errors import BadRequest, UpstreamInvalid
from proxy.guards.kinds.json_schema import JsonSchema
from proxy.guards.services import wire
from proxy.policy.review.diff import read_call
from proxy.runtime.fair_queue import LARGE_BYTES
from tests.adversary.loops import Lag
from tests.conftest import KEY, Proxy, policies_for, running_proxy
from tests.dialects.wire.test_large_json import JSON
from tests.doubles import ReceivedRequest, ScriptedUpstream, Wire, answer, chat, legacy, piece
from tests.for_each import for_each
from tests.test_pipeline import BEARER, ROUTES

LEVELS = 254
JSON_BEARER = {**BEARER, "content-type": "application/json"}
POLICY = """
policies:
  default:
    match: all
    cache: {ttl: 1h, semantic: {embeddings: support-chat}}
    capture: {share: 100%, fields: [input, output]}
    limits: [{name: month, usd: 100000 per month, unpriced: allow}]
    opaque: allow
    input: [{guard: pii, entities: [email], action: mask, restore: true}]
    rules: [{name: steady, set: {temperature: 0.5}}]
"""
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Write to ann@example.com"}]}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": HELLO,
    "/v1/messages": {**HELLO, "max_tokens": 5},
    "/v1/messages/count_tokens": HELLO,
    "/v1/completions": {"prompt": "Write to ann@example.com"},
    "/v1/embeddings": {"input": "Write to ann@example.com"},
}


VECTOR = {"object": "embedding", "index": 0, "embedding": [0.5]}
VECTORS = {"object": "list", "model": "m", "data": [VECTOR]}


async def respond(request: ReceivedRequest, wire: Wire) -> None:
    document = chat() if "chat" in request.path else legacy()
    await answer(VECTORS if "embeddings" in request.path else document)(request, wire)


def as_deep(body: dict[str, Any], levels: int, extra: str) -> bytes:
    """Return a body with an unknown field of ``levels`` levels."""
    raw = orjson.dumps({**body, "model": "support-chat", "more": extra, "unknown": 0})
    deep = b"[" * (levels - 1) + b"1" + b"]" * (levels - 1)
    return raw.removesuffix(b"0}") + deep + b"}"


@pytest.mark.parametrize("extra", ["", "x" * 70_000], ids=["small", "large"])
async def test_deepest_allowed_body_is_served(
    extra: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond)
    async with running_proxy(tmp_path / "policies", policies_for(upstream.url) + POLICY) as proxy:
        for path, body in BODIES.items():
            for levels, status in ((LEVELS, 200), (LEVELS + 1, 400)):
                reply = await proxy.send(path, as_deep(body, levels, extra), JSON_BEARER)
                assert reply.status == status, path


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def call_body(arguments: str) -> dict[str, Any]:
    function = {"name": "find", "arguments": arguments}
    call = {"id": "call_1", "type": "function", "function": function}
    return {
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "Paris"},
        ]
    }


@pytest.mark.parametrize("extra", ["", "x" * 70_000], ids=["small", "large"])
async def test_too_deep_body_is_refused(
    extra: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond)
    schema = orjson.Fragment(nested(LEVELS - 3))
    tool = {"name": "find", "input_schema": schema, "description": extra}
    cases: list[tuple[str, dict[str, Any], str]] = [
        (
            "/v1/messages",
            {**HELLO, "max_tokens": 5, "tools": [tool]},
            "tools: is nested more than 254",
        )
    ]
    for levels in (247, 300, 1000, 1024, 5000):
        body = {**call_body(nested(levels)), "model": "via-anthropic", "user": extra[:64]}
        cases.append(("/v1/chat/completions", body, "must be a JSON object nested at most 246"))
    async with running_proxy(tmp_path / "policies", policies_for(upstream.url)) as proxy:
        for path, body, words in cases:
            raw = orjson.dumps({"model": "support-chat", **body})
            reply = await proxy.send(path, raw, JSON_BEARER)
            assert (reply.status, words in reply.raw.decode()) == (400, True), path


@pytest.mark.parametrize("levels", [246, 247, 255, 1000, 1024, 5000])
async def test_deep_arguments_are_returned(
    levels: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    arguments = nested(levels)
    fields = call_body(arguments)["messages"][1]
    choice = {"index": 0, "message": fields, "finish_reason": "tool_calls"}
    upstream.answer_with(answer({**chat(), "choices": [choice]}))
    body = {"model": "support-chat", "max_tokens": 5, **HELLO}
    async with running_proxy(tmp_path / "policies", policies_for(upstream.url)) as proxy:
        reply = await proxy.send("/v1/messages", body)

    assert reply.status == 200
    [block] = orjson.loads(reply.raw)["content"]

    shallow = levels <= 246
    assert block["input"] == (orjson.loads(arguments) if shallow else {"arguments": arguments})


SHAPES = {
    "compact": b'{"findings":["x"],"findings":[]}',
    "spaced": b'{"findings": ["x"], "findings": []}',
    "equal values": b'{"findings":[],"findings":[]}',
    "escaped name": b'{"findings": ["x"], "f\\u0069ndings": []}',
    "in an object": b'{"answer": {"findings": ["x"], "findings": []}}',
    "in a list": b'{"answers": [{}, {"findings": ["x"], "findings": []}]}',
    "beside other spellings": b'{"n": 1e2, "t": "\\u00e9\\/", "findings": 1.0, "findings": 1}',
    "within the dropped value": b'{"a": {"b": 1, "b": 2}, "a": 1}',
}


def check_schema(raw: bytes) -> None:
    kind, _ = JsonSchema().find_problem(raw.decode())
    if kind is not None:
        raise ValueError(kind)


def check_recorded(raw: bytes) -> None:
    call = b'{"event": "call", "models": ["m"], "time": "2026-06-01T00:00:00Z", '
    if read_call(call + b'"request_id": "r", "key": "k", ' + raw[1:]) is None:
        raise ValueError("unknown")


READERS: dict[str, Callable[[bytes], Any]] = {
    "request": read_json,
    "response": DocumentParser().read,
    "large response": lambda raw: DocumentParser().read(
        b'{"pad":"' + b"x" * LARGE_BYTES + b'",' + raw[1:]
    ),
    "guard service": partial(wire.parse_answer, TypeAdapter(dict[str, Any])),
    "judged text": check_schema,
    "header": lambda raw: _parse_object_header(CONFIG, {CONFIG: raw.decode()}),
    "recorded call": check_recorded,
}
REFUSALS = (BadRequest, UpstreamInvalid, wire.BadAnswer, ValueError)


@for_each(("shape", "reader"), [(shape, reader) for shape in SHAPES for reader in READERS])
def test_repeated_name_is_refused(shape: str, reader: str) -> None:
    with pytest.raises(REFUSALS):
        READERS[reader](SHAPES[shape])


@for_each(("shape", "reader"), [(shape, reader) for shape in SHAPES for reader in READERS])
def test_equal_names_in_different_objects_are_accepted(shape: str, reader: str) -> None:
    """The same documents are accepted if their second name differs."""
    raw = SHAPES[shape].replace(b"f\\u0069ndings", b"findings")
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

    assert read_without_duplicates(raw) == whole
    with pytest.raises(ValueError, match="an object has the same name twice"):
        read_without_duplicates(first_data[:-1] + b"," + raw[1:])


ROUTE = ROUTES["openai"]
HEAD = f"POST {ROUTE.path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
KEYED = f"{HEAD}Authorization: Bearer {KEY}\r\n\r\n".encode()
STRANGER = f"{HEAD}\r\n".encode()
SENT_BODY = 2 * 1024 * 1024
CALLERS = 6
LAG_S = 0.05
OF_ONE_S = 0.2  # seconds of the loop for all requests of one caller


def send(address: tuple[str, int], head: bytes, piece: bytes) -> bytes:
    with socket.create_connection(address, timeout=20) as connection:
        try:
            connection.sendall(head + piece * (SENT_BODY // len(piece)))
            return connection.recv(65536)
        except ConnectionError:
            return b""


def of(proxy: Proxy) -> tuple[str, int]:
    host, port = proxy.url.removeprefix("http://").split(":")
    return host, int(port)


async def send_at_once(
    proxy: Proxy, head: bytes, piece: bytes
) -> tuple[Sequence[bytes], float, float]:
    """Let several callers send at once; return what they are answered, the longest that the loop
    was held, and all that it worked, in seconds of its thread."""
    started_at = time.thread_time()
    with Lag() as lag:
        sending = [asyncio.to_thread(send, of(proxy), head, piece) for _ in range(CALLERS)]
        answers = await asyncio.gather(*sending)
    return answers, lag.worst, time.thread_time() - started_at


@pytest.mark.parametrize(("head", "status"), [(KEYED, b"400"), (STRANGER, b"401")])
@pytest.mark.parametrize("size", [1, 2, 9, 17])
async def test_tiny_chunks_do_not_block_the_loop(
    size: int, head: bytes, status: bytes, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    piece = b"%x\r\n%b\r\n" % (size, b"x" * size)
    async with running_proxy(tmp_path / "policies", policies_for(upstream.url)) as proxy:
        answers, lag, worked = await send_at_once(proxy, head, piece)

    assert {answer[9:12] for answer in answers} <= {status, b""}
    assert lag < LAG_S
    assert worked < CALLERS * OF_ONE_S
    assert upstream.requests == []


@pytest.mark.parametrize(("size", "total"), [(1, 5_000), (64, 320_000), (20_000, 1_000_000)])
async def test_chunks_of_any_size_are_read(
    size: int, total: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    text = "".join(f"{number} " for number in range(total))[:total]
    body = json.dumps({**ROUTE.body(streamed=False), "prompt": text}).encode()
    parts = (body[index : index + size] for index in range(0, len(body), size))
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    async with running_proxy(tmp_path / "policies", policies_for(upstream.url)) as proxy:
        reader, writer = await asyncio.open_connection(*of(proxy))
        writer.write(KEYED + chunks)
        async with asyncio.timeout(20):
            answer = await reader.read()
        writer.close()

    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.count(b"HTTP/1.1") == 1
    assert upstream.requests[0].json["prompt"] == text


BODY = json.dumps(ROUTE.body(streamed=False)).encode()
CREDENTIAL = f"Authorization: Bearer {KEY}"
CHUNKED = "Transfer-Encoding: chunked"
LENGTH = f"Content-Length: {len(BODY)}"
TRAILERS = {
    "a credential": f"{CREDENTIAL}\r\n",
    "a credential of another dialect": f"a: b\r\nx-portkey-api-key: {KEY}\r\n",
    "a deployment": "x-headrace-deployment: resilient\r\n",
    "an id": "x-request-id: smuggled\r\n",
    "none": "",
}
FIRST_DOCUMENT = {
    "served": (ROUTE.path, CREDENTIAL, 200),
    "unknown": ("/nowhere", CREDENTIAL, 404),
    "without a key": (ROUTE.path, "a: b", 401),
}


def request(path: str, credential: str, framing: str, body: bytes) -> bytes:
    lines = (f"POST {path} HTTP/1.1", "Host: x", credential, "Content-Type: application/json")
    return "\r\n".join((*lines, framing, "", "")).encode() + body


async def exchanged(proxy: Proxy, first_data: bytes, second: bytes, *, at_once: bool) -> bytes:
    reader, writer = await proxy.connect()
    async with asyncio.timeout(10):
        writer.write(first_data + second if at_once else first_data)
        answers = await reader.readuntil(b"\r\n\r\n")
        if not at_once:
            writer.write(second)
        with suppress(ConnectionError):  # the connection was closed before the second request
            answers += await reader.read()
    writer.close()
    return answers


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("kind", FIRST_DOCUMENT)
@pytest.mark.parametrize("trailers", TRAILERS)
async def test_trailer_is_no_header_of_the_next_request(
    trailers: str, kind: str, at_once: bool, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    """The parser would pass the last trailer to the next message, so the connection closes."""
    path, credential, status = FIRST_DOCUMENT[kind]
    end = f"0\r\n{TRAILERS[trailers]}\r\n".encode()
    first_data = request(path, credential, CHUNKED, piece(BODY) + end)
    second = request(ROUTE.path, "c: d", LENGTH, BODY)  # without its own credential

    answers = await exchanged(proxy, first_data, second, at_once=at_once)

    assert answers.startswith(b"HTTP/1.1 %d" % status)
    assert answers.count(b"HTTP/1.1") == 1
    assert b"\r\nconnection: close\r\n" in answers.lower()
    assert len(upstream.requests) == (status == 200)
