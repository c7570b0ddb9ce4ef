"""A proxy with a cache rule in front of a scripted upstream."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from proxy import server
from proxy.cache import AnswerCache
from proxy.cache.memory import MemoryAnswerStore
from proxy.cache.store import CacheBackend
from proxy.call.record import new_record
from proxy.pipeline import Pipeline
from proxy.policy.catalog import list_labels
from proxy.policy.decide import ActivePolicy
from proxy.policy.store import read_folder
from proxy.ports import Caller, Guards
from proxy.server import Calls
from proxy.server.request import Bounds
from proxy.telemetry import Emitters
from proxy.telemetry.metrics import Metrics
from proxy.types import CacheRule, Call, Plan, RequestHead
from proxy.upstream import Upstreams
from proxy.upstream.client import HttpClient
from proxy.upstream.health import Health
from tests.cache.stores import Clock
from tests.conftest import policies_for
from tests.doubles import PATIENCE_S, TRUST, ScriptedUpstream
from tests.fakes import MemorySink, Unguarded, unlimited

SEARCH_KEY = "hr-search-key"
RULE = CacheRule(ttl=60)
Ruled = Callable[[Plan], Plan]


@dataclass(frozen=True)
class RuledCaller:
    """A caller whose plans have an additional cache rule."""

    caller: Caller
    ruled: Ruled

    @property
    def key(self) -> str:
        return self.caller.key

    @property
    def credential(self) -> str | None:
        return self.caller.credential

    @property
    def controls_sampling(self) -> bool:
        return self.caller.controls_sampling

    def decide(self, call: Call) -> Plan:
        return self.ruled(self.caller.decide(call))


@dataclass
class RuledPolicies:
    """The default policies with a cache rule."""

    in_force: ActivePolicy
    ruled: Ruled

    @property
    def revision(self) -> str:
        return self.in_force.revision

    def get_active_policy(self) -> RuledPolicies:
        return self

    async def reload_if_requested(self, head: RequestHead) -> RuledPolicies:
        return self

    def identify(self, head: RequestHead) -> RuledCaller:
        return RuledCaller(self.in_force.identify(head), self.ruled)


@dataclass(repr=False)  # asyncio writes the result of a fixture, with all policies, at each signal
class Cached:
    """A running proxy with a cache, its policies and its metrics."""

    url: str
    client: aiohttp.ClientSession
    policies: RuledPolicies
    cache: AnswerCache
    clock: Clock
    calls: Calls
    metrics: Metrics
    sink: MemorySink
    bugs: list[BaseException] = field(default_factory=list)

    def rule(self, rule: CacheRule = RULE, *, may_refresh: bool = True) -> None:
        self.policies.ruled = lambda plan: replace(plan, cache=rule, may_refresh=may_refresh)

    def counted(self, series: str) -> float:
        """Return the sum of the scraped series that start with this text."""
        name, _, labels = series.rstrip("}").partition("{")
        lines = self.metrics.render()[0].decode().splitlines()
        mine = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.split()[-1]) for line in mine if labels in line)

    async def post(self, path: str, headers: dict[str, str], body: Any) -> tuple[int, str, bytes]:
        """Return the status, the cache result and the received part of the body."""
        raw = bytearray()
        async with self.client.post(path, headers=headers, json=body) as response:
            with suppress(aiohttp.ClientPayloadError):
                async for piece in response.content.iter_any():
                    raw += piece
            return response.status, response.headers["x-headrace-cache"], bytes(raw)


def patient(policies: str) -> str:
    """Let upstreams take the time that hundreds of calls take on a machine with much to do, and
    fail as often in a row as chance has it."""
    fields = "timeouts: {first_byte: 60s, idle: 60s}, breaker: off"
    return re.sub(r"timeouts: {[^}]*}", fields, policies)


@asynccontextmanager
async def cached_proxy(
    folder: Path, upstream: ScriptedUpstream, *, guards: Guards | None = None
) -> AsyncIterator[Cached]:
    folder.mkdir(exist_ok=True)
    (folder / "policies.yaml").write_text(patient(policies_for(upstream.url)))
    snapshot = read_folder(folder, {"UPSTREAM_KEY": "sk-upstream-secret"})
    metrics, sink, clock, calls = Metrics("1"), MemorySink(), Clock(), Calls()
    metrics.allow_policy_labels(list_labels(snapshot))()
    bugs: list[BaseException] = []
    policies = RuledPolicies(ActivePolicy(snapshot), lambda plan: plan)
    backend = CacheBackend(MemoryAnswerStore(10_000_000, clock, metrics), b"s" * 32)
    cache = AnswerCache({"memory": backend}, clock)
    async with AsyncExitStack() as opened:
        pipeline = Pipeline(
            policies=policies,
            limits=unlimited(),
            guards=guards or Unguarded(),
            cache=cache,
            upstreams=Upstreams(
                await opened.enter_async_context(HttpClient(TRUST)),
                "via",
                Health(time.monotonic, metrics.set_circuit),
            ),
            emitter=Emitters((metrics, sink), lambda sink, error: bugs.append(error)),
            start_record=new_record,
        )
        numbers = iter(range(1_000_000))
        handler = server.make_data_handler(
            pipeline,
            server.ListenerState(
                via="via", new_id=lambda: f"req_{next(numbers)}", bounds=Bounds(), calls=calls
            ),
            on_bug=lambda bug, request_id: bugs.append(bug),
        )
        runner = web.ServerRunner(server.HttpServer(handler, access_log=None), shutdown_timeout=1)
        await runner.setup()
        opened.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        url = f"http://{host}:{port}"
        client = await opened.enter_async_context(
            aiohttp.ClientSession(base_url=url, connector=aiohttp.TCPConnector(limit=0))
        )
        running = Cached(url, client, policies, cache, clock, calls, metrics, sink, bugs)
        running.rule()
        yield running


async def until_asked(upstream: ScriptedUpstream, times: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(upstream.requests) < times:
            upstream.arrived.clear()
            await upstream.arrived.wait()
