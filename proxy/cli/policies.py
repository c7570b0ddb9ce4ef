"""Commands that check, explain, test and compare policies."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import click
import orjson

from proxy import settings
from proxy.cli.parameters import DATETIME_FORMATS, FOLDER_PARAM, format_option, policies_option
from proxy.dialects.wire import strict_json
from proxy.errors import ProxyError
from proxy.errors.words import quote
from proxy.policy import schema
from proxy.policy.catalog import list_labels
from proxy.policy.compile import compile_policies
from proxy.policy.files.load import load_policies_with_problems
from proxy.policy.files.source import PolicyError
from proxy.policy.files.validation import describe_unknown_name
from proxy.policy.review import diff
from proxy.policy.review.check import FORMATS, check_folder
from proxy.policy.review.explain import explain_future_call
from proxy.policy.review.sample_call import (
    CHAT_PATH,
    build_sample_call,
    guess_request_path,
    make_chat_body,
)
from proxy.policy.store import read_folder
from proxy.policytest import report, run_cases
from proxy.policytest.cases import Suite
from proxy.telemetry.catalog.table import describe_series_bounds


@click.command("check")
@click.argument("folder", type=FOLDER_PARAM)
@click.option("--strict", is_flag=True, help="Exit 1 on warnings too.")
@click.option(
    "--no-secrets", is_flag=True, help="Do not read variables and files of secrets (for CI)."
)
@format_option(FORMATS)
def check_command(folder: Path, strict: bool, no_secrets: bool, form: str) -> None:
    """Check policy files for errors and warnings.

    Each line has the form FILE:LINE:COLUMN: PATH: MESSAGE. List items in PATH are numbered from
    0, as in jq: rules[2] is the third rule.

    Exits 1 if there are errors, or with --strict if there are warnings.
    """
    result = check_folder(folder, None if no_secrets else settings.get_environ())
    click.echo(FORMATS[form](result))
    if result.errors or (strict and result.warnings):
        raise SystemExit(1)


@click.command("explain")
@policies_option
@click.option(
    "--key", "key_name", required=True, help="Name of the virtual key that makes the call."
)
@click.option(
    "--deployment",
    help="Deployment to call, by its name as the model. With REQUEST_FILE or --path, by a header.",
)
@click.option(
    "--header", "headers", multiple=True, metavar="NAME:VALUE", help="Request header. Repeatable."
)
@click.option("--path", help="Request path.  [default: derived from the body]")
@click.option(
    "--method", default="POST", show_default=True, metavar="METHOD", help="Request method."
)
@click.option(
    "--at", type=click.DateTime(DATETIME_FORMATS), metavar="TIME", help="UTC.  [default: now]"
)
@format_option(["json", "text"])
@click.argument("request_file", type=click.File("rb"), required=False)
def explain_command(
    policies: Path,
    key_name: str,
    deployment: str | None,
    request_file: IO[bytes] | None,
    **options: Any,
) -> None:
    """Explain a call: deployment, rules, targets, guards, limits.

    REQUEST_FILE holds the JSON body; - reads standard input. Without a file, the body is a short
    chat, or empty if --path is not the chat path. Guards are listed, not evaluated.

    Exits 0 for every call that can be explained, including one that a rule rejects. Exits 1 if
    the policies, the key or the request are invalid.
    """
    headers = dict(map(_parse_header, options["headers"]))
    is_chat = request_file is None and options["path"] in (None, CHAT_PATH)
    if deployment is not None and not is_chat:  # the body of a chat names its deployment
        headers["x-headrace-deployment"] = deployment
    at = (options["at"] or datetime.now(UTC)).replace(tzinfo=UTC)
    snapshot = read_folder(policies, None)
    key = snapshot.find_key(key_name)
    if key is None:
        raise click.ClickException(describe_unknown_name("key", key_name, snapshot.keys))
    path = options["path"]
    if request_file is None and deployment is None and path is None:
        names = ", ".join(sorted(key.deployments))
        message = f"give REQUEST_FILE or --deployment; key {quote(key_name)} may use: {names}"
        raise click.UsageError(message)
    default = make_chat_body(deployment or "") if is_chat else {}
    try:
        body = strict_json.read_json(request_file.read()) if request_file else default
        method = options["method"].upper()
        call = build_sample_call(
            body, headers, at, path, method=method, passthrough=snapshot.passthrough
        )
        if request_file is not None and path is None:
            guessed = guess_request_path(body)
            note = f"note: explaining a call to {guessed}; use --path for another path"
            click.echo(note, err=True)
        explanation = explain_future_call(snapshot, key, call)
    except ProxyError as error:
        raise click.ClickException(str(error)) from None
    data = orjson.dumps(explanation.to_json(), option=orjson.OPT_INDENT_2).decode()
    click.echo(data if options["form"] == "json" else explanation.format_tree())


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise click.BadParameter("must have the form NAME:VALUE", param_hint="--header")
    return name.strip(), value.strip()


@click.command("test")
@click.argument("folder", type=FOLDER_PARAM)
@click.option("--fail-under", type=int, default=0, help="Exit 1 below this coverage, in percent.")
@format_option(report.FORMATS)
def test_command(folder: Path, fail_under: int, form: str) -> None:
    """Run the policy tests in FOLDER/tests offline.

    Exits 1 if a test fails, or if the tests cover fewer rules and deployments than --fail-under.
    """
    result = run_cases(folder)
    click.echo(report.FORMATS[form](result))
    if result.failed_count or result.coverage_percent < fail_under:
        raise SystemExit(1)


@click.command("diff")
@click.argument("old", type=FOLDER_PARAM)
@click.argument("new", type=FOLDER_PARAM)
@click.option("--calls", type=click.File("rb"), help="Call log with recorded calls, as JSON lines.")
def diff_command(old: Path, new: Path, calls: IO[bytes] | None) -> None:
    """List the changes from policy folder OLD to NEW.

    With --calls, also list which recorded calls NEW would decide differently.
    """
    loaded = load_policies_with_problems(old), load_policies_with_problems(new)
    problems, snapshots = [], []
    for folder, policies in zip((old, new), loaded, strict=True):
        try:
            snapshots.append(compile_policies(policies, None))
        except PolicyError as error:
            problems += [f"{folder / str(problem)}" for problem in error.problems]
    if problems:
        click.echo("\n".join(problems), err=True)
        raise SystemExit(1)
    changes = list(diff.list_changes(loaded[0].policies, loaded[1].policies))
    click.echo("\n".join(changes) or "no changes")
    if calls is not None:
        result = diff.replay_calls(snapshots[0], snapshots[1], calls)
        click.echo("\n".join(result.format_lines()))
        if not result.calls and result.skipped.keys() <= {diff.NO_CALL}:
            message = f"{calls.name} contains no calls; it must be a call log in JSON lines"
            raise click.ClickException(message)


@click.command("schema")
@click.option("--tests", is_flag=True, help="Print the schema of policy tests instead.")
def schema_command(tests: bool) -> None:
    """Print the JSON Schema of policy files, for editors."""
    document = (
        schema.build_schema(Suite, "Headrace policy tests") if tests else schema.build_json_schema()
    )
    click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())


@click.command("metrics")
@click.argument("folder", type=FOLDER_PARAM, default="policies")
def metrics_command(folder: Path) -> None:
    """List all metrics and their maximum number of series.

    The maximum depends on the policies in FOLDER.
    """
    labels = list_labels(read_folder(folder, None))
    click.echo("\n".join(describe_series_bounds(labels)))
