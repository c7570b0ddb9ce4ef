"""``headrace prices``: show, check and refresh."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import click

from proxy.plural import counted
from proxy.policy.compile.compiler import compile_policies
from proxy.policy.files.load import read
from proxy.policy.files.source import PolicyError
from proxy.policy.review import check_report
from proxy.prices import checking, listing, renewal

UNREADABLE = 2  # as of a folder that is not there
folder_option = click.option(
    "--policies",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default="policies",
    show_default=True,
    help="Folder of policy files.",
)
at_option = click.option(
    "--at", type=click.DateTime(["%Y-%m-%d"]), help="On which day, in UTC; today."
)


def _day(at: datetime | None) -> date:
    return (at or datetime.now(UTC)).date()


@click.group("prices")
def prices_group() -> None:
    """Show, check and refresh the prices of tokens."""


@prices_group.command("show")
@folder_option
@at_option
@click.option("--model", help="Of these alone, such as gpt-4o*, and what the table knows of them.")
@click.option(
    "--format", "form", type=click.Choice(sorted(listing.FORMS)), default="table", show_default=True
)
def show(folder: Path, at: datetime | None, model: str | None, form: str) -> None:
    """Show the price that is in force for each target."""
    try:
        loaded = read(folder)
        snapshot = compile_policies(loaded, None)
    except PolicyError as error:
        click.echo(str(error), err=True)
        raise SystemExit(1) from None
    click.echo(listing.FORMS[form](listing.listing(loaded, snapshot, _day(at), model)))


@prices_group.command("check")
@folder_option
@at_option
@click.option("--older-than", "days", type=click.IntRange(1), metavar="DAYS", help="What is old.")
@click.option(
    "--format",
    "form",
    type=click.Choice(sorted(check_report.FORMS)),
    default="text",
    show_default=True,
)
def check(folder: Path, at: datetime | None, days: int | None, form: str) -> None:
    """List targets without a price, and prices that are old, clash or cannot be.

    Exits 1 if there is any.
    """
    found = checking.check(folder, _day(at), days)
    click.echo(check_report.FORMS[form](found))
    if found.errors:
        raise SystemExit(1)


@prices_group.command("refresh")
@folder_option
@click.option("--check", "only", is_flag=True, help="Write nothing; exit 1 if it would be.")
def refresh(folder: Path, only: bool) -> None:
    """Renew prices.yaml from the installed package genai-prices, without the network.

    A price that changes gets a row of its own from today on; those before it stay.

    Exits 0 if it is done, or with --check if nothing would change; 1 with --check if something
    would; 2 if that cannot be said: the package is missing, or prices.yaml cannot be read.
    """
    try:
        renewed = renewal.renewal(folder, _day(None))
    except (renewal.Unavailable, OSError) as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(UNREADABLE) from None
    except PolicyError as error:
        click.echo(str(error), err=True)
        raise SystemExit(UNREADABLE) from None
    changes = renewed.changes
    for word, names in (("is new", changes.added), ("costs otherwise", changes.changed)):
        for name in names:
            click.echo(f"{name} {word}")
    if changes.gone:
        one = "name that the package does not have stays as it is"
        several = "names that the package does not have stay as they are"
        click.echo(counted(len(changes.gone), one, several))
    if renewed.fresh:
        click.echo("nothing changes")
    elif only:
        raise SystemExit(1)
    else:
        renewal.write(folder, renewed)
