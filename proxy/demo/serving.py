"""``headrace demo``: the proxy in front of a real small model on this machine, nothing else needed.

Where the model's wheel does not exist, a simulated upstream takes its place and says so.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from proxy import app
from proxy.demo.examples import examples
from proxy.demo.model import NoModel, find, running_model
from proxy.demo.simulated import running_simulation
from proxy.policy.files.load import load
from proxy.settings import Address, Settings

UPSTREAM = "local"


async def serve(
    settings: Settings, until_stopped: Callable[[], Awaitable[None]], say: Callable[[str], None]
) -> None:
    """Run model and proxy until told to stop. Raises ``NoModel`` when neither can be had."""
    async with _model(_address(settings), say), app.running(settings) as running:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, running.watch.hurry)
        say(examples(str(running.listen), str(running.admin)))
        await until_stopped()


def _address(settings: Settings) -> Address:
    """Return where the policies expect the local model."""
    upstream = load(settings.policies).policies.upstreams.get(UPSTREAM)
    if upstream is None:
        raise NoModel(f"{settings.policies} has no upstream named {UPSTREAM}")
    parts = urlsplit(upstream.base_url)
    return Address(parts.hostname or "127.0.0.1", parts.port or 80)


@asynccontextmanager
async def _model(at: Address, say: Callable[[str], None]) -> AsyncIterator[None]:
    found = find()
    if found is None:
        say("The model's package is not installed here: the answers are SIMULATED.")
        async with running_simulation(at):
            yield
        return
    say(f"Starting SmolLM2-135M-Instruct on {at} ...")
    async with running_model(found, at):
        yield
