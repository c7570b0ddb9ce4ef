"""docs/logs.md against lines of a real process: all that they hold is told, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import aiohttp
import pytest

from proxy.app.site import new_record
from proxy.emit.levels import Levels
from proxy.emit.log import CallLog
from tests.conftest import world
from tests.doubles import ScriptedUpstream, answer
from tests.test_cli import serving
from tests.test_pipeline import BEARER, ROUTES

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs/logs.md").read_text()
STARTS = {"{subject}": ("policy", "candidate")}
ENDS = {"{state}": ("degraded", "recovered")}


def told(heading: str) -> set[str]:
    """Return the fields in the first column of a table."""
    table = PAGE.partition(f"| {heading} | meaning |")[2].partition("\n\n")[0]
    columns = [row.split("|")[1] for row in table.splitlines() if row.startswith("|")]
    return {name for each in columns for name in re.findall(r"`([a-z_]+)`", each)}


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
            client.post(f"{url}{route.path}", headers=BEARER, json=body) as response,
        ):
            assert response.status == 502
        call = await served.line("call")
        attempt = await served.line("attempt")

    assert call.keys() | {"untold", "cut", "unauthorized"} == told("field")
    assert attempt.keys() == told("field of an attempt")


def test_how_many_were_left_out_stands_only_where_some_were() -> None:
    lines: list[bytes] = []
    log = CallLog(lines.append, Levels("info", lambda: 0.0))
    for untold in (0, 3):
        record = new_record()
        record.ended, record.untold = record.started, untold
        log.end(record)

    assert [json.loads(line).get("untold") for line in lines] == [None, 3]


def test_the_events_of_the_page_are_those_that_are_logged() -> None:
    code = "\n".join(file.read_text() for file in (TOP / "proxy").rglob("*.py"))
    code = code.replace("{self._subject}", "{subject}")
    logged = set()
    for name in re.findall(r"log\.(?:info|warning|error)\(\s*f?\"([^\"]+)\"", code):
        start, _, end = name.partition(".")
        for first in STARTS.get(start, (start,)):
            logged |= {f"{first}.{last}".rstrip(".") for last in ENDS.get(end, (end,))}
    logged |= set(re.findall(r"amiss\(site, \"([^\"]+)\"\)", code))
    logged |= {"decisions.mended", "library.failed"}  # said by a choice, and by a handler
    events = PAGE.partition("Other events:")[2].partition("\n\n")[0]

    assert set(re.findall(r"`([a-z_.]+)`", events)) == logged


@pytest.mark.parametrize("field", ["cost_usd", "lost_cost_usd", "saved_usd"])
def test_money_is_told_under_names_that_say_its_unit(field: str) -> None:
    assert field in told("field")
