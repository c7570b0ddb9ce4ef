"""Shared stores over real servers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from proxy.limits.stores.redis import RedisStore
from proxy.limits.stores.store import NO_LEDGER, LedgerRun
from proxy.runtime.redis import create_client
from proxy.settings import LedgerLocation
from tests.conftest import Proxy, policies_for, running_proxy
from tests.doubles import ScriptedUpstream
from tests.limits.sample_limits import Clock
from tests.limits.stores.slow_wire import SlowWire
from tests.servers import Cluster, Server, running_cluster, running_server


@asynccontextmanager
async def shared(
    server: Server | Cluster | SlowWire,
    clock: Clock | None = None,
    prefix: str = "",
    timeout_s: float = 5.0,
    ledger: LedgerRun = NO_LEDGER,
) -> AsyncIterator[RedisStore]:
    """Open the store of one instance. Instances with the same prefix share counters."""
    client = create_client(server.at.urls, timeout_s, cluster=server.at.cluster)
    utc = clock.seconds if clock else time.time
    time_ms = (lambda: clock.ms) if clock else None
    async with RedisStore(client, utc, prefix or uuid4().hex, time_ms, ledger) as store:
        yield store


def with_limits(upstream: ScriptedUpstream, *limits: str) -> str:
    """Return the default policies with limits for all deployments."""
    return (
        f"{policies_for(upstream.url)}\npolicies: {{default: {{limits: [{', '.join(limits)}]}}}}\n"
    )


@asynccontextmanager
async def replicas(
    folder: Path, policies: str, server: Server, count: int = 2, *, ledgers: bool = False
) -> AsyncIterator[list[Proxy]]:
    """Run proxies that share a server, each with its own ledger if requested."""
    shared: dict[str, Any] = {"redis": server.at, "cache_secret": "a secret of tests"}
    async with AsyncExitStack() as opened:
        proxies = []
        for number in range(count):
            ledger = LedgerLocation("sqlite", folder / f"{number}.db") if ledgers else None
            running = running_proxy(
                folder / str(number), policies, replicas=count, ledger=ledger, **shared
            )
            proxies.append(await opened.enter_async_context(running))
        yield proxies


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that tests share, each with its own prefix. They must not stop it."""
    with running_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that tests share, each with its own prefix. They must not stop it."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of one test, which may stop or empty it."""
    with running_server(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of one test, which may stop or change it."""
    with running_cluster(tmp_path / "cluster") as cluster:
        yield cluster
