"""What was used and spent, and whether the records of it are whole."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from proxy.cli.parameters import FILE, Moment
from proxy.emit import chain
from proxy.ledger import audit, now_ms, render, spending, sqlite
from proxy.ledger.store import Unusable, Unwritten


@click.command("usage")
@click.argument("path", metavar="LEDGER", type=FILE)
@click.option(
    "--by", multiple=True, metavar="DIMENSION", help="May be repeated; see docs/ledger.md."
)
@click.option("--since", type=Moment(), default="30d", show_default=True)
@click.option("--until", type=Moment(), help="Now, where it is left out.")
@click.option("--format", "form", type=click.Choice(sorted(render.FORMS)), default="table")
def usage_command(
    path: Path, by: tuple[str, ...], since: datetime, until: datetime | None, form: str
) -> None:
    """Sum up what was used and spent: tag.NAME, key, deployment, endpoint, model, provider,
    upstream, money, loss or day."""
    try:
        spent = spending.spent(path, by, since, until or datetime.now(UTC))
    except Unusable as error:
        raise click.ClickException(error.reason) from None
    click.echo(render.FORMS[form](spent))


@click.group("ledger")
def ledger_group() -> None:
    """Look after a ledger."""


@ledger_group.command("prune")
@click.argument("path", metavar="LEDGER", type=FILE)
@click.option("--before", "--keep", "before", type=Moment(), required=True)
def prune_command(path: Path, before: datetime) -> None:
    """Let the rows of old calls go: of those before a day, or older than 90d.

    Rows of this month and week stay, as budgets may need them. What goes stays counted.
    """
    try:
        gone = sqlite.pruned(path, int(before.timestamp() * 1000), now_ms())
    except Unwritten as error:
        raise click.ClickException(f"{path} cannot be pruned: {error.reason}") from None
    click.echo(render.pruned_text(gone, before))


@click.command("verify-log")
@click.argument("path", metavar="FILE", type=FILE)
@click.option("--holds", multiple=True, metavar="HASH", help="A hash that must be in it.")
def verify_log_command(path: Path, holds: tuple[str, ...]) -> None:
    """Check a decision log. Exits 1 and names the first line that is not as it was written."""
    found = chain.verify(path, holds)
    click.echo(found.text())
    if found.broken is not None:
        raise SystemExit(1)


@click.command("verify-ledger")
@click.argument("path", metavar="LEDGER", type=FILE)
@click.option(
    "--known-missing",
    type=click.IntRange(min=0),
    default=0,
    help="So many calls in no row are known of, as after a crash.",
)
def verify_command(path: Path, known_missing: int) -> None:
    """Check that every call has its row and every row its call. Exits 1 on a violation.

    A ledger that a proxy writes is given some seconds to catch up.
    """
    try:
        found = audit.audit(path, known_missing)
    except Unusable as error:
        raise click.ClickException(error.reason) from None
    click.echo(found.text())
    if found.violations:
        raise SystemExit(1)
