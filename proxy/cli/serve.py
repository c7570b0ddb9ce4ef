"""Serving in front of upstreams."""

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
from proxy.cli.parameters import FOLDER, admin_option, listen_option
from proxy.demo.examples import KEY
from proxy.edge import WeakParser
from proxy.edge.listening import require_free
from proxy.freed import release
from proxy.ledger.store import Unusable
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.source import PolicyError
from proxy.settings import Address, BadSetting, Settings

GARBAGE = (200_000, 5, 50)
"""After how many values that stay garbage is looked for among the new ones, after how many of these
rounds among those of before, and all. A round takes twenty milliseconds, in which nobody is
answered: calls under way and those that are still told of make up to 50,000 values, which must not
set one off. Calls leave no garbage that only a round would find."""


@click.command()
@click.option("--policies", type=FOLDER, required=True, help="Folder of policy files.")
@click.option(
    "--candidate", type=FOLDER, help="Second folder whose decisions are recorded, not applied."
)
@listen_option
@admin_option
def serve(policies: Path, candidate: Path | None, listen: Address, admin_listen: Address) -> None:
    """Serve calls under the policies in a folder."""
    run(_serve(replace(settings_of(policies, listen, admin_listen), candidate=candidate)))


def settings_of(policies: Path, listen: Address, admin: Address) -> Settings:
    """Return the settings from flags and variables. Raise ``ClickException`` if one is invalid."""
    try:
        return settings.from_environment(policies, listen, admin, settings.environment())
    except BadSetting as error:
        raise click.ClickException(str(error)) from None


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end. An error at start ends in one message and exit code 1."""
    try:
        uvloop.run(work)
    except PolicyError as error:
        click.echo(str(error), err=True)
        raise SystemExit(1) from None
    except (Unusable, WeakParser, BadSetting) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"cannot listen on {error}") from None


def _check_keys(chosen: Settings, snapshot: Snapshot) -> None:
    """Refuse to serve beyond this machine with the key that everybody knows."""
    if chosen.listen.loopback:
        return
    found = snapshot.credentials.get(hashlib.sha256(KEY.encode()).digest())
    if found is not None:
        raise click.ClickException(
            f"keys.{found.key.name} is the public key of the demo. Remove it from the policies, or "
            "listen on 127.0.0.1."
        )


async def _serve(chosen: Settings) -> None:
    gc.disable()  # what a start makes stays: to look for garbage among it takes a tenth of a start
    loop = asyncio.get_running_loop()
    # SIGHUP would end the process. The folder is being read already, and is watched from then on.
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    require_free({"--listen": chosen.listen, "--admin-listen": chosen.admin})
    check = partial(_check_keys, chosen)
    async with app.running(chosen, check=check, loaded=_settle_memory) as running:
        loop.add_signal_handler(signal.SIGHUP, running.watch.hurry)
        await until_stopped()


def _settle_memory() -> None:
    """Take what was made at start out of the garbage collector's rounds: it stays for good, and
    walking it again and again is what the slowest calls would wait for. Give back what is free. The
    little garbage of a start stays: calls would wait for a round that finds it."""
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    gc.enable()
    release()


async def until_stopped() -> None:
    """Wait for SIGTERM or SIGINT; after the first one the next stops at once, as usual."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
