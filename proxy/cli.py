"""The command line: parse arguments, call one function each, give an exit code."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import re
import signal
from collections.abc import Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import click
import orjson
import uvloop

from proxy import __version__, app, demo, settings
from proxy.dialects import strict
from proxy.edge import WeakParser
from proxy.emit import chain, declared
from proxy.errors import ProxyError
from proxy.ledger import audit, now_ms, shown, spending, sqlite
from proxy.ledger.store import Unusable, Unwritten
from proxy.policy import diff, editor, new_key, verdict
from proxy.policy.compile import compile_policies
from proxy.policy.explain import explain_of_key
from proxy.policy.load import read
from proxy.policy.roster import roster
from proxy.policy.schema.scalars import NAME
from proxy.policy.source import PolicyError
from proxy.policy.store import read_folder
from proxy.policy.suppose import example, suppose
from proxy.policy.units import duration
from proxy.prices.commands import prices_group
from proxy.rehearsal import rehearse, report
from proxy.rehearsal.cases import Suite
from proxy.settings import Address, BadSetting, Settings

MOMENTS = ("%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d")
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Listen(click.ParamType[Address]):
    """``HOST:PORT``."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: Any, ctx: Any) -> Address:
        try:
            return value if isinstance(value, Address) else settings.address(value)
        except BadSetting as error:
            self.fail(str(error), param, ctx)


class KeyName(click.ParamType[str]):
    """A name that `keys:` may have."""

    name = "NAME"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        if not re.fullmatch(NAME, value):
            said = "a key's name is of lower case letters, digits, '.', '_' and '-'"
            self.fail(f"{value!r}: {said}, begins with a letter or digit, at most 64", param, ctx)
        return str(value)


class Moment(click.ParamType[datetime]):
    """How long ago, such as ``30d``, or a UTC time."""

    name = "30d|DATE"

    def convert(self, value: Any, param: Any, ctx: Any) -> datetime:
        try:
            return datetime.now(UTC) - timedelta(seconds=duration(value))
        except (ValueError, OverflowError):
            return click.DateTime(MOMENTS).convert(value, param, ctx).replace(tzinfo=UTC)


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
@click.option("--candidate", type=FOLDER, help="Folder to decide beside it, without effect.")
@listen_option
@admin_option
def serve(policies: Path, candidate: Path | None, listen: Address, admin_listen: Address) -> None:
    """Serve calls under the policies of a folder."""
    _run(_serve(replace(_settings(policies, listen, admin_listen), candidate=candidate)))


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
    "--no-secrets", is_flag=True, help="Read no variables and files of secrets, as in CI."
)
@click.option(
    "--format", "form", type=click.Choice(sorted(verdict.FORMS)), default="text", show_default=True
)
def check(folder: Path, strict: bool, no_secrets: bool, form: str) -> None:
    """Say everything that is wrong or doubtful in a folder of policy files.

    Exits 1 if anything is wrong, or with --strict if anything is doubtful.
    """
    found = verdict.judge(folder, None if no_secrets else settings.environment())
    click.echo(verdict.FORMS[form](found))
    if found.errors or (strict and found.warnings):
        raise SystemExit(1)


