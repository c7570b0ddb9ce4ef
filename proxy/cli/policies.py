"""What operators ask about policies, and keys for them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import click
import orjson

from proxy import settings
from proxy.cli.parameters import FOLDER, MOMENTS, PolicyName
from proxy.dialects import strict
from proxy.emit import declared
from proxy.errors import ProxyError
from proxy.policy.compile.compiler import compile_policies
from proxy.policy.files.load import read
from proxy.policy.files.source import PolicyError
from proxy.policy.label_catalog import roster
from proxy.policy.review import check_report, diff, editor, new_key
from proxy.policy.review.explain import explain_of_key
from proxy.policy.review.sample_call import CHAT, example, path_of, suppose
from proxy.policy.store import read_folder
from proxy.policytest import report, run_cases
from proxy.policytest.cases import Suite

HERE = Path("policies")


@click.command()
@click.argument("folder", type=FOLDER)
@click.option("--strict", is_flag=True, help="Let warnings fail too.")
@click.option(
    "--no-secrets", is_flag=True, help="Read no variables and files of secrets, as in CI."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(sorted(check_report.FORMS)),
    default="text",
    show_default=True,
)
def check(folder: Path, strict: bool, no_secrets: bool, form: str) -> None:
    """List everything that is wrong or doubtful in a folder of policy files.

    Items of lists are counted from 0, as yq and jq do: rules.2 is the third rule. Exits 1 if
    anything is wrong, or with --strict if anything is doubtful.
    """
    found = check_report.check(folder, None if no_secrets else settings.environment())
    click.echo(check_report.FORMS[form](found))
    if found.errors or (strict and found.warnings):
        raise SystemExit(1)


@click.command("explain")
@click.option("--policies", type=FOLDER, default="policies", show_default=True)
@click.option("--key", "name", required=True, help="The name of a virtual key.")
@click.option("--deployment", help="The deployment that the call names.")
@click.option("--header", "headers", multiple=True, metavar="NAME:VALUE", help="May be repeated.")
@click.option("--path", help="The route; by the body where it is left out.")
@click.option("--method", default="POST", show_default=True, metavar="METHOD")
@click.option("--at", type=click.DateTime(MOMENTS), help="When it comes, in UTC; now.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@click.argument("request_file", type=click.File("rb"), required=False)
def explain_command(
    policies: Path,
    name: str,
    deployment: str | None,
    request_file: IO[bytes] | None,
    **options: Any,
) -> None:
    """Show what would become of a call, and why: which rules apply, and why others do not.

    REQUEST_FILE holds the body, - for standard input; a greeting where it is left out, or nothing
    where --path is another one than a chat's. Guards are listed, and not played.

    Exits 0 for a call that a rule refuses, too, and 1 where there is nothing to explain.
    """
    headers = dict(_header(each) for each in options["headers"])
    if deployment is not None:
        headers["x-headrace-deployment"] = deployment
    at = (options["at"] or datetime.now(UTC)).replace(tzinfo=UTC)
    try:
        snapshot = read_folder(policies, None)
        key = snapshot.key_named(name)
        if key is None:
            raise click.ClickException(f"there is no key {name!r}")
        path = options["path"]
        if request_file is None and deployment is None and path is None:
            served = ", ".join(sorted(key.deployments))
            raise click.UsageError(f"say REQUEST_FILE or --deployment; {name} may use {served}")
        unsaid = example(deployment or "") if path in (None, CHAT) else {}
        body = strict.read_json(request_file.read()) if request_file else unsaid
        way = {"method": options["method"].upper(), "passed": snapshot.passthrough}
        call = suppose(body, headers, at, path, **way)
        if request_file is not None and path is None:
            click.echo(f"taken for a call of {path_of(body)}; --path says another", err=True)
        explanation = explain_of_key(snapshot, key, call)
    except (PolicyError, ProxyError) as error:
        raise click.ClickException(str(error)) from None
    data = orjson.dumps(explanation.data(), option=orjson.OPT_INDENT_2).decode()
    click.echo(data if options["form"] == "json" else explanation.text())


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise click.BadParameter("must be NAME:VALUE", param_hint="--header")
    return name.strip(), value.strip()


@click.command("test")
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
        found = run_cases(folder)
    except PolicyError as error:
        click.echo(str(error), err=True)
        raise SystemExit(1) from None
    click.echo(report.FORMS[form](found))
    if found.failed or found.coverage < fail_under:
        raise SystemExit(1)


@click.command("diff")
@click.argument("old", type=FOLDER)
@click.argument("new", type=FOLDER)
@click.option("--calls", type=click.File("rb"), help="Recorded calls: lines of the call log.")
def diff_command(old: Path, new: Path, calls: IO[bytes] | None) -> None:
    """List what changes from the policies of OLD to those of NEW, and for recorded calls."""
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
    changes = list(diff.changes(loaded[0].policies, loaded[1].policies))
    click.echo("\n".join(changes) or "nothing changes")
    if calls is not None:
        replayed = diff.replay(before, after, calls)
        click.echo("\n".join(replayed.lines()))
        if not replayed.calls + replayed.unknown + replayed.unasked:
            raise click.ClickException(f"{calls.name} has no line that is a call")


@click.command("schema")
@click.option("--tests", is_flag=True, help="Of the files under tests/ instead.")
def schema_command(tests: bool) -> None:
    """Print the JSON Schema of the policy files, for editors."""
    document = editor.schema_of(Suite, "Headrace policy tests") if tests else editor.json_schema()
    click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


@click.command("metrics")
@click.argument("folder", type=FOLDER, default="policies")
def metrics_command(folder: Path) -> None:
    """List every metric, with the most series that it can have under the policies of FOLDER."""
    try:
        known = roster(read_folder(folder, None))
    except PolicyError as error:
        raise click.ClickException(str(error)) from None
    click.echo("\n".join(declared.bounds(known)))


@click.command()
@click.argument("name", type=PolicyName())
@click.option(
    "--deployment",
    "deployments",
    type=PolicyName(),
    multiple=True,
    help="It may call; may be repeated.",
)
@click.option("--policies", type=FOLDER, help="Folder of policy files; policies, if it is there.")
def key(name: str, deployments: tuple[str, ...], policies: Path | None) -> None:
    """Draw a virtual key: the secret to hand out, and the lines for keys.yaml.

    Where no --deployment is given, they name all deployments of the policies.
    """
    if policies is None and HERE.is_dir():
        policies = HERE
    if policies is None and not deployments:
        raise click.UsageError(f"there is no folder {HERE}: say --deployment or --policies")
    try:
        known = read_folder(policies, None).deployments if policies else deployments
        text, lines = new_key.draw(name, deployments, known)
    except (PolicyError, ValueError) as error:
        raise click.ClickException(f"{policies}: {error}") from None
    click.echo(f"{text}\n", err=True)
    click.echo(lines)
