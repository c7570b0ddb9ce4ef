"""Commands for usage, the ledger and the decision log."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from proxy.cli.parameters import EXISTING_FILE, DatetimeParam, format_option
from proxy.ledger import audit, now_ms, render, spending, sqlite
from proxy.ledger.store import LedgerUnusable, LedgerWriteFailed
from proxy.telemetry import chain


@click.command("usage")
@click.argument("path", metavar="LEDGER", type=EXISTING_FILE)
@click.option(
    "--by", multiple=True, metavar="DIMENSION", help="Group by this dimension. Repeatable."
)
@click.option(
    "--since", type=DatetimeParam(), default="30d", show_default=True, help="Start of the period."
)
@click.option("--until", type=DatetimeParam(), help="End of the period.  [default: now]")
@format_option(render.FORMATS, "table")
def usage_command(
    path: Path, by: tuple[str, ...], since: datetime, until: datetime | None, form: str
) -> None:
    """Show usage and cost from LEDGER.

    Dimensions: tag.NAME, key, deployment, endpoint, model, provider, upstream, day, money and loss.
    Money is the use of the tokens: useful, retried, abandoned, blocked, shadow, cached. Loss is the
    reason for an incomplete response: client_left, refused, upstream_broke, guard, retry, hedge,
    stopped.

    Groups are sorted by day, if that is a dimension, then by cost. Attempts are the requests to
    upstreams that used tokens; unpriced and estimated are shares of them.
    """
    try:
        spend = spending.read_spending(path, by, since, until or datetime.now(UTC))
        spending.require_known_tags(path, spend)
    except LedgerUnusable as error:
        raise click.ClickException(error.reason) from None
    click.echo(render.FORMATS[form](spend))


@click.group("ledger")
def ledger_command() -> None:
    """Maintain a ledger."""


@ledger_command.command("prune")
@click.argument("path", metavar="LEDGER", type=EXISTING_FILE)
@click.option(
    "--before", "--keep", "before", type=DatetimeParam(), required=True, help="Delete older calls."
)
def prune_command(path: Path, before: datetime) -> None:
    """Delete the rows of old calls, for example with --keep 90d.

    Keeps the rows of this month and week, because budgets may need them. The number and cost of
    deleted calls stay in the ledger.
    """
    try:
        pruned = sqlite.prune_ledger(path, int(before.timestamp() * 1000), now_ms())
    except LedgerWriteFailed as error:
        raise click.ClickException(f"{path} cannot be pruned: {error.reason}") from None
    click.echo(render.describe_pruning(pruned, before))


@click.command("verify-log")
@click.argument("path", metavar="FILE", type=EXISTING_FILE)
@click.option(
    "--holds",
    multiple=True,
    metavar="HASH",
    help="Fail unless a line of the log has this hash. Repeatable.",
)
def verify_log_command(path: Path, holds: tuple[str, ...]) -> None:
    """Check a decision log for changed or removed lines.

    Lines that were removed at the end are found only with --holds. Exits 1 if the log is
    invalid or empty.
    """
    result = chain.verify_chain(path, holds)
    click.echo(result.describe())
    if result.first_invalid is not None:
        raise SystemExit(1)


@click.command("verify-ledger")
@click.argument("path", metavar="LEDGER", type=EXISTING_FILE)
@click.option(
    "--known-missing",
    type=click.IntRange(min=0),
    default=0,
    help="Number of calls without a row that are known, for example after a crash.",
)
def verify_ledger_command(path: Path, known_missing: int) -> None:
    """Check that every call has a row and every row has a call. Exits 1 on a violation.

    Waits a few seconds for the rows of a running proxy.
    """
    try:
        result = audit.audit(path, known_missing)
    except LedgerUnusable as error:
        raise click.ClickException(error.reason) from None
    click.echo(result.text())
    if result.violations:
        raise SystemExit(1)
