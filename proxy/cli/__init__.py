"""The command line: parse arguments, call one function each, return an exit code."""

from __future__ import annotations

import click

from proxy import __version__
from proxy.cli.ledger import ledger_group, usage_command, verify_command, verify_log_command
from proxy.cli.new_folder import init_command
from proxy.cli.policies import (
    check,
    diff_command,
    explain_command,
    key,
    metrics_command,
    schema_command,
    test_command,
)
from proxy.cli.prices import prices_group
from proxy.cli.serve import demo_command, serve


@click.group()
@click.version_option(__version__, prog_name="headrace")
def main() -> None:
    """Headrace: an observability and policy proxy for LLM completion calls."""


for command in (
    serve,
    demo_command,
    init_command,
    check,
    explain_command,
    test_command,
    diff_command,
    schema_command,
    metrics_command,
    key,
    usage_command,
    ledger_group,
    verify_log_command,
    verify_command,
    prices_group,
):
    main.add_command(command)
