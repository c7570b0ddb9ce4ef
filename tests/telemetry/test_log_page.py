"""docs/logs.md against lines of a real process: all that they hold is told, and nothing else."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from proxy.app.context import new_record
from proxy.telemetry.lines import line_logger
from proxy.telemetry.log import CallLog, LogLevel
from tests.cli.test_init import serving
from tests.conftest import world
from tests.doubles import ScriptedUpstream, answer
from tests.test_pipeline import BEARER, ROUTES

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs/logs.md").read_text()
STARTS = {"{subject}": ("policy", "candidate")}
ENDS: dict[str, tuple[str, ...]] = {}


COMMON = {"time", "level", "event"}
LIMITED = """
policies:
  default:
    match: all
    cache: {ttl: 1h, store: sqlite}
    limits:
      - {name: month, usd: 0.0001 per month, unpriced: allow, warn_at: 1%}
"""
REAL = {
    *("listening", "stopping", "stopped", "policy.in_force", "policy.rejected"),
    *("policy.restored", "policy.revoked", "policy.no_keys", "budget.begins"),
    *("limit.warned", "cache.store_missing", "decisions.begin", "decisions.end"),
}
"""Events of which the test reads a line; those of the others' calls are read from the code."""


def events() -> dict[str, tuple[str, set[str]]]:
    """Return the level and the fields that the page has for each other event."""
    results = {}
    for line in PAGE.partition("| other event |")[2].partition("\n\n")[0].splitlines()[2:]:
        names, level, fields = line.split("|")[1:4]
        for name in re.findall(r"`([a-z_.]+)`", names):
            results[name] = (level.strip(), set(re.findall(r"`([a-z_]+)`", fields)))
    return results


def logged_events() -> Iterator[tuple[str, str, set[str]]]:
    """Yield the name, the level and the fields of each event whose name the code writes out."""
    for file in (TOP / "proxy").rglob("*.py"):
        module = ast.parse(file.read_text())
        for function in ast.walk(module):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    yield from logged_by(node, function)


