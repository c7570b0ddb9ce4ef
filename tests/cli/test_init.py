"""Commands of ``headrace`` in their own processes."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sqlite3
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, chdir, closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from proxy.cli import main
from proxy.ledger.spending import COLUMN_BY_DIMENSION
from proxy.policy.review.check import check_folder
from tests.cli.forked import forked
from tests.conftest import policies_for
from tests.doubles import (
    PATIENCE_S,
    ScriptedUpstream,
    hang,
    legacy_completion,
    legacy_events,
    respond,
    stream,
)
from tests.for_each import for_each
from tests.test_pipeline import BEARER, ROUTES

TOP = Path(__file__).parents[2]
ROUTE = ROUTES["openai"]
ENVIRON = {"UPSTREAM_KEY": "sk-upstream-secret", "PATH": "/usr/bin:/bin"}
FREE = "127.0.0.1:0"


async def headrace(*arguments: str, **environ: str) -> tuple[int, str]:
    """Run a command. Return its exit code and output."""
    return await forked(arguments, {**ENVIRON, **environ})


async def start(*arguments: str, **environ: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "proxy",
        *arguments,
        cwd=TOP,
        env={**ENVIRON, **environ},
        stdout=PIPE,
        stderr=STDOUT,
    )


class Served:
    """A running ``headrace serve`` and its log lines."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    async def line(self, event: str) -> dict[str, Any]:
        """Wait for the next log line of an event."""
        assert self.process.stdout is not None
        async with asyncio.timeout(20):
            while True:
                raw = await self.process.stdout.readline()
                assert raw, self.lines
                self.lines.append(json.loads(raw))
                if self.lines[-1]["event"] == event:
                    return self.lines[-1]


@asynccontextmanager
async def serving(folder: Path, policies: str, **environ: str) -> AsyncIterator[tuple[Served, str]]:
    folder.mkdir()
    (folder / "policies.yaml").write_text(policies)
    arguments = ("serve", "--policies", str(folder), "--listen", FREE, "--admin-listen", FREE)
    served = Served(await start(*arguments, **environ))
    try:
        listening = await served.line("listening")
        yield served, f"http://{listening['address']}"
    finally:
        if served.process.returncode is None:
            served.process.kill()
        await served.process.communicate()  # a full pipe would block it


