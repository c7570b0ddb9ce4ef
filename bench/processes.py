"""Programs of a benchmark: start on a free port, pin to processors, measure and stop.

The cost of a program is the CPU time of its whole session, that is of all its processes and
threads. Slow clients and other programs on the machine do not change it.
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
PORTS = range(15_000, 32_000)  # below the ephemeral ports
STOP_TIMEOUT_S = 10.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
NICE = -10
CORES = sorted(os.sched_getaffinity(0))
TARGET_CORES, OTHER_CORES = CORES[:1], CORES[1:] or CORES
"""Processors of the measured program, and of all other programs of the benchmark."""
PR_SET_PDEATHSIG = 1
END_WITH_PARENT = partial(ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, signal.SIGTERM)
"""Called by a child. The kernel sends it SIGTERM when its parent ends, even if killed."""


def compile_modules(*folders: Path) -> None:
    """Compile changed modules, as an installation does, so that starts do not parse them.

    With ``PYTHONDONTWRITEBYTECODE`` every start would parse them.
    """
    for folder in folders:
        compileall.compile_dir(folder, quiet=1)


def free_port() -> int:
    """Return a free port that is not ephemeral.

    A client that waits for a listener on an ephemeral port may connect to itself.
    """
    while True:
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", PORTS.start + secrets.randbelow(len(PORTS))))
            return int(listener.getsockname()[1])


def parse_stat(stat: str) -> tuple[int, float]:
    """Return the session and the CPU seconds of a process from ``/proc/PID/stat``."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[3]), (int(fields[11]) + int(fields[12])) * TICK_S


def parse_memory_mb(rollup: str) -> float:
    """Return the proportional set size of a process from ``/proc/PID/smaps_rollup``."""
    sizes = [line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:")]
    return sum(map(int, sizes)) / 1024


@dataclass(frozen=True)
class Program:
    """A running program with all processes of its session."""

    process: Process
    ready_s: float
    """Seconds from the start until it listened."""

    def _session(self) -> Iterator[tuple[int, float]]:
        """Yield each process id with its CPU seconds."""
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with suppress(OSError):
                    session, seconds = parse_stat((folder / "stat").read_text())
                    if session == self.process.pid:
                        yield int(folder.name), seconds

    def cpu_s(self) -> float:
        return sum(seconds for _, seconds in self._session())

    def memory_mb(self) -> float:
        total = 0.0
        for pid, _ in self._session():
            with suppress(OSError):
                total += parse_memory_mb(Path(f"/proc/{pid}/smaps_rollup").read_text())
        return total

    def send_signal(self, number: signal.Signals) -> None:
        for pid, _ in list(self._session()):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def stop(self) -> None:
        self.send_signal(signal.SIGCONT)
        self.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self.process.wait()
        self.send_signal(signal.SIGKILL)
        await self.process.wait()


@contextmanager
def pinned(cores: list[int] | None) -> Iterator[None]:
    """Start child processes on these processors, with priority if root. None changes nothing."""
    if cores is None:
        yield
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    os.sched_setaffinity(0, cores)
    if os.geteuid() == 0:
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    try:
        yield
    finally:
        os.sched_setaffinity(0, CORES)
        if os.geteuid() == 0:
            os.setpriority(os.PRIO_PROCESS, 0, nice)


def prioritize_session(session: int) -> None:
    """Raise the priority of a session, if permitted.

    A kernel that schedules by session applies the priority of a process only within its session.
    """
    with suppress(OSError):
        Path(f"/proc/{session}/autogroup").write_text(f"{NICE}")


def read_port(port: int | Path) -> int:
    """Return a port, or read the file that a program writes it to. 0 before the file exists."""
    if isinstance(port, int):
        return port
    return int(port.read_text() or 0) if port.exists() else 0


@asynccontextmanager
async def program(
    port: int | Path,
    *command: str,
    environment: Mapping[str, str] | None = None,
    cores: list[int] | None = None,
    ready_s: float = READY_S,
) -> AsyncIterator[Program]:
    """Start a program and wait until it listens. Stop its whole session at the end.

    Raises:
        RuntimeError: The program ended, or did not listen within ``ready_s``.
    """
    started_at = time.monotonic()
    with pinned(cores):
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=DEVNULL,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            preexec_fn=END_WITH_PARENT,  # one system call, which takes no lock
        )
    if cores is not None:
        prioritize_session(process.pid)
    try:
        while not await listens(read_port(port)):
            if process.returncode is not None or time.monotonic() - started_at > ready_s:
                raise RuntimeError(f"{Path(command[0]).name} does not listen")
            await asyncio.sleep(0.01)
        yield Program(process, time.monotonic() - started_at)
    finally:
        await Program(process, 0).stop()


@asynccontextmanager
async def serving(
    module: str, *arguments: str, cores: list[int] | None = None
) -> AsyncIterator[int]:
    """Run a Python module whose first argument is a port, and yield the port."""
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
