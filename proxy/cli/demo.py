"""``headrace demo``: serve calls with a small model on this machine."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from proxy.cli.parameters import Folder, admin_option, listen_option
from proxy.cli.serve import run, settings_of, until_stopped
from proxy.demo import serving
from proxy.ledger import render, spending
from proxy.ledger.store import Unusable
from proxy.settings import Address, LedgerAt, Settings

USAGE = "Usage of this run, as `headrace usage LEDGER --by deployment` prints it:"
TEMPORARY = "The ledger was temporary. Set HEADRACE_LEDGER=sqlite:usage.db to keep the next one."
IN_CHECKOUT = (
    "Run the demo in a checkout of Headrace, or use --policies with its folder `policies`."
)


@click.command("demo")
@click.option(
    "--policies",
    type=Folder(IN_CHECKOUT),
    default="policies",
    show_default=True,
    help="Folder of policy files. They must declare an upstream named local.",
)
@listen_option
@admin_option
def demo_command(policies: Path, listen: Address, admin_listen: Address) -> None:
    """Serve calls with a small model on this machine.

    Prints the usage and cost of the calls when it stops.
    """
    settings = settings_of(policies, listen, admin_listen)
    # Other upstreams of the folder may store responses, whose ids are sealed.
    if not settings.id_secrets:
        settings = replace(settings, id_secrets=(secrets.token_hex(),))
    with _ledger(settings) as ledger, suppress(Unusable):
        started_at = datetime.now(UTC)
        with suppress(KeyboardInterrupt):  # before the proxy is ready, or while it drains
            run(serving.serve(replace(settings, ledger=ledger), until_stopped, click.echo))
        if ledger is not None and ledger.kind == "sqlite":
            by = ("deployment",)
            usage = spending.read_spending(ledger.path, by, started_at, datetime.now(UTC))
            click.echo(f"\n{USAGE}\n\n{render.table(usage)}\n")


@contextmanager
def _ledger(settings: Settings) -> Iterator[LedgerAt | None]:
    """Yield the ledger of the settings, or a temporary one, which is removed afterwards."""
    if "HEADRACE_LEDGER" in settings.environ:
        yield settings.ledger
        return
    try:
        folder = TemporaryDirectory(prefix="headrace-demo-", ignore_cleanup_errors=True)
    except OSError as error:
        advice = "Free some space, or set TMPDIR to another folder."
        problem = f"the temporary ledger cannot be created: {error.strerror}"
        raise click.ClickException(f"{problem}. {advice}") from None
    with folder as name:
        yield LedgerAt("sqlite", Path(name) / "ledger.db")
        click.echo(TEMPORARY)
