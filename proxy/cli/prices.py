"""``headrace prices``: show and refresh token prices."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from proxy.cli.parameters import format_option, policies_option
from proxy.errors.words import format_count
from proxy.policy.compile import compile_policies
from proxy.policy.files.load import load_policies_with_problems
from proxy.policy.files.source import PolicyError
from proxy.prices import listing
from proxy.prices.refresh import PackageMissing, prepare_refresh, write_refresh

UNREADABLE_EXIT = 2  # same code as for a missing folder


@click.group("prices")
def prices_command() -> None:
    """Show and refresh the prices of tokens."""


@prices_command.command("show")
@policies_option
@click.option("--at", type=click.DateTime(["%Y-%m-%d"]), help="Day in UTC.  [default: today]")
@click.option("--model", help="Only models of this name or pattern, such as gpt-4o*.")
@format_option(listing.FORMATS, "table")
def show_command(policies: Path, at: datetime | None, model: str | None, form: str) -> None:
    """Show the current price of each target.

    With --model, also show the matching rows of the price table.
    """
    loaded = load_policies_with_problems(policies)
    snapshot = compile_policies(loaded, None)
    day = (at or datetime.now(UTC)).date()
    click.echo(listing.FORMATS[form](listing.list_prices(loaded, snapshot, day, model)))


@prices_command.command("refresh")
@policies_option
@click.option(
    "--check", "check_only", is_flag=True, help="Write nothing; exit 1 if prices.yaml would change."
)
def refresh_command(policies: Path, check_only: bool) -> None:
    """Update prices.yaml from the package genai-prices.

    The package must be installed. No network access is needed.

    A changed price gets a new row that starts today. Older rows stay.

    Exits 1 with --check if prices.yaml would change, and 2 if the package is missing or
    prices.yaml cannot be read.
    """
    try:
        new_prices = prepare_refresh(policies, datetime.now(UTC).date())
    except (PolicyError, PackageMissing, OSError) as error:
        prefix = "" if isinstance(error, PolicyError) else "Error: "
        click.echo(f"{prefix}{error}", err=True)
        raise SystemExit(UNREADABLE_EXIT) from None
    changes = sorted(new_prices.changes.items(), key=lambda change: change[1])
    missing = [name for name, change in changes if change == "missing"]
    for name, change in changes:
        if change != "missing":
            click.echo(f"{change} {name}")
    if missing:
        click.echo(f"kept {format_count(len(missing), 'model')} that genai-prices does not contain")
    if new_prices.is_current:
        click.echo("no changes")
    elif check_only:
        raise SystemExit(1)
    else:
        write_refresh(policies, new_prices)
