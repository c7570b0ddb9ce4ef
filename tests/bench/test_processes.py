"""CPU time, memory and lifetime of measured programs."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from contextlib import suppress

import pytest

from bench.processes import TICK_S, free_port, parse_memory_mb, parse_stat, program

SERVER = """
import socket, sys, threading
def work():
    for _ in range(6_000_000): pass
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    while True: server.accept()
"""
PARENT = """
import asyncio, sys
from bench.processes import program
async def main(port, *command):
    async with program(int(port), *command):
        print("ready", flush=True)
        await asyncio.Event().wait()
asyncio.run(main(*sys.argv[1:]))
"""


def test_stat_is_parsed_with_any_process_name() -> None:
    stat = "12 (a (b) c) S 3 4 77 0 -1 0 1 2 3 4 150 50 9 9 20 0 1"

    assert parse_stat(stat) == (77, 200 * TICK_S)


def test_memory_is_the_proportional_set_size() -> None:
    rollup = "00-ff rollup\nRss:  9000 kB\nPss:  2048 kB\nPss_Dirty:  1 kB\n"

    assert parse_memory_mb(rollup) == 2


@pytest.mark.process
async def test_program_is_measured_with_its_threads() -> None:
    port = free_port()

    async with program(port, sys.executable, "-c", SERVER, str(port)) as running:
        cpu_s, memory_mb = running.cpu_s(), running.memory_mb()

    assert cpu_s > 0.1
    assert memory_mb > 1
    assert running.ready_s > 0
    assert running.process.returncode is not None


@pytest.mark.process
async def test_program_that_ends_at_once_raises() -> None:
    with pytest.raises(RuntimeError, match="does not listen"):
        async with program(free_port(), sys.executable, "-c", "pass"):
            pass


@pytest.mark.process
async def test_program_ends_with_its_parent() -> None:
    port = free_port()
    command = (sys.executable, "-m", "bench.upstream", str(port))
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(port), *command, stdout=PIPE
    )
    assert parent.stdout is not None
    assert await parent.stdout.readline() == b"ready\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    parent.kill()

    with suppress(ConnectionResetError):  # the socket is closed in either case
        assert await reader.read() == b""
    writer.close()
    await parent.wait()
