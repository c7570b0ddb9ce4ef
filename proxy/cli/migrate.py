"""``headrace migrate``: convert the configuration of another gateway to policies."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import yaml

from proxy import settings
from proxy.migrate import FORMATS
from proxy.migrate.draft import Draft, slug
from proxy.plural import counted
from proxy.policy.review import new_key

MOST_BYTES = 4 * 1024 * 1024
NEXT = """\
Created {folder}. Save the key above: it is not shown again.{left_out} Next steps:
{exports}
  headrace check --no-secrets {folder}
  headrace serve --policies {folder}"""


@click.command("migrate")
@click.argument("gateway", type=click.Choice(sorted(FORMATS)))
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
def migrate_command(gateway: str, config: Path, folder: Path) -> None:
    """Convert the configuration of another gateway to policies.

    Reads CONFIG and writes policies to DIR, which must be new or empty. Lists everything that is
    left out, and the variables to set. The value of a variable that holds an address is copied.

    Prints the secret of a virtual key for all deployments to standard error, once.
    """
    draft = FORMATS[gateway](_read(config), config.stem, settings.environment())
    for note in draft.notes:
        click.echo(note)
    if not draft.deployments:
        raise click.ClickException(f"{config} contains no supported model")
    names = sorted(draft.deployments)
    text, lines = new_key.draw(slug(gateway), names, names)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise click.ClickException(f"{folder} is not empty; choose a new or empty folder")
        for name, content in {**draft.files(), "keys.yaml": f"{lines}\n"}.items():
            (folder / name).write_text(content)
    except OSError as error:
        raise click.ClickException(f"{folder}: {error.strerror or error}") from None
    click.echo(f"{text}\n", err=True)
    click.echo(_next(draft, shlex.quote(str(folder))))


def _next(draft: Draft, folder: str) -> str:
    """Return the next steps, with the number of skipped targets."""
    left_out = (
        f" {counted(draft.left_out, 'target')} skipped (see above)." if draft.left_out else ""
    )
    lines = [f"  export {name}=...  # {what}\n" for name, what in draft.exports.items()]
    exports = f"\n{''.join(lines)}" if lines else ""
    return NEXT.format(folder=folder, left_out=left_out, exports=exports)


def _read(config: Path) -> Any:
    """Return the mapping of a YAML or JSON file."""
    try:
        with config.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise click.ClickException(f"{config} is larger than {MOST_BYTES} bytes")
        values = yaml.safe_load(data)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise click.ClickException(f"{config} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise click.ClickException(f"{config} must be a mapping")
    return values
