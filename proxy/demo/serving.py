"""``headrace demo``: the proxy in front of a small real model on this machine.

When the model cannot run, or stops, a simulated upstream takes over its address.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from proxy import app
from proxy.demo.examples import examples
from proxy.demo.model import READY_S, ModelUnavailable, model_command, running_model, stopped
from proxy.demo.simulated import running_simulation
from proxy.policy.files.load import load
from proxy.runtime.background import run_in_background
from proxy.server.listening import require_free
from proxy.settings import Address, BadSetting, Settings

UPSTREAM = "local"

Say = Callable[[str], None]


async def serve(settings: Settings, until_stopped: Callable[[], Awaitable[None]], say: Say) -> None:
    """Run the model and the proxy until stopped.

    Raises:
        BadSetting: The policies have no upstream for the model, or an address is in use.
    """
    model = _model_address(settings)
    require_free(
        {
            "--listen": settings.listen,
            "--admin-listen": settings.admin,
            f"the base_url of upstream {UPSTREAM} in {settings.policies}": model,
        }
    )
    async with running_upstream(model, say), app.running(settings) as running:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, running.watch.request_reload)
        say(examples(str(running.listen), str(running.admin)))
        await until_stopped()


def _model_address(settings: Settings) -> Address:
    """Return the address at which the policies expect the model."""
    upstream = load(settings.policies).policies.upstreams.get(UPSTREAM)
    if upstream is None:
        raise BadSetting(f"{settings.policies} has no upstream named {UPSTREAM}")
    parts = urlsplit(upstream.base_url)
    return Address(parts.hostname or "127.0.0.1", parts.port or 80)


@asynccontextmanager
async def running_upstream(
    address: Address,
    say: Say,
    command: Callable[[Address], Sequence[str]] = model_command,
    ready_s: float = READY_S,
) -> AsyncIterator[None]:
    """Serve the model while the block runs, and simulated responses once it has stopped.

    Raises:
        OSError: The address is in use.
    """
    is_ready = asyncio.Event()

    async def serve_always() -> None:
        try:
            async with running_model(command(address), ready_s) as process:
                is_ready.set()
                raise await stopped(process)
        except ModelUnavailable as error:
            say(f"The local model {error}. Continuing with simulated responses.")
        async with running_simulation(address):
            is_ready.set()
            await asyncio.Event().wait()

    say(f"Starting SmolLM2-135M-Instruct on {address} ...")
    try:
        async with run_in_background(serve_always()):
            await is_ready.wait()
            yield
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
