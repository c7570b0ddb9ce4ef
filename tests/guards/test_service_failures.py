"""Guards with a slow, unavailable or invalid service, over real calls."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from proxy.egress import MAX_RESPONSE_BYTES
from proxy.telemetry.log import build_call_line
from tests import doubles
from tests.guards.calls import ask
from tests.guards.conftest import StartRemoteGuard
from tests.guards.remote import GUARDS, WORD, honest, remotely_guarded, served, verdict
from tests.test_pipeline import ROUTES

FAULTS: dict[str, doubles.Script] = {
    "slow": doubles.hang(),
    "broken": doubles.cut_before_head(),
    "failing": doubles.respond({"error": {"message": WORD}}, 500),
    "redirecting": doubles.respond({}, 307, "location: /elsewhere"),
    "garbage": doubles.respond(b"<html>hippo</html>"),
    "empty": doubles.respond(b""),
    "huge": doubles.respond(b" " * (MAX_RESPONSE_BYTES + 1)),
    "other": doubles.respond({"hippo": [{}]}),
}
MISPLACED: dict[str, Any] = {
    "judge": verdict(True, 7),
    "webhook": {"findings": [{"text": 0, "start": 0, "end": 10**6}]},
    "presidio": [{"entity_type": "PERSON", "start": 0, "end": 10**6, "score": 1.0}],
    "moderation": {"results": []},
}


FAILURES = [
    *(("webhook", fault) for fault in FAULTS),  # all kinds share the client
    *((kind, fault) for kind in GUARDS for fault in ("failing", "other", "misplaced")),
]


@pytest.mark.parametrize("stage", ["input", "output"])
@pytest.mark.parametrize(("kind", "fault"), dict.fromkeys(FAILURES))
async def test_failed_service_blocks_unless_the_policy_is_open(
    kind: str,
    fault: str,
    stage: str,
    remote_guard: StartRemoteGuard,
    upstream: doubles.ScriptedUpstream,
) -> None:
    streamed = stage == "output"
    upstream.answer_with(served(streamed, "A horse."))
    deadline = "100ms" if fault == "slow" else "20s"
    replies = {}
    for on_error in ("closed", "open"):
        extra = f", deadline: {deadline}, on_error: {on_error}"
        running = await remote_guard(kind, extra, stage)
        running.service.answer_with(FAULTS.get(fault) or doubles.respond(MISPLACED[kind]))
        replies[on_error] = await ask(running.proxy, "A horse?", stream=streamed)
        records = await running.proxy.sink.wait(2 if kind == "judge" else 1)
        [record] = [item for item in records if item.head.internal_key is None]
        [(_, result)] = record.list_guard_results()

        assert (result.verdict, bool(result.error)) == ("failed", True)
        assert (result.error == "deadline") == (fault == "slow")
        assert WORD not in orjson.dumps(build_call_line(record)).decode()

    # A repetition may succeed, so the status is no 400.
    assert replies["closed"].status == 503
    assert replies["closed"].error["guard"] == {"name": kind, "kind": "could_not_check"}
    assert replies["open"].status == 200


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("name", "stage", "streamed"),
    [
        (name, stage, streamed)
        for name, route in ROUTES.items()
        for stage in ("input", "output")
        for streamed in (False, True)
        if not streamed or route.streams
    ],
)
async def test_late_guard_is_an_error_in_each_dialect(
    name: str,
    stage: str,
    streamed: bool,
    remote_guard: StartRemoteGuard,
    upstream: doubles.ScriptedUpstream,
) -> None:
    """The error blames no text, and the policy's message for findings is not shown."""
    route = ROUTES[name]
    extra = ", deadline: 100ms, message: Please say no such word."
    running = await remote_guard("webhook", extra, stage, script=served(streamed, "A horse."))
    running.service.answer_with(doubles.hang())

    reply = await running.proxy.send(route.path, route.body(streamed=streamed), route.credential)

    assert (reply.status, reply.headers["x-headrace-error"]) == (503, "guard_unavailable")
    assert int(reply.headers["retry-after"]) >= 1
    if name == "anthropic":
        assert reply.error.keys() == {"type", "message"}
        assert reply.error["type"] == "api_error"
    else:
        assert reply.error["type"] == "server_error"
        assert reply.error["code"] == "guard_unavailable"
        assert reply.error["guard"] == {"name": "webhook", "kind": "could_not_check"}
    assert not any(word in reply.raw for word in (b"Please", b"blocked", WORD.encode()))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("stage", ["input", "output"])
@pytest.mark.parametrize("mode", [", mode: shadow, action: block", ", action: flag"])
@pytest.mark.parametrize("kind", GUARDS)
async def test_slow_service_delays_no_call_it_only_watches(
    kind: str,
    mode: str,
    stage: str,
    streamed: bool,
    remote_guard: StartRemoteGuard,
    upstream: doubles.ScriptedUpstream,
) -> None:
    """Two calls on one connection end before their services answer; their records do not."""
    gate = asyncio.Event()
    upstream.answer_with(served(streamed, "There is a hippo."))

    async def slow(request: doubles.ReceivedRequest, wire: doubles.Wire) -> None:
        await gate.wait()
        await honest(kind)(request, wire)

    running = await remote_guard(kind, f"{mode}, deadline: 60s", stage)
    running.service.answer_with(slow)
    one_connection = aiohttp.TCPConnector(limit=1)
    async with aiohttp.ClientSession(running.proxy.url, connector=one_connection) as client:
        running.proxy.client = client
        statuses = [(await ask(running.proxy, "A hippo?", stream=streamed)).status for _ in "12"]
    emitted = [*running.proxy.records]
    gate.set()
    records = await running.proxy.sink.wait(4 if kind == "judge" else 2)

    assert (statuses, emitted) == ([200, 200], [])
    records = [record for record in records if record.head.internal_key is None]
    results = [result for record in records for _, result in record.list_guard_results()]
    assert [(result.error, bool(result.findings)) for result in results] == [(None, True)] * 2
    assert [record.wait_s for record in records] == [0.0, 0.0]


@pytest.mark.parametrize("end", ["deadline", "shutdown"])
async def test_record_does_not_wait_for_a_silent_service(
    end: str, tmp_path: Path, upstream: doubles.ScriptedUpstream
) -> None:
    upstream.answer_with(served(False, "A horse."))
    extra = f", mode: shadow, deadline: {'50ms' if end == 'deadline' else '60s'}"
    async with remotely_guarded(tmp_path, upstream, "webhook", extra) as running:
        running.service.answer_with(doubles.hang())
        reply = await ask(running.proxy, "A horse?")
        if end == "deadline":
            await running.proxy.sink.wait()

    [record] = running.proxy.records
    [(_, result)] = record.list_guard_results()
    assert (reply.status, record.outcome, result.verdict) == (200, "success", "failed")
    assert result.error == ("deadline" if end == "deadline" else "cancelled")
