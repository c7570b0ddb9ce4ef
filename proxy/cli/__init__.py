"""The command line."""

from __future__ import annotations

import gc
from typing import Any

import click

from proxy import __version__
from proxy.policy.files.source import PolicyError
from proxy.runtime.lazy import LazyImportTable
from proxy.settings import suppress_certificate_loading

MODULES = {
    "serve": ["serve"],
    "demo": ["demo"],
    "new_folder": ["init", "migrate", "key"],
    "policies": ["check", "explain", "test", "diff", "schema", "metrics"],
    "ledger": ["usage", "ledger", "verify-log", "verify-ledger"],
    "prices": ["prices"],
}
"""Commands by module. The command ``verify-log`` is the function ``verify_log_command``."""
COMMANDS: LazyImportTable[click.Command] = LazyImportTable(
    {
        name: f"proxy.cli.{module}:{name.replace('-', '_')}_command"
        for module, names in MODULES.items()
        for name in names
    }
)


class LazyCommands(click.Group):
    """Group of the commands in ``COMMANDS``. Imports a command when it is used."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. If the policies are invalid, print all problems and exit with code 1."""
        try:
            return super().invoke(ctx)
        except PolicyError as error:
            click.echo(str(error), err=True)
            raise SystemExit(1) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command. Garbage collection while importing would take a fifth of the start."""
        gc.disable()
        try:
            with suppress_certificate_loading():
                return COMMANDS.get(cmd_name)
        finally:
            gc.enable()


@click.group(cls=LazyCommands)
@click.version_option(__version__, prog_name="headrace")
def main() -> None:
    """Headrace: an observability and policy proxy for LLM calls."""
