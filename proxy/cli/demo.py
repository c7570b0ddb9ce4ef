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

from proxy.cli.parameters import FolderParam, admin_option, listen_option
from proxy.cli.serve import read_settings, run_or_exit, wait_for_signal
from proxy.demo import serving
from proxy.ledger import render, spending
from proxy.ledger.store import LedgerUnusable
from proxy.settings import Address, LedgerLocation, Settings

USAGE_HEADING = "Usage of this run, as `headrace usage LEDGER --by deployment` prints it:"
TEMPORARY_HINT = (
    "The ledger was temporary. Set HEADRACE_LEDGER=sqlite:usage.db to keep the next one."
)
CHECKOUT_HINT = (
    "Run the demo in a checkout of Headrace, or use --policies with its folder `policies`."
)


@click.command("demo")
@click.option(
    "--policies",
    type=FolderParam(CHECKOUT_HINT),
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
    settings = read_settings(policies, listen, admin_listen)
    # Other upstreams of the folder may store responses, whose ids are sealed.
    if not settings.id_secrets:
        settings = replace(settings, id_secrets=(secrets.token_hex(),))
    with _choose_ledger_location(settings) as ledger, suppress(LedgerUnusable):
        started_at = datetime.now(UTC)
        with suppress(KeyboardInterrupt):  # before the proxy is ready, or while it drains
            run_or_exit(
                serving.serve_demo(replace(settings, ledger=ledger), wait_for_signal, click.echo)
            )
        if ledger is not None and ledger.kind == "sqlite":
            by = ("deployment",)
            usage = spending.read_spending(ledger.path, by, started_at, datetime.now(UTC))
            click.echo(f"\n{USAGE_HEADING}\n\n{render.format_table(usage)}\n")


@contextmanager
def _choose_ledger_location(settings: Settings) -> Iterator[LedgerLocation | None]:
    """Yield the ledger that ``HEADRACE_LEDGER`` sets, otherwise a temporary one."""
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
        yield LedgerLocation("sqlite", Path(name) / "ledger.db")
        click.echo(TEMPORARY_HINT)
