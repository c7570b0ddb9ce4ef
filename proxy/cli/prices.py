"""``headrace prices``: show, check and refresh token prices."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import click

from proxy.cli.parameters import format_option, policies_option
from proxy.errors.words import counted
from proxy.policy.compile import compile_policies
from proxy.policy.files.load import read
from proxy.policy.files.source import PolicyError
from proxy.policy.review.check import FORMATS
from proxy.prices import checking, listing
from proxy.prices.refresh import Unavailable, prepare_refresh, write

UNREADABLE = 2  # same code as for a missing folder
at_option = click.option(
    "--at", type=click.DateTime(["%Y-%m-%d"]), help="Day in UTC.  [default: today]"
)


def _day(at: datetime | None) -> date:
    return (at or datetime.now(UTC)).date()


@click.group("prices")
def prices_group() -> None:
    """Show, check and refresh the prices of tokens."""


@prices_group.command("show")
@policies_option
@at_option
@click.option("--model", help="Only models of this name or pattern, such as gpt-4o*.")
@format_option(listing.FORMATS, "table")
def show(policies: Path, at: datetime | None, model: str | None, form: str) -> None:
    """Show the current price of each target.

    With --model, also show the matching rows of the price table.
    """
    try:
        loaded = read(policies)
        snapshot = compile_policies(loaded, None)
    except PolicyError as error:
        click.echo(str(error), err=True)
        raise SystemExit(1) from None
    click.echo(listing.FORMATS[form](listing.list_prices(loaded, snapshot, _day(at), model)))


@prices_group.command("check")
@policies_option
@at_option
@click.option(
    "--older-than", "days", type=click.IntRange(1), metavar="DAYS", help="Report older prices."
)
@format_option(FORMATS)
def check(policies: Path, at: datetime | None, days: int | None, form: str) -> None:
    """List missing, old, contradictory and implausible prices.

    Exits 1 if there are any.
    """
    result = checking.check_prices(policies, _day(at), days)
    click.echo(FORMATS[form](result))
    if result.errors:
        raise SystemExit(1)


@prices_group.command("refresh")
@policies_option
@click.option(
    "--check", "only", is_flag=True, help="Write nothing; exit 1 if prices.yaml would change."
)
def refresh(policies: Path, only: bool) -> None:
    """Update prices.yaml from the package genai-prices.

    The package must be installed. No network access is needed.

    A changed price gets a new row that starts today. Older rows stay.

    Exits 1 with --check if prices.yaml would change, and 2 if the package is missing or
    prices.yaml cannot be read.
    """
    try:
        new_prices = prepare_refresh(policies, _day(None))
    except (PolicyError, Unavailable, OSError) as error:
        prefix = "" if isinstance(error, PolicyError) else "Error: "
        click.echo(f"{prefix}{error}", err=True)
        raise SystemExit(UNREADABLE) from None
    changes = new_prices.changes
    for change, names in (("added", changes.added), ("changed", changes.changed)):
        for name in names:
            click.echo(f"{change} {name}")
    if changes.missing:
        models = counted(len(changes.missing), "model")
        click.echo(f"kept {models} that genai-prices does not contain")
    if new_prices.is_current:
        click.echo("no changes")
    elif only:
        raise SystemExit(1)
    else:
        write(policies, new_prices)
