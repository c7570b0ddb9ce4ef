"""Real servers of Redis' own, alone or as a cluster: each on a port of its own, ended by its
process id. A test may kill, stop, empty and start them again.

Of the other servers that tests talk to, take

- `aiohttp_raw_server` and `aiohttp_client` of pytest-aiohttp where a handler of aiohttp is the
  server: they start it, end it with the test, and give a client that knows its address. They serve
  by a server of aiohttp's own, so what is promised of `edge.HttpServer` is tested with that one;
- `upstream` of conftest.py where the bytes of an answer, or when they come, are the point;
- `proxy` or `running_proxy` of conftest.py for Headrace itself, opened and closed as in
  production;
- `asyncio.start_server` where a peer does what no server of HTTP would do.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import redis

from proxy.runtime.redis_settings import RedisLocation, parse_redis_url
from tests.doubles import PATIENCE_S

SCRIPTS = ("evalsha", "eval")
SLOTS = 16384


def wait_until(holds: Callable[[], bool], description: str) -> None:
    """Poll a condition. Fails after a timeout."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, description
        time.sleep(0.005)


async def eventually(holds: Callable[[], bool]) -> None:
    """Poll a condition while the event loop runs."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110  # external state has no event
            await asyncio.sleep(0.005)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def program(name: str) -> str:
    """Return the path of a system program. Skip the test if it is missing, or fail on CI."""
    path = shutil.which(name)
    if path is None:
        assert not os.environ.get("CI"), f"{name} is missing: make debian"
        pytest.skip(f"{name} is not installed")
    return path


@dataclass
class Server:
    """One server. ``options`` are additional arguments."""

    folder: Path
    port: int = field(default_factory=free_port)
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def at(self) -> RedisLocation:
        return parse_redis_url(self.url)

    @property
    def admin(self) -> redis.Redis:
        return redis.Redis(port=self.port)

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [program("redis-server"), "--port", str(self.port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--dir", str(self.folder), "--appendonly", "no", *self.options]
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

    def script_calls(self) -> int:
        """Return the number of script calls."""
        with self.admin as admin:
            stats = admin.info("commandstats")
        assert isinstance(stats, dict)
        return sum(int(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in SCRIPTS)

    def command(self, *command: str | int) -> str:
        """Run a command. Return the reply as text, with spaces between several parts."""
        with self.admin as admin:
            answer = admin.execute_command(*command)
        if isinstance(answer, list | tuple):
            parts = [item.decode() if isinstance(item, bytes) else str(item) for item in answer]
            return " ".join(parts)
        return answer.decode() if isinstance(answer, bytes) else str(answer)


@contextmanager
def running_server(folder: Path, *options: str) -> Iterator[Server]:
    server = Server(folder, options=options)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@dataclass
class Member(Server):
    """A server of a cluster. The default bus port, its port + 10000, may not exist."""

    bus: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        self.options += ("--cluster-enabled", "yes", "--cluster-port", str(self.bus))
        self.options += ("--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0")

    @property
    def id(self) -> str:
        return self.command("CLUSTER", "MYID")

    def replication(self, description: str) -> object:
        with self.admin as admin:
            info = admin.info("replication")
        assert isinstance(info, dict)
        return info.get(description)

    def has_info(self, description: str) -> bool:
        return description in self.command("CLUSTER", "INFO")


@dataclass
class Cluster:
    """Three servers that share the keys. A test may add others."""

    folder: Path
    members: list[Member] = field(default_factory=list)

    @property
    def url(self) -> str:
        places = ",".join(f"127.0.0.1:{member.port}" for member in self.members)
        return f"redis+cluster://{places}"

    @property
    def at(self) -> RedisLocation:
        return parse_redis_url(self.url)

    def start(self) -> None:
        for first_count in range(3):
            member = self.add()
            share = SLOTS // 3
            last_count = SLOTS - 1 if first_count == 2 else (first_count + 1) * share - 1
            member.command("CLUSTER", "ADDSLOTSRANGE", first_count * share, last_count)
        self.wait_until_stable()

    def add(self) -> Member:
        """Add a server without slots."""
        member = Member(self.folder / str(len(self.members)))
        member.start()
        for other_member in self.members:
            member.command("CLUSTER", "MEET", "127.0.0.1", other_member.port, other_member.bus)
        self.members.append(member)
        return member

    def wait_until_stable(self) -> None:
        """Wait until all members know each other and all slots."""
        known_text = f"cluster_known_nodes:{len(self.members)}\r"
        for member in self.members:
            wait_until(partial(member.has_info, known_text), "a cluster")
            wait_until(partial(member.has_info, "cluster_state:ok"), "a cluster")

    def replica(self, of: Member) -> Member:
        """Add a replica of a member."""
        member = self.add()
        self.wait_until_stable()
        member.command("CLUSTER", "REPLICATE", of.id)
        wait_until(lambda: member.replication("master_link_status") == "up", "a replica")
        return member

    def wait_for_replica(self, of: Member, by: Member) -> None:
        """Wait until a replica has all data."""
        until_time = of.replication("master_repl_offset")
        wait_until(lambda: by.replication("slave_repl_offset") == until_time, "a replica has all")

    def owner(self, key: str) -> Member:
        """Return the server that has a key."""
        slot = self.slot(key)
        for member in self.members:
            for line in member.command("CLUSTER", "NODES").splitlines():
                if "myself,master" in line and any(_has(part, slot) for part in line.split()[8:]):
                    return member
        raise LookupError(key)

    def slot(self, key: str) -> int:
        return int(self.members[0].command("CLUSTER", "KEYSLOT", key))

    def move(self, key: str, to: Member) -> None:
        """Move the slot of a key, with all its keys, to another server."""
        slot, owner = self.slot(key), self.owner(key)
        to.command("CLUSTER", "SETSLOT", slot, "IMPORTING", owner.id)
        owner.command("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
        with owner.admin as admin:
            while keys := admin.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
                place = ("127.0.0.1", to.port, "", 0, 5000)
                admin.execute_command("MIGRATE", *place, "KEYS", *keys)
        for member in (to, owner, *self.members):
            member.command("CLUSTER", "SETSLOT", slot, "NODE", to.id)

    def stop(self) -> None:
        for member in self.members:
            member.kill()


def _has(part: str, slot: int) -> bool:
    first_text, _, last_text = part.partition("-")
    return part[0] != "[" and int(first_text) <= slot <= int(last_text or first_text)


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
