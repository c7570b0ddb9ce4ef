"""``headrace serve``: serve calls under policies."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import signal
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import uvloop

from proxy import app, settings
from proxy.cli.parameters import FOLDER_PARAM, admin_option, listen_option
from proxy.demo.examples import DEMO_KEY
from proxy.ledger.store import LedgerUnusable
from proxy.policy.decide.snapshot import Snapshot
from proxy.runtime.deferred_free import release_free_memory
from proxy.server import InsecureParser
from proxy.server.listening import require_free_addresses
from proxy.settings import Address, BadSetting, Settings

GC_THRESHOLDS = (200_000, 5, 50)
"""Thresholds of the garbage collector: new objects, and rounds for older generations. A round stops
the process for 20 ms. Concurrent calls and their records create up to 50,000 objects, which must
not start one. Calls leave no cyclic garbage."""


@click.command("serve")
@click.option("--policies", type=FOLDER_PARAM, required=True, help="Folder of policy files.")
@click.option(
    "--candidate",
    type=FOLDER_PARAM,
    help="Second folder whose decisions are recorded, not applied.",
)
@listen_option
@admin_option
def serve_command(
    policies: Path, candidate: Path | None, listen: Address, admin_listen: Address
) -> None:
    """Serve calls under the policies in a folder."""
    run_or_exit(_serve(replace(read_settings(policies, listen, admin_listen), candidate=candidate)))


def read_settings(policies: Path, listen: Address, admin: Address) -> Settings:
    """Return the settings from flags and variables. Raise ``ClickException`` if one is invalid."""
    try:
        return settings.from_environment(policies, listen, admin, settings.get_environ())
    except BadSetting as error:
        raise click.ClickException(str(error)) from None


def run_or_exit(work: Coroutine[Any, Any, None]) -> None:
    """Run until the end. An error at start prints one message and exits with code 1."""
    try:
        uvloop.run(work)
    except (LedgerUnusable, InsecureParser, BadSetting) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"cannot listen on {error}") from None


def _reject_demo_key(proxy_settings: Settings, snapshot: Snapshot) -> None:
    """Raise ``ClickException`` if other machines can use the public key of the demo."""
    if proxy_settings.listen.is_loopback:
        return
    credential = snapshot.credentials.get(hashlib.sha256(DEMO_KEY.encode()).digest())
    if credential is not None:
        raise click.ClickException(
            f"keys.{credential.key.name} is the public key of the demo. Remove it from the "
            "policies, or listen on 127.0.0.1."
        )


async def _serve(proxy_settings: Settings) -> None:
    gc.disable()  # collecting garbage would take a tenth of the start
    loop = asyncio.get_running_loop()
    # SIGHUP would end the process. The folder is read anyway, and watched afterwards.
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    require_free_addresses(
        {"--listen": proxy_settings.listen, "--admin-listen": proxy_settings.admin}
    )
    check = partial(_reject_demo_key, proxy_settings)
    async with app.run_proxy(
        proxy_settings, check=check, on_loaded=_freeze_startup_objects
    ) as running:
        loop.add_signal_handler(signal.SIGHUP, running.watch.request_reload)
        await wait_for_signal()


def _freeze_startup_objects() -> None:
    """Exclude the objects of the start from garbage collection, and release free memory.

    Collecting them would delay calls. The little garbage among them stays.
    """
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    release_free_memory()


async def wait_for_signal() -> None:
    """Wait for SIGTERM or SIGINT. The next signal stops the process immediately."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