async def test_check_has_strict_and_json_modes(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("tags: {team: [support]}\nkeys: {}\n")

    lenient, text = await headrace("check", str(tmp_path))
    strict, listed = await headrace("check", str(tmp_path), "--strict", "--format", "json")
    _, marked = await headrace("check", str(tmp_path), "--format", "github")

    assert (lenient, strict) == (0, 1)
    assert "x.yaml:1:8: warning: tags.team: is never set" in text
    assert json.loads(listed)["problems"][0] == {
        "severity": "warning",
        "file": "x.yaml",
        "line": 1,
        "column": 8,
        "path": "tags.team",
        "message": "is never set: no deployment or key sets it, and clients may not set it. "
        'Remove it, or add "caller: true".',
    }
    assert marked.startswith(
        f"::warning file={tmp_path}/x.yaml,line=1,col=8::tags.team: is never set"
    )
    (tmp_path / "x.yaml").write_text("upstream: {}\n")
    code, problems = await headrace("check", str(tmp_path))
    assert code == 1
    assert problems.startswith('x.yaml:1:1: upstream: unknown key. Did you mean "upstreams"?\n')
    assert problems.endswith(": invalid, 1 error\n")


CHOSEN = [(), ("support-chat",) * 2, ("support-chat", "search-answers")]


@pytest.mark.parametrize("chosen", CHOSEN)
def test_generated_key_passes_check(chosen: tuple[str, ...], tmp_path: Path) -> None:
    keyless = re.sub(
        r"(?s)\nkeys:.*?\ndeployments:", "\ndeployments:", policies_for("https://x.test")
    )
    (tmp_path / "policies.yaml").write_text(keyless)
    flags = [part for name in chosen for part in ("--deployment", name)]

    result = CliRunner().invoke(main, ["key", "new", *flags, "--policies", str(tmp_path)])
    (tmp_path / "keys.yaml").write_text(result.stdout)
    report = check_folder(tmp_path, None)

    assert result.exit_code == 0
    assert report.errors == ()
    assert report.summary.endswith("1 key)")
    assert f"deployments: [{', '.join(dict.fromkeys(chosen))}" in result.stdout


@pytest.mark.parametrize(
    ("policies", "flags", "reason"),
    [
        ("tags: {}\n", [], "no deployment that a key could call"),
        (policies_for("https://x.test"), ["--deployment", "nowhere"],
            'deployment "nowhere" does not exist'),
        ("upstream: {}\n", [], '. Did you mean "upstreams"?'),
    ],
)  # fmt: skip
def test_invalid_key_is_not_generated(
    policies: str, flags: list[str], reason: str, tmp_path: Path
) -> None:
    (tmp_path / "policies.yaml").write_text(policies)

    result = CliRunner().invoke(main, ["key", "new", *flags, "--policies", str(tmp_path)])

    assert result.exit_code != 0
    assert reason in result.output
    assert "hr-" not in result.output


def test_key_with_deployments_needs_no_folder(tmp_path: Path) -> None:
    with chdir(tmp_path):
        result = CliRunner().invoke(main, ["key", "new", "--deployment", "support-chat"])
        unnamed = CliRunner().invoke(main, ["key", "new"])
        wrong = CliRunner().invoke(main, ["key", "new", "--deployment", "a", "--policies", "mine"])
        no_name = CliRunner().invoke(main, ["key", "new", "--deployment", "a, b"])

    assert result.exit_code == 0, result.output
    assert "deployments: [support-chat]" in result.stdout
    secret, _, advice = result.stderr.partition("\n\n")
    assert secret.startswith("hr-")
    assert advice.startswith("Save the key above")
    assert (unnamed.exit_code, "--deployment or --policies" in unnamed.output) == (2, True)
    assert (wrong.exit_code, "'mine' does not exist" in wrong.output) == (2, True)
    assert (no_name.exit_code, "hr-" in no_name.output) == (2, False)


@for_each(
    ("arguments", "environ", "message"),
    [
        (("serve", "--policies", "policies", "--listen", "8080"), {}, "HOST:PORT"),
        (("serve", "--policies", "nowhere"), {}, "Create it with `headrace init nowhere`."),
        (("demo", "--policies", "nowhere"), {}, "Run the demo in a checkout of Headrace"),
        (("serve", "--policies", "policies"), {"HEADRACE_TRACE_RATIO": "x"}, "TRACE_RATIO"),
        (("serve", "--policies", "policies", "--listen", FREE, "--admin-listen", FREE),
            {"AIOHTTP_NO_EXTENSIONS": "1"}, "without its C parser"),
    ],
)  # fmt: skip
async def test_failed_start_has_a_reason(
    arguments: tuple[str, ...], environ: dict[str, str], message: str
) -> None:
    process = await start(*arguments, **environ)  # a new process, because imports matter
    out, _ = await process.communicate()

    assert process.returncode != 0
    text = out.decode()
    assert message in text
    assert "Traceback" not in text


async def test_metrics_are_listed_with_series_bounds() -> None:
    code, text = await headrace("metrics", "policies")

    lines = text.splitlines()
    assert code == 0
    assert any(line.startswith("headrace_requests_total") and "outcome" in line for line in lines)
    maximum, begin = re.findall(r"\d+", lines[-1])
    assert 0 < int(begin) < int(maximum) < 50_000


@for_each(
    ("policy", "flags", "environ", "message"),
    [
        ("keys: {demo: {sha256: abc}}\n", [], {},
            'x.yaml:1:8: keys.demo: required key "deployments" is missing'),
        (policies_for("http://127.0.0.1:1"), [], {"HEADRACE_DRAIN_SECOND": "5"},
            "HEADRACE_DRAIN_SECOND is not a known variable (did you mean HEADRACE_DRAIN_SECONDS?)"),
        ("keys: {}\n", ["--policies", "policies", "--listen", "0.0.0.0:0", "--admin-listen", FREE],
            {}, "keys.demo is the public key of the demo"),
    ],
)  # fmt: skip
async def test_invalid_setup_prevents_start(
    policy: str, flags: list[str], environ: dict[str, str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "x.yaml").write_text(policy)

    code, text = await headrace("serve", "--policies", str(tmp_path), *flags, **environ)

    assert (code, message in text) == (1, True), text


async def test_serve_answers_and_logs(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with (
        serving(tmp_path / "p", policies_for(upstream.url)) as (served, url),
        aiohttp.ClientSession() as client,
    ):
        async with client.post(
            url + ROUTE.path, headers=BEARER, json=ROUTE.body(streamed=False)
        ) as response:
            assert response.status == 200
        line = await served.line("call")

    assert (line["deployment"], line["outcome"], line["cost_usd"]) == (
        "support-chat",
        "success",
        0.00000255,
    )
    assert line["tokens"] == {"input": 5, "output": 3}
    log = json.dumps(served.lines)
    secrets = ("capital", "Paris", "hr-test-key", "sk-upstream")
    assert [secret for secret in secrets if secret in log] == []


FILES = ("HEADRACE_LEDGER=sqlite:", "HEADRACE_LEDGER=jsonl:", "HEADRACE_CACHE_FILE=")


def create_other_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.executescript("CREATE TABLE invoices (id)")


PLACES: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "in no folder": lambda path: None,
    "notes": lambda path: path.write_text("not ours\n"),
    "a database": create_other_database,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("variable", [*FILES, "HEADRACE_DECISION_LOG="])
async def test_unusable_file_names_its_variable(variable: str, place: str, tmp_path: Path) -> None:
    path = tmp_path / "no" / "where" if place == "in no folder" else tmp_path / "there"
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "policies.yaml").write_text(policies_for("http://127.0.0.1:1"))
    PLACES[place](path)
    data_before = path.read_bytes() if path.is_file() else None
    name, _, kind = variable.partition("=")
    ports = ("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
    variables = {name: f"{kind}{path}", "HEADRACE_SECRET": "0123456789abcdef"}

    code, text = await headrace("serve", "--policies", str(policies), *ports, **variables)

    assert code == 1
    assert f"Error: {name}: {path} " in text
    assert "Traceback" not in text
    assert (path.read_bytes() if path.is_file() else None) == data_before
    assert [item for item in tmp_path.iterdir() if item.name not in ("there", "policies")] == []


async def test_stop_drains_active_calls(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()
    upstream.answer_with(stream(legacy_events(" Par", "is."), gate=gate))
    async with (
        serving(tmp_path / "p", policies_for(upstream.url)) as (served, url),
        aiohttp.ClientSession() as client,
    ):
        response = await client.post(
            url + ROUTE.path, headers=BEARER, json=ROUTE.body(streamed=True)
        )
        await response.content.readany()
        served.process.send_signal(signal.SIGTERM)
        stopping = await served.line("stopping")
        gate.set()
        remainder = await response.read()
        line = await served.line("call")
        code = await asyncio.wait_for(served.process.wait(), PATIENCE_S)
        stopped = await served.line("stopped")

    assert remainder.endswith(b"data: [DONE]\n\n")
    assert stopping["drain_seconds"] == 30
    assert 0 < stopped["seconds"] < 30
    assert (line["outcome"], code) == ("success", 0)


async def test_stop_aborts_hanging_calls(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.then(respond(legacy_completion()), hang())
    async with (
        serving(tmp_path / "p", policies_for(upstream.url), HEADRACE_DRAIN_SECONDS="0.3") as (
            served,
            url,
        ),
        aiohttp.ClientSession() as client,
    ):
        waiting = asyncio.gather(
            client.post(url + ROUTE.path, headers=BEARER, json=ROUTE.body(streamed=False)),
            client.post(url + ROUTE.path, headers=BEARER, json=ROUTE.body(streamed=False)),
        )
        await served.line("call")
        served.process.send_signal(signal.SIGTERM)
        responses = await waiting
        line = await served.line("call")
        code = await asyncio.wait_for(served.process.wait(), PATIENCE_S)

    assert sorted(response.status for response in responses) == [200, 503]
    assert (line["error"], line["outcome"], code) == ("stopping", "proxy_error", 0)


async def test_kill_frees_the_upstream(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(hang())
    async with (
        serving(tmp_path / "p", policies_for(upstream.url)) as (served, url),
        aiohttp.ClientSession() as client,
    ):
        body = ROUTE.body(streamed=False)
        pending = asyncio.gather(
            client.post(url + ROUTE.path, headers=BEARER, json=body), return_exceptions=True
        )
        async with asyncio.timeout(PATIENCE_S):
            await upstream.arrived.wait()
            served.process.kill()
            [response] = await pending
            await upstream.requests[0].closed.wait()

    assert isinstance(response, aiohttp.ClientError)


@for_each("name", ["bad name!", "", "Upper", "-", "a" * 65])
def test_invalid_key_name_is_rejected(name: str) -> None:
    result = CliRunner().invoke(main, ["key", "--", name])

    assert result.exit_code == 2
    assert "hr-" not in result.output
    assert "is not a valid name" in result.output


def test_usage_help_lists_dimensions() -> None:
    text = CliRunner().invoke(main, ["usage", "--help"]).output

    assert [name for name in COLUMN_BY_DIMENSION if name not in text] == []
