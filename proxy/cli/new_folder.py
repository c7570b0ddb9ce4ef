"""``headrace init``: write a commented starter folder of policies and a key for it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import click

from proxy.policy.review import new_key
from proxy.types.providers import OPENAI, PROVIDERS, Provider

STARTER = Path(__file__).parent / "starter"
DEPLOYMENT = "support-chat"
MODEL = "gpt-4o-mini"  # of the starter
CHOICES = [name for name, each in PROVIDERS.items() if each.base_url is not None]
NEXT = """\
Created {folder}. Save the key above: it is not shown again. Next steps:

  export {variable}=...          # or configure another upstream in {folder}/upstreams.yaml
  headrace check {folder}
  headrace test {folder}
  headrace serve --policies {folder}"""


@click.command("init")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--provider", type=click.Choice(CHOICES), default="openai", show_default=True)
@click.option("--model", default=MODEL, show_default=True, help="Model of the provider.")
def init_command(folder: Path, provider: str, model: str) -> None:
    """Create a starter folder of policies in DIR.

    DIR must be new or empty. The files are commented and include tests. The first line of the
    output is the virtual key, on standard error. The folder stores only its digest.
    """
    known = PROVIDERS[provider]
    if known is not OPENAI and model == MODEL:
        raise click.UsageError(f"--model is required for {provider}")
    try:
        text = write_starter(folder, known, model)
    except OSError as error:
        raise click.ClickException(f"{folder}: {error.strerror or error}") from None
    click.echo(f"{text}\n", err=True)
    click.echo(NEXT.format(folder=shlex.quote(str(folder)), variable=known.variable))


def write_starter(folder: Path, provider: Provider = OPENAI, model: str = MODEL) -> str:
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
        target.write_text(_adapted(source.read_text(), provider, model))
    with (folder / "keys.yaml").open("a") as keys:
        keys.write(f"{lines}\n")
    return text


def _adapted(text: str, provider: Provider, model: str) -> str:
    """Return a starter file for a model of a provider. What the model costs is not tested."""
    if provider is OPENAI and model == MODEL:
        return text
    name = provider.name
    before, found, _ = text.partition("  openai:\n")
    if found:
        address = f"dialect: {provider.dialect}\n    base_url: {provider.base_url}"
        key = f"    api_key: ${{{provider.variable}}}\n" if provider.variable else ""
        text = f"{before}  {name}:\n    {address}\n{key}    provider: {name}\n"
    text = text.replace(f"openai, model: {MODEL}", f"{name}, model: {json.dumps(model)}")
    text = text.replace(f"openai/{MODEL}", json.dumps(f"{name}/{model}"))
    text = text.replace("upstream: openai", f"upstream: {name}")
    return re.sub(r"\n +upstream: \{body.*|, team-month: [0-9.]+", "", text)
