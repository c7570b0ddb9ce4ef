"""``headrace key``: create a virtual key."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Sequence
from pathlib import Path

import click

from proxy.cli.parameters import FOLDER, PolicyName
from proxy.policy.files.source import PolicyError
from proxy.policy.files.validation import does_not_exist
from proxy.policy.store import read_folder

DEFAULT_FOLDER = Path("policies")
SAVE_KEY = "Save the key above: it is not shown again. Add this entry to the policy folder:"


def new_key(name: str, deployments: Sequence[str], existing: Collection[str]) -> tuple[str, str]:
    """Return the secret of a new key, and its entry in YAML, by default for all deployments. Raise
    ``ValueError`` if a deployment does not exist or there is none."""
    for deployment in deployments:
        if deployment not in existing:
            raise ValueError(does_not_exist("deployment", deployment, existing))
    if not existing:
        raise ValueError("the policies have no deployment that a key could call. Add a deployment.")
    secret = f"hr-{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(secret.encode()).hexdigest()
    names = ", ".join(dict.fromkeys(deployments or existing))
    return secret, f"keys:\n  {name}: {{sha256: {digest}, deployments: [{names}]}}"


@click.command("key")
@click.argument("name", type=PolicyName())
@click.option(
    "--deployment",
    "deployments",
    type=PolicyName(),
    multiple=True,
    help="Deployment that the key may call. Repeatable.  [default: all]",
)
@click.option(
    "--policies", type=FOLDER, help="Folder of policy files.  [default: ./policies if it exists]"
)
def key_command(name: str, deployments: tuple[str, ...], policies: Path | None) -> None:
    """Create a virtual key called NAME.

    Prints first the key for the client, to standard error, then its entry for the policy folder,
    to standard output. The folder stores only the digest, so save the key.
    """
    if policies is None and DEFAULT_FOLDER.is_dir():
        policies = DEFAULT_FOLDER
    if policies is None and not deployments:
        message = f"folder {DEFAULT_FOLDER} does not exist; use --deployment or --policies"
        raise click.UsageError(message)
    try:
        existing = read_folder(policies, None).deployments if policies else deployments
        secret, entry = new_key(name, deployments, existing)
    except (PolicyError, ValueError) as error:
        raise click.ClickException(f"{policies}: {error}") from None
    click.echo(f"{secret}\n\n{SAVE_KEY}\n", err=True)
    click.echo(entry)
