"""Real servers for the shared store: each on a port of its own, ended by its process id."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
import redis

from proxy.limits.redis import RedisStore, connect
from proxy.types import Secret
from tests.limits.world import Clock

PATIENCE_S = 10.0


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Look often until it is so. Fails after a while."""
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.005)


async def eventually(holds: Callable[[], bool]) -> None:
    """Look often until it is so, while the loop goes on."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110  # it is no event's business
            await asyncio.sleep(0.005)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@dataclass
class Server:
    """A redis-server that a test may kill, stop, empty and start again."""

    folder: Path
    port: int = field(default_factory=free_port)
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> Secret:
        return Secret(f"redis://127.0.0.1:{self.port}/0")

    @property
    def admin(self) -> redis.Redis:
        return redis.Redis(port=self.port)

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        command += ["--dir", str(self.folder), "--appendonly", "no", *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until(self.answers, "redis-server starts")

    def answers(self) -> bool:
        try:
            with self.admin as admin:
                return bool(admin.ping())
        except redis.RedisError:
            return False

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def trips(self) -> int:
        """How often the script was run."""
        with self.admin as admin:
            stats = admin.info("commandstats")
        assert isinstance(stats, dict)
        return sum(int(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in SCRIPTS)


@asynccontextmanager
async def shared(
    server: Server, clock: Clock | None = None, prefix: str = "", timeout_s: float = 5.0
) -> AsyncIterator[RedisStore]:
    """One instance's view of a server; those with the same prefix share their counters."""
    client = connect(server.url, timeout_s=timeout_s)
    utc = clock.seconds if clock else time.time
    time_ms = (lambda: clock.ms) if clock else None
    async with RedisStore(client, utc, prefix or uuid4().hex, timeout_s, time_ms) as store:
        yield store


SCRIPTS = ("evalsha", "eval")


@pytest.fixture(scope="session")
def program() -> str:
    """The server's program. Where everything must be tested, a missing one is a failure."""
    found = shutil.which("redis-server")
    if found is None:
        assert not os.environ.get("CI"), "redis-server is missing: make debian"
        pytest.skip("redis-server is not installed")
    return found


@pytest.fixture(scope="session")
def shared_server(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests that do it no harm; each takes a prefix of its own."""
    server = Server(tmp_path_factory.mktemp("redis"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture
def server(program: str, tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, to be ill-treated."""
    server = Server(tmp_path)
    try:
        server.start()
        yield server
    finally:
        server.kill()
