"""Keepalives of silent streams change only how a later failure is reported."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import ClientSession

from tests.conftest import Proxy, policies_for, running_proxy
from tests.dialects.test_responses import BEARER, streamed
from tests.dialects.test_responses import REQUEST as RESPONSES_BODY
from tests.dialects.vendors.test_anthropic import HEADERS
from tests.dialects.vendors.test_anthropic import REQUEST as MESSAGES_BODY
from tests.doubles import (
    Json,
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    Wire,
    chat,
    chat_events,
    event,
    gated,
    head,
    http_chunk,
    item_events,
    message_events,
    respond,
    response,
    response_events,
    stream,
    text_events,
    text_item,
)

SILENCE_S = 0.04
PATIENCE_S = 30
CHAT_BODY: Json = {"model": "m", "messages": [{"role": "user", "content": "Hi."}]}
ITEM = text_item("It is Paris.")
REQUESTS: dict[str, tuple[str, str, Json, dict[str, str]]] = {
    "chat": ("/v1/chat/completions", "search-answers", CHAT_BODY, BEARER),
    "messages": ("/v1/messages", "via-anthropic", MESSAGES_BODY, HEADERS),
    "responses": ("/v1/responses", "support-chat", RESPONSES_BODY, BEARER),
}
EVENTS = {
    "chat": chat_events("It is ", "Paris."),
    "messages": message_events(text_events(0, "It is ", "Paris.")),
    "responses": response_events(item_events(0, ITEM, "It is ", "Paris."), document=response(ITEM)),
}
COMMENT = b": keep-alive\n\n"
KEEPALIVES = {
    "chat": COMMENT,
    "messages": b'event: ping\ndata: {"type":"ping"}\n\n',
    "responses": b'event: keepalive\ndata: {"type":"keepalive","sequence_number":',
}
"""Keepalives after the first event."""
UP_TO_TEXT = {"chat": 2, "messages": 4, "responses": 5}
"""How many events come up to the first text."""
FIRST_KEEPALIVES = {**KEEPALIVES, "responses": COMMENT}
"""Keepalives before it. OpenAI's SDKs require it to be ``response.created``."""


@asynccontextmanager
async def keeping_alive(
    folder: Path, upstream: ScriptedUpstream, extra: str = "", *, hasty: bool = False
) -> AsyncIterator[tuple[Proxy, ClientSession]]:
    policies = f"{policies_for(upstream.url, hasty=hasty)}\n{extra}"
    async with running_proxy(folder / "policies", policies, keepalive_seconds=SILENCE_S) as proxy:
        yield proxy, proxy.client


class Stream:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.raw = b""

    async def read_until(self, part: bytes, count: int = 1) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.raw.count(part) < count:
                data = await self.response.content.readany()
                assert data, self.raw
                self.raw += data

    async def read_rest(self) -> bytes:
        async with asyncio.timeout(PATIENCE_S):
            with suppress(aiohttp.ClientPayloadError):
                while data := await self.response.content.readany():
                    self.raw += data
        return self.raw


@asynccontextmanager
async def start_stream(
    client: ClientSession, family: str, to: str | None = None
) -> AsyncIterator[Stream]:
    path, deployment, body, headers = REQUESTS[family]
    headers = {**headers, "x-headrace-deployment": to or deployment}
    async with client.post(path, headers=headers, json={**body, "stream": True}) as answered:
        assert answered.status == 200
        assert answered.headers["content-type"].startswith("text/event-stream")
        yield Stream(answered)


