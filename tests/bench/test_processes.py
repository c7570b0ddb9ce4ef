"""What programs under test take, as the kernel says it."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from contextlib import suppress
from pathlib import Path

import pytest

from bench.processes import (
    CORES,
    TICK_S,
    URGENT,
    compile_modules,
    free_port,
    memory_of,
    program,
    session_of,
)

SERVER = """
import socket, sys, threading
def work():
    for _ in range(6_000_000): pass
threads = [threading.Thread(target=work) for _ in range(2)]
for each in threads: each.start()
for each in threads: each.join()
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    while True: server.accept()
"""


def test_the_session_and_the_time_are_read_behind_any_name() -> None:
    stat = "12 (a (b) c) S 3 4 77 0 -1 0 1 2 3 4 150 50 9 9 20 0 1"

    assert session_of(stat) == (77, 200 * TICK_S)


def test_our_own_process_is_read() -> None:
    session, seconds = session_of(Path("/proc/self/stat").read_text())

    assert session == os.getsid(0)
    assert seconds > 0


def test_memory_is_what_is_in_use_with_its_share_of_the_rest() -> None:
    rollup = "00-ff rollup\nRss:  9000 kB\nPss:  2048 kB\nPss_Dirty:  1 kB\n"

    assert memory_of(rollup) == 2


@pytest.mark.process  # it starts a program, by way of the rig
async def test_a_program_is_measured_with_all_its_threads() -> None:
    port = free_port()

    async with program(port, sys.executable, "-c", SERVER, str(port)) as running:
        spend, memory = running.cpu_s(), running.memory_mb()

    assert spend > 0.1
    assert memory > 1
    assert running.ready_s > 0
    assert running.process.returncode is not None


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may come before others")
@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="sessions share alike")
async def test_a_program_in_its_place_comes_before_other_sessions() -> None:
    port = free_port()

    async with program(port, sys.executable, "-c", SERVER, str(port), cores=CORES) as running:
        group = Path(f"/proc/{running.process.pid}/autogroup").read_text()

    assert group.endswith(f"nice {URGENT}\n")


@pytest.mark.process
async def test_a_program_that_ends_at_once_is_told() -> None:
    with pytest.raises(RuntimeError, match="does not listen"):
        async with program(free_port(), sys.executable, "-c", "pass"):
            pass


def test_modules_are_compiled_as_an_installation_has_them(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("ONE = 1\n")

    compile_modules(tmp_path)

    assert [path.suffix for path in (tmp_path / "__pycache__").iterdir()] == [".pyc"]


HOLDER = """
import asyncio, sys
from bench.processes import program
async def main(port, *command):
    async with program(int(port), *command):
        print("ready", flush=True)
        await asyncio.Event().wait()
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.process
async def test_a_program_ends_with_the_process_that_started_it() -> None:
    port = free_port()
    command = (sys.executable, "-m", "bench.upstream", str(port))
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, str(port), *command, stdout=PIPE
    )
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"ready\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    holder.kill()

    with suppress(ConnectionResetError):  # either way, nothing has the other end open
        assert await reader.read() == b""
    writer.close()
    await holder.wait()
