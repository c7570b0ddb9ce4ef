"""The command line."""

from __future__ import annotations

import gc
from typing import Any

import click

from proxy import __version__
from proxy.policy.files.source import PolicyError
from proxy.runtime.lazy import LazyImportTable
from proxy.settings import suppress_certificate_loading

COMMANDS: LazyImportTable[click.Command] = LazyImportTable(
    {
        "serve": "proxy.cli.serve:serve_command",
        "demo": "proxy.cli.demo:demo_command",
        "init": "proxy.cli.new_folder:init_command",
        "migrate": "proxy.cli.new_folder:migrate_command",
        "check": "proxy.cli.policies:check_command",
        "explain": "proxy.cli.policies:explain_command",
        "test": "proxy.cli.policies:test_command",
        "diff": "proxy.cli.policies:diff_command",
        "schema": "proxy.cli.policies:schema_command",
        "metrics": "proxy.cli.policies:metrics_command",
        "key": "proxy.cli.new_folder:key_command",
        "usage": "proxy.cli.ledger:usage_command",
        "ledger": "proxy.cli.ledger:ledger_group",
        "verify-log": "proxy.cli.ledger:verify_log_command",
        "verify-ledger": "proxy.cli.ledger:verify_ledger_command",
        "prices": "proxy.cli.prices:prices_group",
    }
)
"""Commands by name. A command is imported when it is used."""


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