@pytest.mark.parametrize("moment", ["before", "during"])
@pytest.mark.parametrize("family", REQUESTS)
async def test_silent_stream_sends_keepalives(
    family: str, moment: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    gate = asyncio.Event()
    is_done = family == "chat"
    pause = None if moment == "before" else gate
    script = stream(EVENTS[family], is_done=is_done, gate=pause, gate_after=UP_TO_TEXT[family])
    upstream.answer_with(gated(gate, script) if moment == "before" else script)

    async with (
        keeping_alive(tmp_path, upstream) as (proxy, client),
        start_stream(client, family) as response,
    ):
        await response.read_until(
            (FIRST_KEEPALIVES if moment == "before" else KEEPALIVES)[family], 2
        )
        gate.set()
        raw = await response.read_rest()
        [record] = await proxy.sink.wait()

    assert b"Paris." in raw
    assert (record.status, record.outcome) == (200, "success")
    assert record.first_sent is not None
    if family == "responses":
        events = streamed(raw)
        assert events[0]["type"] == "response.created"
        assert events[-1]["response"]["output"] == [ITEM]


GUARD = "policies: {{default: {{match: all, output: [{{guard: keywords, words: [{}]{}}}]}}}}"


Failing = Callable[[asyncio.Event], Script]
FAILURES: dict[str, tuple[str, bool, Failing, int, str]] = {
    "upstream": (*("", False),
        *(lambda gate: gated(gate, respond({"error": {"message": "no"}}, status=500)), 502),
        "upstream_error"),
    "timeout":
        ("", True, lambda gate: gated(asyncio.Event(), respond(chat())), 504, "timeout"),
    "guard": (*(GUARD.format("Paris", ""), False),
        *(lambda gate: gated(gate, respond(chat("Paris."))), 400, "blocked")),
}  # fmt: skip


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("family", REQUESTS)
async def test_failure_after_a_keepalive_is_an_error_event(
    family: str, failure: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """The record has the status of the failure, as if nothing had been sent."""
    extra, hasty, make, status, outcome = FAILURES[failure]
    gate = asyncio.Event()
    upstream.answer_with(make(gate))

    async with (
        keeping_alive(tmp_path, upstream, extra, hasty=hasty) as (proxy, client),
        start_stream(client, family, "search-answers") as stream,
    ):
        await stream.read_until(FIRST_KEEPALIVES[family])
        gate.set()
        raw = await stream.read_rest()
        [record] = await proxy.sink.wait()

    events = [line[6:] for line in raw.splitlines() if line.startswith(b"data: ")]
    errors = [error for event in events if (error := json.loads(event).get("error"))]
    assert errors, raw
    assert errors[0]["message"]
    assert (record.status, record.outcome, record.first_sent) == (status, outcome, None)


@pytest.mark.parametrize(
    "extra",
    ["", GUARD.format("hippo", ""), GUARD.format("hippo", ", action: mask")],
    ids=["unguarded", "blocking", "masking"],
)
async def test_only_sent_text_is_recorded(
    extra: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """The guards hold the text before the keepalive."""
    gate, remaining = asyncio.Event(), asyncio.Event()
    pending, *events = chat_events("hip", "ster " + "word " * 100)[1:-2]

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await stream_part(wire, [pending])
        await gate.wait()
        for document in events:
            await wire.send(http_chunk(event(document)))
        await remaining.wait()

    upstream.answer_with(script)
    async with keeping_alive(tmp_path, upstream, extra) as (proxy, client):
        async with start_stream(client, "chat") as stream:
            await stream.read_until(COMMENT)
            gate.set()
            await stream.read_until(b"ster")
        [record] = await proxy.sink.wait()
        remaining.set()

    assert (record.first_sent is not None, record.status) == (True, 200)


async def stream_part(wire: Wire, events: list[Json], *, is_first: bool = True) -> None:
    if is_first:
        await wire.send(head(200, "text/event-stream", "transfer-encoding: chunked"))
    for document in events:
        await wire.send(http_chunk(event(document)))
    if not is_first:
        await wire.send(b"0\r\n\r\n")


async def test_shared_response_has_keepalives(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()
    upstream.answer_with(gated(gate, stream(EVENTS["chat"])))
    extra = "policies: {default: {match: all, cache: {ttl: 1h}}}"

    async with (
        keeping_alive(tmp_path, upstream, extra) as (proxy, client),
        start_stream(client, "chat") as first_stream,
        start_stream(client, "chat") as second,
    ):
        for response in (first_stream, second):
            await response.read_until(KEEPALIVES["chat"])
        gate.set()
        assert b"Paris." in await first_stream.read_rest()
        assert b"Paris." in await second.read_rest()
        records = await proxy.sink.wait(2)

    assert len(upstream.requests) == 1
    assert {record.outcome for record in records} == {"success"}


async def test_disconnect_after_a_keepalive_closes_upstream(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    closed = asyncio.Event()

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await request.closed.wait()
        closed.set()

    upstream.answer_with(script)

    async with keeping_alive(tmp_path, upstream) as (proxy, client):
        async with start_stream(client, "chat") as stream:
            await stream.read_until(KEEPALIVES["chat"])
            stream.response.close()
        async with asyncio.timeout(PATIENCE_S):
            await closed.wait()
        [record] = await proxy.sink.wait()

    assert (record.status, record.outcome) == (499, "client_abort")


async def test_stop_ends_silent_stream(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(gated(asyncio.Event(), respond(chat())))
    async with ClientSession() as client:
        async with running_proxy(
            tmp_path / "policies",
            policies_for(upstream.url),
            keepalive_seconds=SILENCE_S,
            drain_seconds=0.0,
        ) as proxy:
            path, _, body, headers = REQUESTS["messages"]
            answered = await client.post(
                proxy.url + path, headers=headers, json={**body, "stream": True}
            )
            stream = Stream(answered)
            await stream.read_until(KEEPALIVES["messages"])
        raw = await stream.read_rest()

    assert b"event: error" in raw
    [record] = proxy.sink.records
    assert record.status == 503


@pytest.mark.parametrize("case", ["whole", "off"])
async def test_no_head_is_sent_early(case: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    """A keepalive of a stream sends no head for whole calls or streams without keepalives."""
    gate, event = asyncio.Event(), asyncio.Event()

    async def failing(request: ReceivedRequest, wire: Wire) -> None:
        event.set()
        await gate.wait()
        await respond({"error": {"message": "no"}}, status=500)(request, wire)

    upstream.answer_with(failing)
    path, to, body, headers = REQUESTS["chat"]
    headers = {**headers, "x-headrace-deployment": to}
    off = running_proxy(tmp_path / "off", policies_for(upstream.url), keepalive_seconds=0)

    async with (
        keeping_alive(tmp_path, upstream) as (proxy, client),
        off as excluded,
        asyncio.TaskGroup() as group,
    ):
        url = proxy.url if case == "whole" else excluded.url
        request = {**body, "stream": case == "off"}

        async def ask() -> int:
            async with client.post(url + path, headers=headers, json=request) as answered:
                await answered.read()
                return answered.status

        task = group.create_task(ask())
        await event.wait()
        async with start_stream(client, "chat") as stream:
            await stream.read_until(KEEPALIVES["chat"], 3)
            gate.set()
            await stream.read_rest()
        assert await task == 502
