"""``headrace init``: write a commented starter folder of policies and a key for it."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from proxy.policy.review import new_key

STARTER = Path(__file__).parent / "starter"
DEPLOYMENT = "support-chat"
NEXT = """\
Created {folder}. Save the key above: it is not shown again. Next steps:

  export OPENAI_API_KEY=...          # or configure another upstream in {folder}/upstreams.yaml
  headrace check {folder}
  headrace test {folder}
  headrace serve --policies {folder}"""


@click.command("init")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
def init_command(folder: Path) -> None:
    """Create a starter folder of policies in DIR.

    DIR must be new or empty. The files are commented and include tests. The first line of the
    output is the virtual key, on standard error. The folder stores only its digest.
    """
    try:
        text = write_starter(folder)
    except OSError as error:
        raise click.ClickException(f"{folder}: {error.strerror or error}") from None
    click.echo(f"{text}\n", err=True)
    click.echo(NEXT.format(folder=shlex.quote(str(folder))))


def write_starter(folder: Path) -> str:
    """Write the starter files and return the secret of their virtual key.

    Raise ``click.ClickException`` if the folder is not empty. Hidden files count.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise click.ClickException(f"{folder} is not empty; choose a new or empty folder")
    text, lines = new_key.draw("widget", [DEPLOYMENT], [DEPLOYMENT])
    for source in sorted(STARTER.rglob("*.yaml")):
        target = folder / source.relative_to(STARTER)
        target.parent.mkdir(exist_ok=True)
        target.write_text(source.read_text())
    with (folder / "keys.yaml").open("a") as keys:
        keys.write(f"{lines}\n")
    return text
