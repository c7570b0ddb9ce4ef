"""The programs of a measurement: started on free ports, in their place, waited for, stopped.

What one costs is the time of the processor that its whole session took: every process and thread
of it. A client that cannot keep up, or another program beside it, does not change that.
"""

from __future__ import annotations

import asyncio
import compileall
import ctypes
import os
import secrets
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

READY_S = 20.0
PORTS = range(15_000, 32_000)  # below those that the system gives to who connects
STOPPED_S = 10.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
URGENT = -10  # how nice the programs of a measurement are to others, where we may say so
CORES = sorted(os.sched_getaffinity(0))
UNDER_TEST, BESIDE = CORES[:1], CORES[1:] or CORES
"""Which processors the program under test may use, and which all others of the measurement."""
PR_SET_PDEATHSIG = 1
END_WITH_PARENT = partial(ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, signal.SIGTERM)
"""Called by a child. The kernel then sends it SIGTERM once its parent is gone, even if killed."""


def compile_modules(*folders: Path) -> None:
    """Compile the modules in these folders whose source is newer, as an installation does: a start
    would parse them, even again and again (``PYTHONDONTWRITEBYTECODE``)."""
    for each in folders:
        compileall.compile_dir(each, quiet=1)


def free_port() -> int:
    """Return a port that nobody has, nor is given to who connects: one that waits for a listener
    there could else be connected to itself."""
    while True:
        with socket.socket() as taken, suppress(OSError):
            taken.bind(("127.0.0.1", PORTS.start + secrets.randbelow(len(PORTS))))
            return int(taken.getsockname()[1])


def session_of(stat: str) -> tuple[int, float]:
    """Return the session of a process and the seconds of the processor that it has used, by what
    ``/proc/PID/stat`` says."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[3]), (int(fields[11]) + int(fields[12])) * TICK_S


def memory_of(rollup: str) -> float:
    """Return the megabytes of a process, with its part of what it shares, by what
    ``/proc/PID/smaps_rollup`` says."""
    found = [line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:")]
    return sum(map(int, found)) / 1024


@dataclass(frozen=True)
class Program:
    """A program that runs, with all that it has started. ``ready_s`` is how long it took until it
    listened."""

    process: Process
    ready_s: float

    def _session(self) -> Iterator[tuple[int, float]]:
        """Yield each process with the seconds that it has used."""
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with suppress(OSError):
                    session, seconds = session_of((folder / "stat").read_text())
                    if session == self.process.pid:
                        yield int(folder.name), seconds

    def cpu_s(self) -> float:
        """Return the seconds of the processor that it has used."""
        return sum(seconds for _, seconds in self._session())

    def memory_mb(self) -> float:
        """Return the megabytes that it takes."""
        whole = 0.0
        for pid, _ in self._session():
            with suppress(OSError):
                whole += memory_of(Path(f"/proc/{pid}/smaps_rollup").read_text())
        return whole

    def tell(self, number: signal.Signals) -> None:
        """Send a signal to all of it."""
        for pid, _ in list(self._session()):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def stop(self) -> None:
        self.tell(signal.SIGCONT)
        self.tell(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOPPED_S):
                await self.process.wait()
        self.tell(signal.SIGKILL)
        await self.process.wait()


@contextmanager
def placed(cores: list[int] | None) -> Iterator[None]:
    """Have what is started within run on these processors, before others where we may say so;
    like any other program where there are none."""
    if cores is None:
        yield
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    os.sched_setaffinity(0, cores)
    if os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, 0, URGENT)
    try:
        yield
    finally:
        os.sched_setaffinity(0, CORES)
        if os.geteuid() == 0:
            os.setpriority(os.PRIO_PROCESS, 0, nice)


def come_first(session: int) -> None:
    """Have a session come before others, where we may say so: a system that shares its processors
    out by session takes what a program says of itself within its own session alone."""
    with suppress(OSError):
        Path(f"/proc/{session}/autogroup").write_text(f"{URGENT}")


def port_in(where: int | Path) -> int:
    """Return a port, from the file that a program writes it to where it chooses its own; 0 until
    it is there."""
    if isinstance(where, int):
        return where
    return int(where.read_text() or 0) if where.exists() else 0


@asynccontextmanager
async def program(
    port: int | Path,
    *command: str,
    environment: Mapping[str, str] | None = None,
    cores: list[int] | None = None,
    ready_s: float = READY_S,
) -> AsyncIterator[Program]:
    """Start a program and wait until it listens; stop it, and all that it started, in the end.
    Raises ``RuntimeError`` if it ends before, or takes longer than ``ready_s``."""
    begun = time.monotonic()
    with placed(cores):
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=DEVNULL,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            preexec_fn=END_WITH_PARENT,  # one system call, which takes no lock
        )
    if cores is not None:
        come_first(process.pid)
    try:
        while not await listens(port_in(port)):
            if process.returncode is not None or time.monotonic() - begun > ready_s:
                raise RuntimeError(f"{Path(command[0]).name} does not listen")
            await asyncio.sleep(0.01)
        yield Program(process, time.monotonic() - begun)
    finally:
        await Program(process, 0).stop()


@asynccontextmanager
async def serving(
    module: str, *arguments: str, cores: list[int] | None = None
) -> AsyncIterator[int]:
    """Start a module of ours that takes the port to listen on, and return that."""
    port = free_port()
    command = (sys.executable, "-m", module, str(port), *arguments)
    async with program(port, *command, cores=cores):
        yield port


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
