"""Reloads under load: each call succeeds under the revision at its start."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from aiohttp import ClientSession, web
from prometheus_client.parser import text_string_to_metric_families

from proxy import server
from proxy.cache import NullCache
from proxy.call.record import Record, new_record, new_request_id
from proxy.pipeline import Pipeline
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import Revocations, read_revocations
from proxy.policy.store import MAX_REVISIONS, PolicyFolder, PolicyStore, read_folder
from proxy.server import Calls
from proxy.server.request import Bounds
from proxy.telemetry import Emitters, RecordSink
from proxy.telemetry.metrics import Metrics
from proxy.upstream import Upstreams
from proxy.upstream.client import HttpClient
from proxy.upstream.health import Health
from tests.cli.test_init import serving
from tests.conftest import policies_for
from tests.doubles import (
    TRUST,
    ReceivedRequest,
    ScriptedUpstream,
    Wire,
    legacy_completion,
    legacy_events,
    respond,
    stream,
)
from tests.fakes import EventLog, Unguarded, unlimited
from tests.for_each import for_each
from tests.policy.test_store import Clock, let_others_come
from tests.test_pipeline import BEARER, ROUTES, reply_text

ROUTE = ROUTES["openai"]
CLIENTS = 6
READINGS = 500
WARM = 100
MODELS = 10
MEMORY_SLACK = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServedCall:
    """Revision and models of one call. ``model`` is the one that the upstream received."""

    trace_id: str
    revision: str
    model: str


class Ledger:
    """Two accounts of each call, its client's and its record's; equal ones cancel each other out.

    So it stays as small as the calls under way are few. ``decided`` are the revisions that calls
    ran under, each with the model it led to.
    """

    name: ClassVar[str] = "memory"

    def __init__(self) -> None:
        self.unequal: set[ServedCall] = set()
        self.decided: set[tuple[str, str]] = set()
        self.outcomes: set[str] = set()

    def note(self, result: ServedCall) -> None:
        self.unequal ^= {result}
        self.decided.add((result.revision, result.model))

    def emit(self, record: Record) -> None:
        self.outcomes.add(record.outcome)
        if record.plan is not None:
            model = record.attempts[-1].target.model
            self.note(ServedCall(record.ids.trace_id, record.plan.revision, model))


class Revisions:
    """A folder of which every reading is a new revision, and the model that each leads to.

    Time passes only by sleeping, so that readings need not wait for their second. Models take
    turns: each new one would mint metrics, which stay.
    """

    def __init__(self, folder: Path, upstream: ScriptedUpstream) -> None:
        self.file = folder / "policies.yaml"
        self.world = policies_for(upstream.url)
        self.upstream = upstream
        self.turned = asyncio.Event()
        self.results: list[str] = []
        self.write(0)
        clock = Clock()
        self.store = PolicyStore(
            PolicyFolder(folder, {"UPSTREAM_KEY": "sk"}),
            lambda: clock.now,
            clock.sleep,
            EventLog(),
            lambda result, in_force: self.results.append(result),
        )
        self.models = {self.store.current.revision: model(0)}

    def write(self, number: int) -> None:
        text = self.world.replace("gpt-4o-mini", model(number))
        self.file.write_text(f"# revision {number}\n{text}")

    async def turn(self, first_item: int, last_item: int) -> None:
        for number in range(first_item, last_item + 1):
            self.write(number)
            await self.store.refresh()
            self.models[self.store.current.revision] = model(number)
            self.upstream.requests.clear()
            self.turned.set()
            self.turned = asyncio.Event()

    async def answer(self, request: ReceivedRequest, wire: Wire) -> None:
        """Answer with the model asked for; let each stream outlast the revision it began with."""
        text = request.json["model"]
        if request.json.get("stream"):
            await stream(legacy_events(text, "."), gate=self.turned)(request, wire)
        else:
            await respond(legacy_completion(f"{text}."))(request, wire)


def model(number: int) -> str:
    return f"model-{number % MODELS}"


@dataclass(frozen=True, slots=True)
class HeldMemory:
    memory_bytes: int
    descriptors: int


def resident() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def held_memory() -> HeldMemory:
    gc.collect()
    return HeldMemory(resident(), len(os.listdir("/proc/self/fd")))


@asynccontextmanager
async def served_from(store: PolicyStore, sink: RecordSink) -> AsyncIterator[str]:
    """Serve like ``app``, but with a store and clock of the test."""
    calls, metrics = Calls(), Metrics("1")
    health = Health(time.monotonic, metrics.set_circuit)
    async with HttpClient(TRUST) as http:
        pipeline = Pipeline(
            policies=store,
            limits=unlimited(),
            guards=Unguarded(),
            cache=NullCache(),
            upstreams=Upstreams(http, "via", health),
            emitter=Emitters((metrics, sink), lambda sink, error: None),
            start_record=new_record,
        )
        handler = server.make_data_handler(
            pipeline,
            server.ListenerState(via="via", new_id=new_request_id, bounds=Bounds(), calls=calls),
            on_bug=lambda bug, request_id: None,
        )
        runner = web.ServerRunner(server.HttpServer(handler, access_log=None), shutdown_timeout=1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port, *_ = runner.addresses[0]
            yield f"http://{host}:{port}"
            await calls.drain(5)
        finally:
            await runner.cleanup()


async def ask(client: ClientSession, *, streamed: bool = False) -> ServedCall:
    body = ROUTE.body(streamed=streamed, model="support-chat")
    async with client.post(ROUTE.path, headers=BEARER, json=body) as response:
        raw = await response.read()
    assert response.status == 200, raw
    assert raw.endswith(b"data: [DONE]\n\n") == streamed
    text = reply_text(ROUTE, raw, streamed=streamed)
    headers = response.headers
    return ServedCall(headers["x-trace-id"], headers["x-headrace-policy"], text.removesuffix("."))


async def test_reloads_under_load_lose_nothing(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    ledger, revisions, finished = Ledger(), Revisions(tmp_path, upstream), asyncio.Event()
    upstream.answer_with(revisions.answer)

    async def keep_asking(client: ClientSession, *, streamed: bool) -> None:
        while not finished.is_set():
            ledger.note(await ask(client, streamed=streamed))

    async with (
        served_from(revisions.store, ledger) as url,
        ClientSession(base_url=url) as client,
        asyncio.TaskGroup() as group,
    ):
        for number in range(CLIENTS):
            group.create_task(keep_asking(client, streamed=number % 2 == 0))
        await revisions.turn(1, WARM)
        initial = held_memory()
        await revisions.turn(WARM + 1, READINGS)
        final = held_memory()
        finished.set()
        revisions.turned.set()

    assert revisions.results == ["in_force"] * (1 + READINGS)
    assert len(revisions.models) == 1 + READINGS
    assert ledger.outcomes == {"success"}
    assert ledger.unequal == set()
    assert ledger.decided <= set(revisions.models.items())
    assert len(ledger.decided) > READINGS / 10
    assert final.memory_bytes - initial.memory_bytes < MEMORY_SLACK
    assert final.descriptors - initial.descriptors <= CLIENTS


async def readings(client: ClientSession, admin: str) -> dict[str, float]:
    """Return the number of reloads of a process by result."""
    async with client.get(f"http://{admin}/metrics") as response:
        families = text_string_to_metric_families(await response.text())
    return {
        sample.labels["result"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == "headrace_policy_reloads_total"
    }


async def test_unchanged_reload_is_counted(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with (
        serving(tmp_path / "policies", policies_for(upstream.url)) as (served, url),
        ClientSession(base_url=url) as client,
    ):
        admin = served.lines[-1]["admin"]
        first_item, initial = await ask(client), await readings(client, admin)

        served.process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(10):
            while await readings(client, admin) == initial:
                pass

        second, final = await ask(client), await readings(client, admin)

    assert final == {**initial, "unchanged": initial["unchanged"] + 1}
    assert second.revision == first_item.revision


DROPPED = 3


class Part:
    """A part of a snapshot that notes which thread frees it."""

    def __init__(self, freed_by: list[threading.Thread]) -> None:
        self._freed_by = freed_by

    def prepare(self) -> None:
        pass

    def iter_loading_steps(self) -> Iterator[None]:
        return iter(())

    def __del__(self) -> None:
        self._freed_by.append(threading.current_thread())


class NumberedSource:
    """A source of policies with a revision for each reading."""

    def __init__(self, folder: Path, revisions: list[str]) -> None:
        (folder / "policies.yaml").write_text(policies_for("http://127.0.0.1:9"))
        self.folder = folder
        self.freed_by: list[threading.Thread] = []
        self._revisions = iter(revisions)

    def read(self) -> Snapshot:
        snapshot = read_folder(self.folder, {"UPSTREAM_KEY": "sk"})
        parts = (Part(self.freed_by),)
        return replace(snapshot, revision=next(self._revisions), unprepared_parts=parts)

    def read_revocations(self) -> Revocations:
        return read_revocations(self.folder)


@for_each(
    ("name", "revisions"),
    [
        ("new", [str(number) for number in range(MAX_REVISIONS + DROPPED)]),
        ("unchanged", ["same"] * (1 + DROPPED)),
        ("back and forth", list("ababab"[: 2 + DROPPED])),
    ],
)
async def test_replaced_snapshot_is_freed_off_the_event_loop(
    name: str, revisions: list[str], tmp_path: Path
) -> None:
    source = NumberedSource(tmp_path, revisions)
    store = PolicyStore(source, time.monotonic, let_others_come, EventLog(), lambda *results: None)
    for _ in revisions[1:]:
        store.get_active_policy()  # a call holds the previous snapshot
        await store.refresh()

    assert len(source.freed_by) == DROPPED, name
    assert threading.current_thread() not in source.freed_by


def test_snapshot_without_new_revocations_is_not_copied(tmp_path: Path) -> None:
    snapshot = NumberedSource(tmp_path, ["same"]).read()

    assert snapshot.revoke(frozenset()) is snapshot
    revoked = snapshot.revoke(frozenset({"support-widget"}))
    assert revoked.revoke(frozenset({"support-widget"})) is revoked
    assert revoked.credentials.keys() < snapshot.credentials.keys()
