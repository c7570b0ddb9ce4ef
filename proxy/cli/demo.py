"""Serving in front of the small model of the demo."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path

import click

from proxy.cli.parameters import FOLDER, admin_option, listen_option
from proxy.cli.serve import run, settings_of, until_stopped
from proxy.demo import serving
from proxy.demo.model import NoModel
from proxy.settings import Address, Settings


@click.command("demo")
@click.option("--policies", type=FOLDER, default="policies", show_default=True)
@listen_option
@admin_option
def demo_command(policies: Path, listen: Address, admin_listen: Address) -> None:
    """Serve calls in front of a small model that runs on this machine."""
    chosen = settings_of(policies, listen, admin_listen)
    if not chosen.id_secrets:  # for upstreams of one's own in the folder: the model keeps nothing
        chosen = replace(chosen, id_secrets=(secrets.token_hex(),))
    run(_demo(chosen))


async def _demo(chosen: Settings) -> None:
    try:
        await serving.serve(chosen, until_stopped, click.echo)
    except NoModel as error:
        raise click.ClickException(str(error)) from None
