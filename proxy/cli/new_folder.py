"""``headrace init``, ``migrate`` and ``key``: create a folder of policies, and keys for it."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from proxy import settings
from proxy.cli.parameters import FOLDER_PARAM, PolicyNameParam
from proxy.errors.words import format_count
from proxy.migrate import CONVERTERS
from proxy.migrate.draft import Draft, to_slug
from proxy.policy.files.source import PolicyError
from proxy.policy.files.validation import describe_unknown_name
from proxy.policy.store import read_folder
from proxy.types.providers import OPENAI, PROVIDERS, Provider

STARTER_FOLDER = Path(__file__).parent / "starter"
DEFAULT_FOLDER = Path("policies")
SAVE_KEY_MESSAGE = "Save the key above: it is not shown again. Add this entry to the policy folder:"
STARTER_DEPLOYMENT = "support-chat"
STARTER_MODEL = "gpt-4o-mini"  # model of the starter folder
PROVIDER_CHOICES = [name for name, provider in PROVIDERS.items() if provider.base_url is not None]
MAX_CONFIG_BYTES = 4 * 1024 * 1024  # of a configuration file to migrate
INIT_MESSAGE = """\
Created {folder}. Save the key above: it is not shown again. Next steps:

  export {variable}=...          # or configure another upstream in {folder}/upstreams.yaml
  headrace check {folder}
  headrace test {folder}
  headrace serve --policies {folder}"""
MIGRATE_MESSAGE = """\
Created {folder}. Save the key above: it is not shown again.{unconverted} Next steps:
{exports}
  headrace check --no-secrets {folder}
  headrace serve --policies {folder}"""


@click.command("init")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--provider", type=click.Choice(PROVIDER_CHOICES), default="openai", show_default=True
)
@click.option("--model", default=STARTER_MODEL, show_default=True, help="Model of the provider.")
def init_command(folder: Path, provider: str, model: str) -> None:
    """Create a starter folder of policies in DIR.

    DIR must be new or empty. The files are commented and include tests. The first line of the
    output is the virtual key, on standard error. The folder stores only its digest.
    """
    details = PROVIDERS[provider]
    if details is not OPENAI and model == STARTER_MODEL:
        raise click.UsageError(f"--model is required for {provider}")
    text = write_starter_folder(folder, details, model)
    click.echo(f"{text}\n", err=True)
    click.echo(INIT_MESSAGE.format(folder=shlex.quote(str(folder)), variable=details.key_variable))


def write_starter_folder(
    folder: Path, provider: Provider = OPENAI, model: str = STARTER_MODEL
) -> str:
    """Write the starter files and return the secret of their virtual key.

    Raise ``click.ClickException`` if the folder is not empty. Hidden files count.
    """
    text, lines = generate_key("widget", [STARTER_DEPLOYMENT], [STARTER_DEPLOYMENT])
    files = {
        str(source.relative_to(STARTER_FOLDER)): _adapt_starter_file(
            source.read_text(), provider, model
        )
        for source in sorted(STARTER_FOLDER.rglob("*.yaml"))
    }
    write_files_to_empty_folder(folder, {**files, "keys.yaml": f"{files['keys.yaml']}{lines}\n"})
    return text


def write_files_to_empty_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Write files by their names. Raise ``click.ClickException`` if the folder is not empty."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise click.ClickException(f"{folder} is not empty; choose a new or empty folder")
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(content)
    except OSError as error:
        raise click.ClickException(f"{folder}: {error.strerror or error}") from None


def _adapt_starter_file(text: str, provider: Provider, model: str) -> str:
    """Return a starter file for a model of a provider, without tests of its cost."""
    if provider is OPENAI and model == STARTER_MODEL:
        return text
    name = provider.name
    head, marker, _ = text.partition("  openai:\n")
    if marker:
        address = f"dialect: {provider.dialect}\n    base_url: {provider.base_url}"
        key = f"    api_key: ${{{provider.key_variable}}}\n" if provider.key_variable else ""
        text = f"{head}  {name}:\n    {address}\n{key}    provider: {name}\n"
    text = text.replace(f"openai, model: {STARTER_MODEL}", f"{name}, model: {json.dumps(model)}")
    text = text.replace(f"openai/{STARTER_MODEL}", json.dumps(f"{name}/{model}"))
    text = text.replace("upstream: openai", f"upstream: {name}")
    return re.sub(r"\n +upstream: \{body.*|, team-month: [0-9.]+", "", text)


@click.command("migrate")
@click.argument("gateway", type=click.Choice(sorted(CONVERTERS)))
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
def migrate_command(gateway: str, config: Path, folder: Path) -> None:
    """Convert the configuration of another gateway to policies.

    Reads CONFIG and writes policies to DIR, which must be new or empty. Lists everything that was
    left out, and the variables to set. The value of a variable that holds an address is copied.

    Prints the secret of a virtual key for all deployments to standard error, once.
    """
    draft = CONVERTERS[gateway](_read_config_file(config), config.stem, settings.get_environ())
    for note in draft.notes:
        click.echo(note)
    if not draft.deployments:
        raise click.ClickException(f"{config} contains no supported model")
    names = sorted(draft.deployments)
    text, lines = generate_key(to_slug(gateway), names, names)
    write_files_to_empty_folder(folder, {**draft.render_files(), "keys.yaml": f"{lines}\n"})
    click.echo(f"{text}\n", err=True)
    click.echo(_format_migrate_message(draft, shlex.quote(str(folder))))


def _format_migrate_message(draft: Draft, folder: str) -> str:
    """Return the next steps, with the number of targets that were not converted."""
    unconverted = ""
    if draft.skipped_count:
        targets = format_count(draft.skipped_count, "target")
        unconverted = f" {targets} not converted (see above)."
    lines = [
        f"  export {name}=...  # {description}\n" for name, description in draft.exports.items()
    ]
    exports = f"\n{''.join(lines)}" if lines else ""
    return MIGRATE_MESSAGE.format(folder=folder, unconverted=unconverted, exports=exports)


def _read_config_file(config: Path) -> Any:
    """Return the mapping of a YAML or JSON file."""
    try:
        with config.open("rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
        if len(data) > MAX_CONFIG_BYTES:
            raise click.ClickException(f"{config} is larger than {MAX_CONFIG_BYTES} bytes")
        values = yaml.safe_load(data)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise click.ClickException(f"{config} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise click.ClickException(f"{config} must be a mapping")
    return values


def generate_key(
    name: str, deployments: Sequence[str], existing: Collection[str]
) -> tuple[str, str]:
    """Return the secret of a new key, and its entry in YAML, by default for all deployments.

    Raise ``ValueError`` if a deployment does not exist or there is none.
    """
    for deployment in deployments:
        if deployment not in existing:
            raise ValueError(describe_unknown_name("deployment", deployment, existing))
    if not existing:
        raise ValueError("the policies have no deployment that a key could call. Add a deployment.")
    secret = f"hr-{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(secret.encode()).hexdigest()
    names = ", ".join(dict.fromkeys(deployments or existing))
    return secret, f"keys:\n  {name}: {{sha256: {digest}, deployments: [{names}]}}"


@click.command("key")
@click.argument("name", type=PolicyNameParam())
@click.option(
    "--deployment",
    "deployments",
    type=PolicyNameParam(),
    multiple=True,
    help="Deployment that the key may call. Repeatable.  [default: all]",
)
@click.option(
    "--policies",
    type=FOLDER_PARAM,
    help="Folder of policy files.  [default: ./policies if it exists]",
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
        secret, entry = generate_key(name, deployments, existing)
    except (PolicyError, ValueError) as error:
        raise click.ClickException(f"{policies}: {error}") from None
    click.echo(f"{secret}\n\n{SAVE_KEY_MESSAGE}\n", err=True)
    click.echo(entry)