@main.command("explain")
@click.option("--policies", type=FOLDER, default="policies", show_default=True)
@click.option("--key", "name", required=True, help="The name of a virtual key.")
@click.option("--deployment", help="The deployment that the call names.")
@click.option("--header", "headers", multiple=True, metavar="NAME:VALUE", help="May be repeated.")
@click.option("--path", help="The route; by the body where it is left out.")
@click.option("--at", type=click.DateTime(MOMENTS), help="When it comes, in UTC; now.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@click.argument("request_file", type=click.File("rb"), required=False)
def explain_command(
    policies: Path, name: str, deployment: str | None, request_file: IO[bytes] | None, **said: Any
) -> None:
    """Say what would become of a call, and why: which rules apply, and why others do not.

    REQUEST_FILE holds the body, - for standard input; a greeting where it is left out.
    """
    headers = dict(_header(each) for each in said["headers"])
    if deployment is not None:
        headers["x-headrace-deployment"] = deployment
    at = (said["at"] or datetime.now(UTC)).replace(tzinfo=UTC)
    try:
        snapshot = read_folder(policies, None)
        key = snapshot.key_named(name)
        if key is None:
            raise click.ClickException(f"there is no key {name!r}")
        if request_file is None and deployment is None:
            served = ", ".join(sorted(key.deployments))
            raise click.UsageError(f"say REQUEST_FILE or --deployment; {name} may use {served}")
        body = strict.read_json(request_file.read()) if request_file else example(deployment or "")
        told = explain_of_key(snapshot, key, suppose(body, headers, at, said["path"]))
    except (PolicyError, ProxyError) as error:
        raise click.ClickException(str(error)) from None
    data = orjson.dumps(told.data(), option=orjson.OPT_INDENT_2).decode()
    click.echo(data if said["form"] == "json" else told.text())


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise click.BadParameter("must be NAME:VALUE", param_hint="--header")
    return name.strip(), value.strip()


@main.command("test")
@click.argument("folder", type=FOLDER)
@click.option("--fail-under", type=int, default=0, help="Percent of the policies to be covered.")
@click.option(
    "--format", "form", type=click.Choice(sorted(report.FORMS)), default="text", show_default=True
)
def test_command(folder: Path, fail_under: int, form: str) -> None:
    """Play the tests under FOLDER/tests against the policies of FOLDER, offline.

    Exits 1 if any fails, or if they cover less of the rules and deployments than asked for.
    """
    try:
        found = rehearse(folder)
    except PolicyError as error:
        click.echo(str(error), err=True)
        raise SystemExit(1) from None
    click.echo(report.FORMS[form](found))
    if found.failed or found.coverage < fail_under:
        raise SystemExit(1)


@main.command("diff")
@click.argument("old", type=FOLDER)
@click.argument("new", type=FOLDER)
@click.option("--calls", type=click.File("rb"), help="Recorded calls: lines of the call log.")
def diff_command(old: Path, new: Path, calls: IO[bytes] | None) -> None:
    """Say what changes from the policies of OLD to those of NEW, and for recorded calls."""
    wrong, loaded = [], (read(old), read(new))
    snapshots = []
    for folder, each in zip((old, new), loaded, strict=True):
        try:
            snapshots.append(compile_policies(each, None))
        except PolicyError as error:
            wrong += [f"{folder / str(problem)}" for problem in error.problems]
    if wrong:
        click.echo("\n".join(wrong), err=True)
        raise SystemExit(1)
    before, after = snapshots
    said = list(diff.changes(loaded[0].policies, loaded[1].policies))
    click.echo("\n".join(said) or "nothing changes")
    if calls is not None:
        replayed = diff.replay(before, after, calls)
        click.echo("\n".join(replayed.lines()))
        if not replayed.calls + replayed.unknown:
            raise click.ClickException(f"{calls.name} has no line that is a call")


@main.command("schema")
@click.option("--tests", is_flag=True, help="Of the files under tests/ instead.")
def schema_command(tests: bool) -> None:
    """Print the JSON Schema of the policy files, for editors."""
    said = editor.schema_of(Suite, "Headrace policy tests") if tests else editor.json_schema()
    click.echo(orjson.dumps(said, option=orjson.OPT_INDENT_2).decode())


@main.command("metrics")
@click.argument("folder", type=FOLDER, default="policies")
def metrics_command(folder: Path) -> None:
    """List every metric, with the most series that it can have under the policies of FOLDER."""
    try:
        known = roster(read_folder(folder, None))
    except PolicyError as error:
        raise click.ClickException(str(error)) from None
    click.echo("\n".join(declared.bounds(known)))


@main.command()
@click.argument("name", type=KeyName())
@click.option("--deployment", "deployments", multiple=True, help="It may call; may be repeated.")
@click.option("--policies", type=FOLDER, default="policies", show_default=True)
def key(name: str, deployments: tuple[str, ...], policies: Path) -> None:
    """Draw a virtual key: the secret to hand out, and the lines for keys.yaml.

    Where no --deployment is given, they name all deployments of the policies.
    """
    try:
        text, lines = new_key.draw(name, deployments, read_folder(policies, None).deployments)
    except (PolicyError, ValueError) as error:
        raise click.ClickException(f"{policies}: {error}") from None
    click.echo(f"{text}\n", err=True)
    click.echo(lines)


@main.command("usage")
@click.argument("path", metavar="LEDGER", type=FILE)
@click.option(
    "--by", multiple=True, metavar="DIMENSION", help="May be repeated; see docs/ledger.md."
)
@click.option("--since", type=Moment(), default="30d", show_default=True)
@click.option("--until", type=Moment(), help="Now, where it is left out.")
@click.option("--format", "form", type=click.Choice(sorted(shown.FORMS)), default="table")
def usage_command(
    path: Path, by: tuple[str, ...], since: datetime, until: datetime | None, form: str
) -> None:
    """Sum up what was used and spent: tag.NAME, key, deployment, model, provider, upstream, money,
    loss or day."""
    try:
        spent = spending.spent(path, by, since, until or datetime.now(UTC))
    except Unusable as error:
        raise click.ClickException(error.reason) from None
    click.echo(shown.FORMS[form](spent))


@main.group("ledger")
def ledger_group() -> None:
    """Look after a ledger."""


@ledger_group.command("prune")
@click.argument("path", metavar="LEDGER", type=FILE)
@click.option("--before", "--keep", "before", type=Moment(), required=True)
def prune_command(path: Path, before: datetime) -> None:
    """Let the rows of old calls go: of those before a day, or older than 90d.

    Rows of this month and week stay, as budgets may need them. What goes stays counted.
    """
    try:
        gone = sqlite.pruned(path, int(before.timestamp() * 1000), now_ms())
    except Unwritten as error:
        raise click.ClickException(f"{path} cannot be pruned: {error.reason}") from None
    click.echo(shown.pruned_text(gone, before))


main.add_command(prices_group)


@main.command("verify-log")
@click.argument("path", metavar="FILE", type=FILE)
@click.option("--holds", multiple=True, metavar="HASH", help="A hash that must be in it.")
def verify_log_command(path: Path, holds: tuple[str, ...]) -> None:
    """Check a decision log. Exits 1 and names the first line that is not as it was written."""
    found = chain.verify(path, holds)
    click.echo(found.text())
    if found.broken is not None:
        raise SystemExit(1)


@main.command("verify-ledger")
@click.argument("path", metavar="LEDGER", type=FILE)
@click.option(
    "--known-missing",
    type=click.IntRange(min=0),
    default=0,
    help="So many calls in no row are known of, as after a crash.",
)
def verify_command(path: Path, known_missing: int) -> None:
    """Check that every call has its row and every row its call. Exits 1 on a violation.

    A ledger that a proxy writes is given some seconds to catch up.
    """
    try:
        found = audit.audit(path, known_missing)
    except Unusable as error:
        raise click.ClickException(error.reason) from None
    click.echo(found.text())
    if found.violations:
        raise SystemExit(1)


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
    except (demo.NoModel, Unusable, WeakParser, BadSetting) as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"cannot listen on {error}") from None


def _keep_published_key_here(chosen: Settings) -> None:
    """Refuse to serve beyond this machine with the key that everybody knows."""
    if chosen.listen.loopback:
        return
    digest = hashlib.sha256(demo.KEY.encode()).digest()
    found = read_folder(chosen.policies, chosen.environ).credentials.get(digest)
    if found is not None:
        raise click.ClickException(
            f"keys.{found.key.name} is the published key of the demo: take it out of the policies, "
            f"or listen on 127.0.0.1"
        )


async def _serve(chosen: Settings) -> None:
    _keep_published_key_here(chosen)
    async with app.running(chosen) as running:
        _settle_memory()
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, running.watch.hurry)
        await _until_stopped()


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
