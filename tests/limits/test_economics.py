"""Calls that may cost more than a guard allows: refused before anything is claimed or asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.emit.log import canonical
from proxy.policy.files.source import PolicyError
from proxy.policy.review.check_report import check
from proxy.policy.store import read_folder
from tests.conftest import running_proxy, world
from tests.doubles import ScriptedUpstream, answer, legacy
from tests.for_each import for_each
from tests.limits.test_init import ask, counted, limited
from tests.test_pipeline import BEARER

# 10 tokens in at 0.15 and 20 out at 0.6 USD per million, in nano-USD
COST = 13_500


def guarded(usd: float, more: str = "") -> str:
    return f"    input: [{{guard: economics, max_cost_usd: {usd:.9f}{more}}}]\n"


CALLS = "{name: calls, requests: 100 per day}"


@pytest.mark.parametrize(
    ("nano_usd", "more", "status", "verdict"),
    [
        (COST, "", 200, "passed"),
        (COST - 1, "", 400, "blocked"),
        (COST - 1, ", action: flag", 200, "flagged"),
        (COST - 1, ", mode: shadow", 200, "blocked"),
    ],
)
async def test_a_call_passes_up_to_what_it_may_cost(
    nano_usd: int, more: str, status: int, verdict: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    rules = guarded(nano_usd / 1e9, more)
    async with limited(tmp_path, upstream, CALLS, rules=rules) as (proxy, client):
        got, _, said = await ask(client)
        [record] = await proxy.sink.wait()
        shadow = "true" if "shadow" in more else "false"
        labels = f'guard="economics",shadow="{shadow}",stage="input",verdict="{verdict}"'
        assert await counted(proxy, client, f"headrace_guard_decisions_total{{{labels}}} 1.0")

    assert got == status
    assert [(r.guard, r.verdict) for _, r in record.verdicts()] == [("economics", verdict)]
    assert canonical(record)["guards"][0]["verdict"] == verdict
    if status == 400:
        assert said["error"]["code"] == "guardrail_blocked"
        assert said["error"]["message"].endswith("it may cost more than the policy allows.")
        assert record.outcome == "blocked"
        assert (record.admission, record.attempts, upstream.requests) == (None, [], [])


@pytest.mark.parametrize(
    "more",
    [{"n": 2}, {"best_of": 2}, {"prompt": ["x" * 40, "x" * 40]}, {"max_tokens": 22}],
    ids=["n", "best_of", "prompts", "max_tokens"],
)
async def test_all_that_multiplies_a_call_counts(
    more: dict[str, Any], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    rules = guarded(COST / 1e9)
    async with limited(tmp_path, upstream, CALLS, rules=rules) as (_, client):
        status, _, _ = await ask(client, **more)

    assert (status, upstream.requests) == (400, [])


async def test_a_call_of_several_models_is_all_of_them(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(legacy()))
    rules = guarded(COST * 1.5 / 1e9)
    statuses = []
    async with limited(tmp_path, upstream, CALLS, rules=rules) as (_, client):
        for models in (["first"], ["first", "second"]):
            body = {"model": models, "prompt": "x" * 40, "max_new_tokens": 20}
            async with client.post("/v1/completion", headers=BEARER, json=body) as response:
                statuses.append(response.status)

    assert statuses == [200, 400]


@pytest.mark.parametrize(
    ("more", "status"), [("", 400), (", on_error: open", 200), (", action: flag", 200)]
)
async def test_a_cost_that_nobody_can_tell_is_a_failure_of_the_guard(
    more: str, status: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(legacy()))
    rules = guarded(1, f"{more}, message: Ask for less.")
    async with limited(tmp_path, upstream, CALLS, rules=rules) as (proxy, client):
        got, _, said = await ask(client, model="legacy-only")
        [record] = await proxy.sink.wait()

    assert got == status
    assert status == 200 or said["error"]["message"].endswith("the price of its model is unknown.")
    [(_, result)] = record.verdicts()
    assert (result.verdict, result.error) == ("failed", "unpriced")


RULED = """
policies:
  default:
    match: all
    input: [{guard: economics, name: dear, max_cost_usd: 0.000001, message: Ask for less.}]
    rules:
      - {name: rich, when: {tag: {beta: 'true'}}, without: {guards: [dear]}}
      - name: poor
        when: {header: {x-poor: 'yes'}}
        without: {guards: [dear]}
        input: [{guard: economics, name: cheap, max_cost_usd: 0.000002}]
"""


async def test_rules_bring_and_take_it_like_any_guard(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    said = []
    async with (
        running_proxy(tmp_path / "policies", world(upstream.url) + RULED) as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        upstream.answer_with(answer(legacy()))
        for headers in ({}, {"x-headrace-tags": "beta"}, {"x-poor": "yes", "x-request-id": "poor"}):
            status, _, body = await ask(client, {**BEARER, **headers})
            said.append((status, body.get("error", {}).get("message", "")))
        await proxy.sink.wait(3)
        async with client.get(f"{proxy.admin}/explain/poor") as response:
            explained = await response.text()

    assert said[0] == (400, "Ask for less.")
    assert [status for status, _ in said] == [400, 200, 400]
    assert "input cheap: block above 0.000002 USD" in explained


WRONG = {
    "output: [{guard: economics, max_cost_usd: 1}]": "economics is allowed under input only",
    "input: [{guard: economics}]": '"max_cost_usd" is missing',
    "input: [{guard: economics, max_cost_usd: 0}]": "must be greater than 0",
    "input: [{guard: economics, max_cost_usd: 1, action: mask}]": "must be block or flag",
    "input: [{guard: economics, max_cost_usd: 1, roles: [user]}]": "it inspects no text",
}


@for_each("said", WRONG)
def test_what_it_cannot_mean_is_refused(said: str, tmp_path: Path) -> None:
    text = f"{world('http://127.0.0.1:9')}policies:\n  default: {{{said}}}\n"
    (tmp_path / "p.yaml").write_text(text)

    with pytest.raises(PolicyError, match=WRONG[said]):
        read_folder(tmp_path, None)


def test_check_warns_where_it_would_refuse_every_call(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        f"{world('http://127.0.0.1:9')}policies:\n  default:\n{guarded(1)}"
    )

    told = [p.path for p in check(tmp_path, None).warnings if "economics" in p.message]

    unpriced = ("search-answers", "legacy-only", "responses-only")
    assert told == [f"deployments.{name}.targets" for name in unpriced]
