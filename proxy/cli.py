"""The command line: parse arguments, call one function each, give an exit code."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import secrets
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import click
import orjson
import uvloop

from proxy import __version__, app, demo, settings
from proxy.edge import WeakParser
from proxy.policy import editor, verdict
from proxy.policy.source import PolicyError
from proxy.policy.store import read_folder
from proxy.settings import Address, BadSetting, Settings

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


class Listen(click.ParamType[Address]):
    """``HOST:PORT``."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: Any, ctx: Any) -> Address:
        try:
            return value if isinstance(value, Address) else settings.address(value)
        except BadSetting as error:
            self.fail(str(error), param, ctx)


listen_option = click.option(
    "--listen", type=Listen(), default="127.0.0.1:8080", show_default=True, help="Data port."
)
admin_option = click.option(
    "--admin-listen",
    type=Listen(),
    default="127.0.0.1:8081",
    show_default=True,
    help="Metrics, health and readiness.",
)


@click.group()
@click.version_option(__version__, prog_name="headrace")
def main() -> None:
    """Headrace: an observability and policy proxy for LLM completion calls."""


@main.command()
@click.option("--policies", type=FOLDER, required=True, help="Folder of policy files.")
@listen_option
@admin_option
def serve(policies: Path, listen: Address, admin_listen: Address) -> None:
    """Serve calls under the policies of a folder."""
    _run(_serve(_settings(policies, listen, admin_listen)))


@main.command("demo")
@click.option("--policies", type=FOLDER, default="policies", show_default=True)
@listen_option
@admin_option
def demo_command(policies: Path, listen: Address, admin_listen: Address) -> None:
    """Serve calls in front of a small model that runs on this machine."""
    _run(demo.serve(_settings(policies, listen, admin_listen), _until_stopped, click.echo))


@main.command()
@click.argument("folder", type=FOLDER)
@click.option("--strict", is_flag=True, help="Let warnings fail too.")
@click.option(
    "--format", "form", type=click.Choice(sorted(verdict.FORMS)), default="text", show_default=True
)
def check(folder: Path, strict: bool, form: str) -> None:
    """Say everything that is wrong or doubtful in a folder of policy files.

    Exits 1 if anything is wrong, or with --strict if anything is doubtful.
    """
    found = verdict.judge(folder, settings.environment())
    click.echo(verdict.FORMS[form](found))
    if found.errors or (strict and found.warnings):
        raise SystemExit(1)


@main.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of the policy files, for editors."""
    click.echo(orjson.dumps(editor.json_schema(), option=orjson.OPT_INDENT_2).decode())


@main.command()
@click.argument("name")
def key(name: str) -> None:
    """Draw a virtual key: the secret to hand out, and the lines for keys.yaml."""
    secret = f"hr-{secrets.token_urlsafe(32)}"
    digest = hashlib.sha256(secret.encode()).hexdigest()
    click.echo(f"{secret}\n", err=True)
    click.echo(f"keys:\n  {name}: {{sha256: {digest}, deployments: []}}")


def _settings(policies: Path, listen: Address, admin: Address) -> Settings:
    try:
        return settings.from_environment(policies, listen, admin, settings.environment())
    except BadSetting as error:
        raise click.ClickException(str(error)) from None


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end; what stops a start is one clear message and exit code 1."""
    try:
        uvloop.run(work)
    except PolicyError as error:
        click.echo(str(error), err=True)
        raise SystemExit(1) from None
    except (demo.NoModel, WeakParser) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"cannot listen: {error.strerror or error}") from None


def _keep_published_key_here(chosen: Settings) -> None:
    """Refuse to serve beyond this machine with the key that everybody knows."""
    if chosen.listen.loopback:
        return
    digest = hashlib.sha256(demo.KEY.encode()).digest()
    found = read_folder(chosen.policies, chosen.environ).keys.get(digest)
    if found is not None:
        raise click.ClickException(
            f"keys.{found.name} is the published key of the demo: take it out of the policies, "
            f"or listen on 127.0.0.1"
        )


async def _serve(chosen: Settings) -> None:
    _keep_published_key_here(chosen)
    async with app.running(chosen) as running:
        _settle_memory()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, running.watch.hurry)
        await _until_stopped()
        running.readiness.ready = False
        running.log.info("stopping")


def _settle_memory() -> None:
    """Take what was made at start out of the garbage collector's rounds: it stays for good, and
    walking it again and again is what the slowest calls would wait for."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


async def _until_stopped() -> None:
    """Wait for SIGTERM or SIGINT; after the first one the next stops at once, as usual."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await stopped.wait()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
