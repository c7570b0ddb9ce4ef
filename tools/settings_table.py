"""Generated tables of docs/settings.md: flags, environment variables and commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from proxy.cli import COMMANDS, main
from proxy.settings import Settings

FLAGS = {
    "--policies": "Policy folder.",
    "--candidate": "Second policy folder, evaluated without effect.",
    "--listen": "Address for clients.",
    "--admin-listen": "Address for metrics, health and administration. Do not expose it publicly.",
}
VARIABLES: dict[str, tuple[str | None, str]] = {
    "HEADRACE_ADMIN_TOKEN": (
        None,
        "Bearer token of the admin port, at least 16 characters. Required unless it listens on"
        " loopback. `/healthz` and `/readyz` need none.",
    ),
    "HEADRACE_ADMIN_HOSTS": (
        None,
        "Host names of the admin port, separated by commas, besides addresses and `localhost`.",
    ),
    "HEADRACE_OTLP_ENDPOINT": (None, "Base URL of a trace collector."),
    "HEADRACE_TRACE_RATIO": (
        "trace_ratio",
        "Share of successful calls that the default sampler considers.",
    ),
    "HEADRACE_CONSOLE": (
        None,
        "`off` removes the [console](console.md) from the admin port. Default: `on`.",
    ),
    "HEADRACE_TRACE_URL": (
        None,
        "Address of a trace in your tracing system, with `{trace_id}` in it, for the console.",
    ),
    "HEADRACE_TRACE_PROFILES": (
        None,
        "Adds attributes for trace backends: `openinference`, `langfuse`.",
    ),
    "HEADRACE_DRAIN_SECONDS": (
        "drain_seconds",
        "Maximum time for running calls after SIGTERM.",
    ),
    "HEADRACE_DRAIN_GRACE_SECONDS": (
        "drain_grace_seconds",
        "Time after SIGTERM in which new calls are accepted and idle connections stay open; at most"
        " the drain time.",
    ),
    "HEADRACE_KEEPALIVE_SECONDS": (
        "keepalive_seconds",
        "Time without a byte after which a stream sends a [keepalive](errors.md#keepalives); half"
        " if the upstream pings. 0 disables it.",
    ),
    "HEADRACE_MAX_BODY_BYTES": (
        "body_bytes",
        "Maximum size of a request; at most half of `HEADRACE_MAX_BODIES_BYTES`.",
    ),
    "HEADRACE_MAX_BODY_VALUES": (
        "body_values",
        "Maximum number of JSON values in a request, and of values in tool arguments that guards"
        " inspect.",
    ),
    "HEADRACE_MAX_BODIES_BYTES": (
        "bodies_bytes",
        "Memory for all active requests (bytes, plus 192 per value). One key may use half. Beyond"
        " it: 503 `overloaded`.",
    ),
    "HEADRACE_MAX_ANSWERS_BYTES": (
        "answers_bytes",
        "Memory for all buffered responses: whole ones, streams held by guards, and streams of"
        " Responses. One key may use half. Beyond it: 503 `overloaded`; the cost is charged.",
    ),
    "HEADRACE_MAX_UPSTREAM_CONNECTIONS": (
        "upstream_connections",
        "Maximum number of connections to all upstreams, and thus of active calls. Each call needs"
        " two file descriptors (`ulimit -n`).",
    ),
    "HEADRACE_CACHE_BYTES": (
        "cache_bytes",
        "Maximum size of each cache store; vectors of similar prompts may use half.",
    ),
    "HEADRACE_CACHE_FILE": (None, "File of the cache store `sqlite`."),
    "HEADRACE_REDIS_URL": (
        None,
        "Redis or Valkey for limit counters and the cache store `redis`; see [Redis](#redis).",
    ),
    "HEADRACE_REPLICAS": (
        "replicas",
        "Number of processes that share Redis: each enforces its share while Redis is away.",
    ),
    "HEADRACE_SETTLE_SECONDS": (
        "settle_seconds",
        "Time without a change after which a policy folder is read; 0.25 to 60.",
    ),
    "HEADRACE_SECRET": (
        None,
        "Secret of at least 16 characters, the same on all replicas. It seals"
        " [Responses ids](dialects.md#stored-responses), keeps [placeholders](guards.md#restore)"
        " stable, and names cache entries. `HEADRACE_CACHE_FILE` and `HEADRACE_REDIS_URL` require"
        " it.",
    ),
    "HEADRACE_SECRETS_ACCEPTED": (
        None,
        "Other secrets whose ids are accepted, separated by commas; see"
        " [rotation](#rotate-the-secret).",
    ),
    "HEADRACE_ID_SECRET": (None, "Overrides `HEADRACE_SECRET` for ids and placeholders."),
    "HEADRACE_CACHE_SECRET": (None, "Overrides `HEADRACE_SECRET` for the cache."),
    "HEADRACE_ID_SECRET_OLD": (None, "Older name of `HEADRACE_SECRETS_ACCEPTED`."),
    "HEADRACE_LEDGER": (
        "off",
        "`off`, `sqlite:PATH` or `jsonl:PATH`; see [ledger.md](ledger.md).",
    ),
    "HEADRACE_LEDGER_KEEP": (
        None,
        "Days that a SQLite ledger keeps rows, such as `90d`. Default: forever.",
    ),
    "HEADRACE_LOG_LEVEL": ("info", "See [logs.md](logs.md)."),
    "HEADRACE_LOG_SCHEMA": ("native", "See [logs.md](logs.md)."),
    "HEADRACE_LOG_RATIO": ("1", "See [logs.md](logs.md)."),
    "HEADRACE_DECISION_LOG": (None, "File of the [decision log](logs.md#decision-log)."),
}
"""Default and description of each variable. A default is a field of ``Settings`` or a text."""


def settings() -> Iterator[str]:
    yield "| flag or variable | default | description |"
    yield "|---|---|---|"
    options = {name: option for option in COMMANDS["serve"].params for name in option.opts}
    for name, text in FLAGS.items():
        default = options[name].default
        yield f"| `{name}` | {default if isinstance(default, str) else ''} | {text} |"
    fields = Settings(Path())
    for name, (field, text) in VARIABLES.items():
        default = getattr(fields, field, field) if field else ""
        formatted = f"{default:g}" if isinstance(default, float) else str(default)
        yield f"| `{name}` | {formatted} | {text} |"


def commands() -> Iterator[str]:
    yield "| command | description |"
    yield "|---|---|"
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        if isinstance(command, click.Group):
            group = click.Context(command)
            for subname in command.list_commands(group):
                subcommand = command.get_command(group, subname)
                yield f"| `headrace {name} {subname}` | {_help(subcommand)} |"
        else:
            yield f"| `headrace {name}` | {_help(command)} |"


def _help(command: click.Command | None) -> str:
    return command.get_short_help_str(120) if command else ""
