"""Composition: the only place where the parts of a process are made and joined."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aiohttp import web

import proxy
from proxy import cache, edge, ports
from proxy.app import libraries, measuring, stores, telling, vectors
from proxy.app.site import Site, new_record, new_request_id, new_span_id, since_epoch
from proxy.beside import beside
from proxy.edge.access import Access
from proxy.edge.admin import AdminSources, Readiness, admin_handler
from proxy.edge.bodies import Bodies
from proxy.edge.calls import Calls
from proxy.edge.drain import Drain, Stop
from proxy.edge.parsing import Parsing
from proxy.edge.request import Bounds
from proxy.egress import Egress
from proxy.emit import Emitters, Sink
from proxy.emit.lag import LoopLag
from proxy.emit.levels import Levels
from proxy.emit.log import CallLog, LineWriter, events
from proxy.emit.metrics import Metrics
from proxy.emit.quota import Quota
from proxy.emit.schemas import SCHEMAS
from proxy.guardrails.engine import Engine
from proxy.guardrails.run import PolicyGuards
from proxy.limits import Admission
from proxy.offload import Offload
from proxy.pipeline import Pipeline
from proxy.policy.decide.service_calls import GuardPolicies
from proxy.policy.review.candidate import Candidate
from proxy.policy.review.recent import CallHistory
from proxy.policy.store import PolicyStore, read_folder
from proxy.policy.watch import FolderWatch, Look, look
from proxy.record import Record
from proxy.settings import Address, Settings
from proxy.turns import Turns
from proxy.upstream import Upstreams
from proxy.upstream.client import HttpClient
from proxy.upstream.health import Health

LINGER_S = 2.0
CLOSING_S = 1.0
KEEPALIVE_S = 75.0
GUARD_THREADS = 2  # they search without holding up the loop, and not much more than that


@dataclass(frozen=True, slots=True)
class Running:
    """A proxy that answers. ``listen`` and ``admin`` are the addresses it really has."""

    listen: Address
    admin: Address
    policies: PolicyStore
    watch: FolderWatch


@dataclass(frozen=True, slots=True)
class Rooms:
    """What a call goes through between policy and emitters."""

    limits: Admission
    guards: ports.Guards
    cache: ports.Cache
    upstreams: Upstreams


def assembled(
    policies: ports.Policies,
    rooms: Rooms,
    emitter: Emitters,
    start_record: Callable[[], Record] = new_record,
) -> Pipeline:
    """Join the rooms to the pipeline; what serves calls and what rehearses them differ in these
    parameters alone."""
    return Pipeline(
        policies=policies,
        limits=rooms.limits,
        guards=rooms.guards,
        cache=rooms.cache,
        upstreams=rooms.upstreams,
        emitter=emitter,
        start_record=start_record,
    )


@asynccontextmanager
async def running(settings: Settings, *sinks: Sink, log_fd: int = 1) -> AsyncIterator[Running]:
    """Run the proxy until the block is left; then drain, close and flush what was opened.

    ``sinks`` are told of every call beside the usual emitters. Raises ``PolicyError`` when the
    policies cannot be taken into force, ``ledger.Unusable`` when no ledger can be kept and
    ``OSError`` when an address cannot be had.
    """
    async with AsyncExitStack() as opened:
        site, ending = _site(settings, opened, log_fd)
        decisions = telling.decisions(site)
        clock = (time.monotonic, asyncio.sleep)
        known = look(settings.policies)  # before it is read, so that no change is missed
        reading = partial(read_folder, settings.policies, settings.environ)
        store = PolicyStore(reading, *clock, site.log, telling.policies(site, decisions))
        watch = _watch(site, settings.policies, known, store)
        candidate = await _candidate(site)
        all_sinks: tuple[Sink, ...] = (
            site.metrics,
            CallLog(site.put, site.levels, SCHEMAS[settings.log.schema], settings.log.ratio),
            *telling.traces(site),
            *decisions,
            past := CallHistory(store.find, candidate.current if candidate else None),
            *([candidate] if candidate else []),
            *stores.rows(site),
            *sinks,
        )
        soon = asyncio.get_running_loop().call_soon
        emitters = Emitters(all_sinks, telling.report(site), soon, Quota(time.monotonic))
        opened.callback(emitters.tell)  # of the calls that end last
        via = f"{random.getrandbits(64):016x}"  # an id, not a secret
        rooms = await _rooms(site, store, via, emitters, offload := _offload(site))
        pipeline = assembled(store, rooms, emitters)
        calls = Calls()
        front = edge.data_handler(
            pipeline,
            via=via,
            new_id=new_request_id,
            bounds=_bounds(site, offload),
            calls=calls,
            on_bug=telling.bug(site),
        )
        readiness = Readiness()
        look_up = measuring.Gauges(site.metrics, rooms.limits.store, since_epoch).look
        otherwise = candidate.explain if candidate else None
        told = AdminSources(look_up, site.metrics.render, site.levels, past, otherwise)
        admin, *_ = await _listen(
            opened, admin_handler(told, readiness, _access(settings)), settings.admin
        )
        listen, server, stop = await _listen(opened, front, settings.listen)
        _drain(opened, settings, server, calls, stop)
        measuring.clients(site.metrics, lambda: len(server.connections))
        await opened.enter_async_context(LoopLag(site.metrics.late))
        await opened.enter_async_context(stores.drift(site, store, rooms.limits))
        await opened.enter_async_context(beside(watch.run()))
        readiness.ready = True
        opened.callback(setattr, readiness, "ready", False)
        telling.listening(site, ending, listen, admin)
        yield Running(listen, admin, store, watch)


def _site(settings: Settings, opened: AsyncExitStack, log_fd: int) -> tuple[Site, telling.Ending]:
    """Return where the process is put together, and what is to be told of its end."""
    metrics = Metrics(proxy.__version__)
    levels = Levels(settings.log.level, time.monotonic)
    log = events(lambda line: writer.put(line), levels, SCHEMAS[settings.log.schema])  # noqa: PLW0108  # it is made below
    failed = telling.writer_failed(metrics, log)
    writer = LineWriter(log_fd, partial(metrics.dropped, "logs"), partial(failed, "logs"))
    opened.callback(writer.close)
    ending = telling.Ending(log, settings.drain_seconds)
    opened.callback(ending.end)
    metrics.watch("headrace_telemetry_queue_length", "logs", read=lambda: writer.waiting)
    site = Site(settings, opened, writer.put, log, metrics, levels, failed)
    libraries.route_library_logs(site)
    return site, ending


async def _rooms(
    site: Site, store: PolicyStore, via: str, emitters: Emitters, offload: Offload
) -> Rooms:
    http = await site.opened.enter_async_context(HttpClient())
    site.metrics.watch("headrace_queued_requests", read=lambda: http.waiting)
    site.metrics.watch("headrace_open_connections", "upstream", read=lambda: http.open)
    counters = await stores.counters(site)
    pool = site.opened.enter_context(ThreadPoolExecutor(GUARD_THREADS, "guards"))
    recalls = await stores.recalls(site, store, counters)
    limits = Admission(counters, telling.warn(site), recalls, offload)
    health = Health(time.monotonic, site.metrics.circuit)
    answers = Bodies(site.settings.answers_bytes, "answers")
    site.metrics.watch("headrace_answer_body_bytes", read=lambda: answers.held)
    upstreams = Upstreams(http, via, new_span_id, health, offload=offload, share=answers.share)
    bare = Rooms(limits, PolicyGuards(Engine(time.monotonic)), cache.NullCache(), upstreams)
    asks = assembled(
        GuardPolicies(lambda: store.current), bare, emitters
    )  # the pipeline for guards
    outside = Egress(http, asks.run, new_request_id)
    most_texts = site.settings.body_values
    engine = Engine(time.monotonic, pool, outsides=outside, most_texts=most_texts)
    semantic = vectors.semantic_index(site, vectors.embeddings(site))
    kept = cache.AnswerCache(await stores.backends(site), since_epoch, semantic, offload)
    return Rooms(limits, PolicyGuards(engine), kept, upstreams)


def _access(settings: Settings) -> Access:
    return Access(settings.admin_token, settings.admin_hosts)


def _offload(site: Site) -> Offload:
    """Return one thread for all work on large bodies, so that they wait for each other, caller
    by caller, and the loop for none."""
    return Offload(site.opened.enter_context(ThreadPoolExecutor(1, "bodies")), Turns(1))


def _bounds(site: Site, offload: Offload) -> Bounds:
    """Return what requests may take."""
    settings = site.settings
    bodies = Bodies(settings.bodies_bytes)
    site.metrics.watch("headrace_request_body_bytes", read=lambda: bodies.held)
    return Bounds(
        settings.body_bytes, bodies=bodies, parsing=Parsing(settings.body_values, offload)
    )


def _watch(site: Site, folder: Path, known: Look, store: PolicyStore) -> FolderWatch:
    settle_s = site.settings.settle_seconds
    return FolderWatch(
        folder, known, store.refresh, store.read_revocations, settle_s, time.monotonic
    )


async def _candidate(site: Site) -> Candidate | None:
    """Give the sink of a candidate where there is one, its folder watched; it needs no secrets."""
    folder = site.settings.candidate
    if folder is None:
        return None
    known = look(folder)
    reading = partial(read_folder, folder, None)
    clock = (time.monotonic, asyncio.sleep)
    told = measuring.candidate(site.metrics)
    store = PolicyStore(reading, *clock, site.log, told, "candidate")
    watch = _watch(site, folder, known, store)
    await site.opened.enter_async_context(beside(watch.run()))
    return Candidate(lambda: store.current, site.metrics.candidate)


async def _listen(
    opened: AsyncExitStack, handler: edge.Handler, at: Address
) -> tuple[Address, edge.HttpServer, Stop]:
    """Open a listener. Leaving it stops accepting and closes what is left of its connections.
    Raise ``OSError`` that names the address."""
    server = edge.HttpServer(
        handler,
        access_log=None,
        keepalive_timeout=KEEPALIVE_S,
        lingering_time=LINGER_S,
    )
    runner = web.ServerRunner(server, shutdown_timeout=CLOSING_S)
    await runner.setup()
    opened.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, at.host, at.port)
    try:
        await site.start()
    except OSError as error:  # asyncio tells of the address in words of its own, some twice
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise OSError(f"{at}: {why or error}") from None
    host, port, *_ = runner.addresses[0]
    return Address(host, port), server, site.stop


def _drain(
    opened: AsyncExitStack, settings: Settings, server: edge.HttpServer, calls: Calls, stop: Stop
) -> None:
    drain = Drain(settings.drain_seconds, settings.drain_grace_seconds)
    opened.push_async_callback(drain.run, server, calls, stop)
