"""``headrace init``: a small commented folder of policies to begin with, and a key for it."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from proxy.policy.review import new_key

STARTER = Path(__file__).parent / "starter"
DEPLOYMENT = "support-chat"
NEXT = """\
{folder} is written; the key above is shown this once. Next:

  export OPENAI_API_KEY=...          # or name another upstream in {folder}/upstreams.yaml
  headrace check {folder}
  headrace test {folder}
  headrace serve --policies {folder}"""


@click.command("init")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
def init_command(folder: Path) -> None:
    """Write a small commented folder of policies into DIR, which must be new or empty.

    The secret of its key goes to standard error, once; the folder has the digest alone.
    """
    try:
        text = write_starter(folder)
    except OSError as error:
        raise click.ClickException(f"{folder}: {error.strerror or error}") from None
    click.echo(f"{text}\n", err=True)
    click.echo(NEXT.format(folder=shlex.quote(str(folder))))


def write_starter(folder: Path) -> str:
    """Write the files of the starter, and return the text of the key that they let in.

    Raise ``click.ClickException`` where the folder has anything in it, even a hidden file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise click.ClickException(f"{folder} is not empty: name a new folder")
    text, lines = new_key.draw("widget", [DEPLOYMENT], [DEPLOYMENT])
    for source in sorted(STARTER.rglob("*.yaml")):
        target = folder / source.relative_to(STARTER)
        target.parent.mkdir(exist_ok=True)
        target.write_text(source.read_text())
    with (folder / "keys.yaml").open("a") as keys:
        keys.write(f"{lines}\n")
    return text
