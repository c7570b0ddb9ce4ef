"""Guards that call a service and only watch: a call goes on meanwhile, and its record waits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from tests.doubles import Asked, ScriptedUpstream, Wire, hang
from tests.guards.test_run import ask
from tests.guards.test_services import WRITTEN, guarded, honest, served

WATCHING = {"shadow": ", mode: shadow, action: block", "flag": ", action: flag"}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("stage", ["input", "output"])
@pytest.mark.parametrize("mode", WATCHING)
@pytest.mark.parametrize("kind", WRITTEN)
async def test_slow_service_delays_no_call(
    kind: str, mode: str, stage: str, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """Two calls on one connection end before their services answer; their records do not."""
    gate = asyncio.Event()
    upstream.answer_with(served(streamed, "There is a hippo."))

    async def slow(request: Asked, wire: Wire) -> None:
        await gate.wait()
        await honest(kind)(request, wire)

    async with (
        guarded(tmp_path, upstream, kind, f"{WATCHING[mode]}, deadline: 60s", stage) as place,
        aiohttp.ClientSession(
            base_url=place.proxy.url, connector=aiohttp.TCPConnector(limit=1)
        ) as client,
    ):
        place.elsewhere.answer_with(slow)
        statuses = [(await ask(client, "A hippo?", stream=streamed))[0] for _ in range(2)]
        emitted = [*place.proxy.records]
        gate.set()
        records = await place.proxy.sink.wait(4 if kind == "judge" else 2)

    assert (statuses, emitted) == ([200, 200], [])
    records = [record for record in records if record.head.internal_key is None]
    verdicts = [result for record in records for _, result in record.guard_results()]
    assert [(verdict.error, bool(verdict.findings)) for verdict in verdicts] == [(None, True)] * 2
    assert [record.wait_s for record in records] == [0.0, 0.0]


@pytest.mark.parametrize("end", ["deadline", "shutdown"])
async def test_record_is_emitted_though_the_service_never_answers(
    end: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(served(False, "A horse."))
    deadline = "50ms" if end == "deadline" else "60s"
    extra = f", mode: shadow, deadline: {deadline}"
    async with guarded(tmp_path, upstream, "webhook", extra) as place:
        place.elsewhere.answer_with(hang())
        status, _, _ = await ask(place.client, "A horse?")
        if end == "deadline":
            await place.proxy.sink.wait()

    [record] = place.proxy.records
    [(_, result)] = record.guard_results()
    assert (status, record.outcome, result.verdict) == (200, "success", "failed")
    assert result.error == ("deadline" if end == "deadline" else "cancelled")
