"""The log says whose a limit is where the policies name it, and never a word of a caller's."""

from __future__ import annotations

from pathlib import Path

from aiohttp import ClientSession

from tests.cli.test_init import serving
from tests.conftest import world
from tests.doubles import ScriptedUpstream, answer, legacy
from tests.test_pipeline import BEARER, ROUTES

ROUTE = ROUTES["openai"]
LIMITS = """
policies:
  default:
    limits:
      - {name: money, usd: 5 per month, per: [key, user], unpriced: allow}
      - {name: calls, requests: 1 per hour, per: [key, user], warn_at: 100%}
"""


async def test_a_key_is_told_and_a_user_is_not(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer(legacy()))
    body = {**ROUTE.body(streamed=False), "user": "alice-of-sales"}
    async with serving(tmp_path / "p", world(upstream.url) + LIMITS) as (served, url):
        async with (
            ClientSession() as client,
            client.post(url + ROUTE.path, headers=BEARER, json=body) as response,
        ):
            assert response.status == 200, await response.text()
        await served.line("call")

    told = {line["event"]: line for line in served.lines}
    for event in ("budget.begins", "limit.warned"):
        assert told[event]["whose"] == {"key": "support-widget"}
        assert "alice" not in str(told[event])


async def test_budget_begins_once(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(answer(legacy()))
    limits = LIMITS.replace("requests: 1 per hour, per: [key, user]", "requests: 2 per day")
    users = ["alice", "alice", "alice", "bob", "bob", "carol"]
    async with serving(tmp_path / "p", world(upstream.url) + limits) as (served, url):
        async with ClientSession() as client:
            for user in users:
                body = {**ROUTE.body(streamed=False), "user": user}
                async with client.post(url + ROUTE.path, headers=BEARER, json=body) as response:
                    await response.read()
        for _ in users:
            await served.line("call")

    assert [line["event"] for line in served.lines].count("budget.begins") == 1