def logged_by(node: ast.AST, function: ast.AST) -> Iterator[tuple[str, str, set[str]]]:
    """Yield the events of one call of a logger within a function."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    level, owner = node.func.attr, ast.unparse(node.func.value)
    if level not in ("info", "warning", "error") or not owner.endswith("log") or not node.args:
        return
    fields: set[str] = set()
    for keyword in node.keywords:
        fields |= {keyword.arg} if keyword.arg else spread(ast.unparse(keyword.value), function)
    name = ast.unparse(node.args[0]).strip("f'\"").replace("{self._subject}", "{subject}")
    start, _, end = name.partition(".")
    for first_text in STARTS.get(start, (start,)):
        for last_text in ENDS.get(end, (end,)):
            event = f"{first_text}.{last_text}".rstrip(".")
            if re.fullmatch(r"[a-z_.]+", event) and event != "event":
                yield event, level, fields


def spread(text: str, function: ast.AST) -> set[str]:
    """Return the names in a mapping that is spread: one that is written out, or a place."""
    if text.startswith("where("):
        return {"type", "location"}
    values = (
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == text
    )
    return {
        str(key.value)
        for value in values
        if isinstance(value, ast.Dict)
        for key in value.keys
        if isinstance(key, ast.Constant)
    }


def told(heading: str) -> set[str]:
    """Return the fields in the first column of a table."""
    table = PAGE.partition(f"| {heading} | meaning |")[2].partition("\n\n")[0]
    columns = [row.split("|")[1] for row in table.splitlines() if row.startswith("|")]
    return {name for column in columns for name in re.findall(r"`([a-z_]+)`", column)}


async def test_the_fields_of_real_lines_are_those_of_the_page(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.answer_with(answer({}, status=500))
    chosen = {"HEADRACE_LOG_LEVEL": "debug", "HEADRACE_LOG_RATIO": "0.5"}
    async with serving(tmp_path / "p", world(upstream.url), **chosen) as (served, url):
        route = ROUTES["openai"]
        body = route.body(streamed=False)
        async with (
            aiohttp.ClientSession() as client,
            client.post(
                f"{url}{route.path}", headers=BEARER | {"x-title": "App"}, json=body
            ) as response,
        ):
            assert response.status == 502
            call = await served.line("call")
            attempt = await served.line("attempt")
            async with client.get(
                f"{url}/v1/batches/batch_1?after=x", headers=BEARER
            ) as other_response:
                assert other_response.status == 404
            unserved = await served.line("call")

    assert unserved["wanted_path"] == "/v1/batches/*"
    rare = {"suppressed", "cut", "unauthorized", "wanted_path"}
    assert call.keys() | rare == told("field")
    assert attempt.keys() == told("field of an attempt")


def test_how_many_were_left_out_stands_only_where_some_were() -> None:
    lines: list[bytes] = []
    levels = LogLevel("info", lambda: 0.0)
    log = CallLog(line_logger(lines.append, levels), levels)
    for suppressed in (0, 3):
        record = new_record()
        record.ended, record.unreported = record.started, suppressed
        log.end(record)

    assert [json.loads(line).get("suppressed") for line in lines] == [None, 3]


def test_the_events_of_the_page_are_those_that_are_logged() -> None:
    code = "\n".join(file.read_text() for file in (TOP / "proxy").rglob("*.py"))
    code = code.replace("{self._subject}", "{subject}")
    logged = set()
    for name in re.findall(r"log\.(?:info|warning|error)[(,]\s*f?\"([^\"]+)\"", code):
        start, _, end = name.partition(".")
        for first_text in STARTS.get(start, (start,)):
            logged |= {
                f"{first_text}.{last_text}".rstrip(".") for last_text in ENDS.get(end, (end,))
            }
    logged |= set(re.findall(r"amiss, context, \"([^\"]+)\"\)", code))
    logged |= {"decisions.mended", "library.failed"}  # said by a choice, and by a handler
    telemetry = (TOP / "proxy/app/telemetry.py").read_text()
    logged |= set(re.findall(r"yield \"([a-z._]+)\", ", telemetry))  # found when policies are read

    assert events().keys() == logged


def test_the_fields_and_levels_of_the_page_are_those_that_are_logged() -> None:
    wrong = {}
    for name, level, fields in logged_events():
        if events()[name] != (level, fields):
            wrong[name] = (level, fields)

    assert wrong == {}


async def test_real_lines_of_other_events_have_the_fields_of_the_page(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
    text = world(upstream.url) + LIMITED
    options = {
        "HEADRACE_LEDGER": f"sqlite:{tmp_path / 'ledger.db'}",
        "HEADRACE_DECISION_LOG": str(tmp_path / "decisions"),
    }
    async with serving(tmp_path / "p", text, **options) as (served, url):
        async with (
            aiohttp.ClientSession() as client,
            client.post(
                f"{url}/v1/chat/completions",
                headers=BEARER,
                json={"model": "support-chat", **body},
            ) as response,
        ):
            assert response.status == 200
        await served.line("call")
        for event, policies in (
            ("policy.rejected", "upstream: {}\n"),
            ("policy.restored", text),
            ("policy.revoked", f"{text}revoked: [search-box]\n"),
            ("policy.no_keys", "keys: {}\n"),
        ):
            (tmp_path / "p" / "policies.yaml").write_text(policies)
            await served.line(event)
        served.process.terminate()
        await served.line("stopped")

    lines = {line["event"]: line for line in served.lines if line["event"] != "call"}
    assert {item: line.keys() - COMMON for item, line in lines.items()} == {
        item: events()[item][1] for item in lines
    }
    assert {item: line["level"] for item, line in lines.items()} == {
        item: events()[item][0] for item in lines
    }
    assert lines.keys() >= REAL


@pytest.mark.parametrize("field", ["cost_usd", "lost_cost_usd", "saved_usd"])
def test_money_is_told_under_names_that_say_its_unit(field: str) -> None:
    assert field in told("field")
