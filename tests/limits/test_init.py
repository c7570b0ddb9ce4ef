"""Limits over real calls: admission, refusal, and settlement however a call ends."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession

from proxy.policy.files.source import PolicyError
from proxy.policy.review.check import check_folder
from proxy.telemetry.log import build_call_line
from tests.conftest import Proxy, policies_for, running_proxy
from tests.doubles import (
    ScriptedUpstream,
    chat,
    cut_before_head,
    hang,
    legacy_completion,
    legacy_events,
    respond,
    stream,
    usage,
)
from tests.for_each import for_each
from tests.policy.decisions import read_text
from tests.test_pipeline import BEARER

SEARCH = {"authorization": "Bearer hr-search-key"}


@asynccontextmanager
async def proxy_with_limits(
    folder: Path, upstream: ScriptedUpstream, *limits: str, rules: str = ""
) -> AsyncIterator[tuple[Proxy, ClientSession]]:
    text = f"\npolicies:\n  default:\n    match: all\n    limits: [{', '.join(limits)}]\n{rules}"
    async with running_proxy(folder / "policies", policies_for(upstream.url) + text) as proxy:
        yield proxy, proxy.client


async def ask(
    client: ClientSession, headers: dict[str, str] = BEARER, **fields: Any
) -> tuple[int, dict[str, str], Any]:
    body = {"model": "support-chat", "prompt": "x" * 40, "max_tokens": 20, **fields}
    async with client.post("/v1/completions", headers=headers, json=body) as response:
        streamed = "event-stream" in response.content_type
        body_read = await (response.read() if streamed else response.json())
        return response.status, {k.lower(): v for k, v in response.headers.items()}, body_read


async def test_rate_limit_sets_retry_after(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    limit = "{name: per-key, requests: 2 per minute, per: key}"
    async with proxy_with_limits(tmp_path, upstream, limit) as (proxy, client):
        first_item, second, third = [await ask(client) for _ in range(3)]
        other_item = await ask(client, SEARCH, model="search-answers", prompt="Hi")
        records = await proxy.sink.wait(4)
        assert (
            'headrace_limit_decisions_total{decision="deny",limit="per-key"} 1.0'
            in await proxy.metrics()
        )

    assert [first_item[0], second[0], third[0]] == [200, 200, 429]
    # Another key has its own counter; its 502 is a completion in place of a chat.
    assert other_item[0] in (200, 502)
    assert first_item[1]["x-ratelimit-limit-requests"] == "2"
    assert second[1]["x-ratelimit-remaining-requests"] == "0"
    assert third[2]["error"]["code"] == "rate_limit_exceeded"
    assert "per-key" in third[2]["error"]["message"]
    assert 29 <= int(third[1]["retry-after"]) <= 30
    assert records[2].outcome == "limited"
    assert records[2].attempts == []
    assert len(upstream.requests) == 3


async def test_oversized_call_is_explained(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    limit = "{name: tokens, tokens: 1000 per minute}"
    async with proxy_with_limits(tmp_path, upstream, limit) as (_, client):
        status, headers, body = await ask(client, max_tokens=5000)

    assert status == 429
    assert 'exceeds the whole limit "tokens" (1000 tokens per minute)' in body["error"]["message"]
    assert headers["x-should-retry"] == "false"
    assert "retry-after" not in headers
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("requests: 600 per minute, burst: 1", "600 requests per minute, burst 1"),
        ("requests: 1 per 2 hours", "1 request per 2 hours"),
        ("tokens: 9 per 90 seconds", "9 tokens per 90 seconds"),
        ("tokens: 9 per day", "9 tokens per day"),
    ],
)
async def test_refusal_describes_amount_period_and_burst(
    limit: str, words: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(legacy_completion(usage=usage(1, 8))))
    async with proxy_with_limits(tmp_path, upstream, f"{{name: few, {limit}}}") as (_, client):
        answers = [await ask(client, prompt="x", max_tokens=5) for _ in range(2)]

    message, wait = answers[1][2]["error"]["message"], answers[1][1]["retry-after"]
    assert message == f'Limit "few" ({words}) is reached. Try again in {wait} s.'


RESETS = re.compile(r"It resets at [0-9]{4}-[0-9]{2}-01T00:00:00\+00:00\.$")


@pytest.mark.parametrize(
    ("used", "message"),
    [
        (None, "This call may cost more than the whole {}. Request fewer output tokens."),
        (10_000, "This call may cost more than is left of {}. 0.0005 USD is left. It resets at "),
        (100_000, "This call may cost more than is left of {}. 0 USD is left. It resets at "),
    ],
)
@pytest.mark.parametrize(
    ("per", "owner"),
    [
        ("[]", ""),
        ("key", " for key:support-widget"),
        ("[tag.team, user]", " for key:support-widget, tag.team:support, user:ann"),
    ],
)
async def test_budget_refusal_names_scope_remainder_and_reset(
    used: int | None, message: str, per: str, owner: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    limit = f"{{name: month, usd: 0.002 per month, unpriced: allow, per: {per}}}"
    upstream.answer_with(respond(legacy_completion(usage=usage(used or 0, 0))))
    async with proxy_with_limits(tmp_path, upstream, limit) as (_, client):
        if used is not None:
            assert (await ask(client, prompt="x", max_tokens=1, user="ann"))[0] == 200
        bound = 10_000 if used is None else 2_000
        status, headers, body = await ask(client, max_tokens=bound, user="ann")

    error = body["error"]
    assert (status, error["code"], error["type"]) == (429, "budget_exceeded", "insufficient_quota")
    budget = f'budget "month" (0.002 USD per month{owner})'
    assert body["error"]["message"].startswith(message.format(budget))
    assert (RESETS.search(body["error"]["message"]) is None) == (used is None)
    assert ("retry-after" in headers) == (used is not None)
    assert headers["x-should-retry"] == "false"


WAYS: dict[str, tuple[Any, dict[str, Any], int]] = {
    "done": (respond(legacy_completion()), {}, 8),
    "streamed": (stream(legacy_events("a", "b")), {"stream": True}, 8),
    "refused upstream": (respond({}, 400), {}, 0),
    "failed upstream": (respond({}, 500), {}, 0),
    "cut before its head": (cut_before_head(), {}, 0),
    "garbled": (respond(b"{"), {"max_tokens": 1}, 11),
    "cut in the middle": (stream(legacy_events("y" * 40), cut_after=1), {"stream": True}, 20),
}


@pytest.mark.parametrize("way", WAYS)
async def test_limits_are_settled_however_a_call_ends(
    way: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    script, options, used = WAYS[way]
    limits = (
        "{name: tokens, tokens: 10k per day}",
        "{name: at-once, concurrency: 1}",
        "{name: calls, requests: 100 per day}",
    )
    async with proxy_with_limits(tmp_path, upstream, *limits) as (proxy, client):
        upstream.then(script)
        try:
            await ask(client, **options)
        except aiohttp.ClientPayloadError:
            assert way == "cut in the middle"
        await proxy.sink.wait()
        upstream.answer_with(respond(legacy_completion()))

        status, headers, _ = await ask(client)

    assert status == 200
    assert int(headers["x-ratelimit-remaining-tokens"]) == 10_000 - used - 30
    assert headers["x-ratelimit-remaining-requests"] == "98"


async def test_disconnect_releases_the_lease(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with proxy_with_limits(tmp_path, upstream, "{name: at-once, concurrency: 1}") as (
        proxy,
        client,
    ):
        upstream.then(hang())
        leaving = asyncio.ensure_future(ask(client))
        await upstream.arrived.wait()
        status, headers, body = await ask(client)
        leaving.cancel()
        await proxy.sink.wait(2)
        repeated, _, _ = await ask(client)

    assert (status, body["error"]["type"], headers["retry-after"]) == (429, "concurrency", "1")
    assert repeated == 200


async def test_shadow_limit_counts_denials(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    limit = "{name: later, requests: 1 per day, mode: shadow}"
    async with proxy_with_limits(tmp_path, upstream, limit) as (proxy, client):
        statuses = [(await ask(client))[0] for _ in range(3)]
        await proxy.sink.wait(3)
        text = 'headrace_limit_decisions_total{decision="would_deny",limit="later"} 2.0'
        assert text in await proxy.metrics()

    assert statuses == [200, 200, 200]


async def test_warning_is_counted_once(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    limit = "{name: month, usd: 1 per month, unpriced: allow, warn_at: 50%}"
    async with proxy_with_limits(tmp_path, upstream, limit) as (proxy, client):
        upstream.answer_with(respond(legacy_completion(usage=usage(2_000_000, 0))))
        for _ in range(3):
            await ask(client)
        await proxy.sink.wait(3)
        assert 'headrace_limit_warnings_total{limit="month"} 1.0' in await proxy.metrics()


async def test_rules_add_and_remove_limits(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    rules = """
    rules:
      - {name: chats, when: {endpoint: chat}, limits: [{name: chats, requests: 1 per day}]}
      - {name: free, when: {header: {x-free: 'yes'}}, without: {limits: [calls]}}
"""
    limit = "{name: calls, requests: 2 per day}"
    async with proxy_with_limits(tmp_path, upstream, limit, rules=rules) as (proxy, client):
        free = {**BEARER, "x-free": "yes"}
        statuses = [(await ask(client, headers))[0] for headers in (free, free, free, BEARER)]
        upstream.answer_with(respond(chat()))
        chats = [await proxy.chat(free, model="support-chat") for _ in range(2)]
        statuses += [reply.status for reply in chats]

    assert statuses == [200, 200, 200, 200, 200, 429]


async def test_reload_keeps_counters(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with proxy_with_limits(tmp_path, upstream, "{name: calls, requests: 1 per day}") as (
        proxy,
        client,
    ):
        await ask(client)
        file = proxy.policies / "policies.yaml"
        file.write_text(file.read_text() + "\n# the same\n")
        refresh = {**BEARER, "x-headrace-refresh-cache": "true"}
        status, headers, _ = await ask(client, refresh)
        first_value, _ = await proxy.sink.wait(2)

    assert status == 429
    assert headers["x-headrace-policy"] != first_value.revision


# nano-USD: 10 input tokens at 0.15 and 20 output tokens at 0.6 USD per million
COST = 13_500


def economics_guard(usd: float, extra: str = "") -> str:
    return f"    input: [{{guard: economics, max_cost_usd: {usd:.9f}{extra}}}]\n"


CALLS = "{name: calls, requests: 100 per day}"


@pytest.mark.parametrize(
    ("nano_usd", "extra", "status", "verdict"),
    [
        (COST, "", 200, "passed"),
        (COST - 1, "", 400, "blocked"),
        (COST - 1, ", action: flag", 200, "flagged"),
        (COST - 1, ", mode: shadow", 200, "blocked"),
    ],
)
async def test_economics_guard_blocks_above_its_cost_cap(
    nano_usd: int, extra: str, status: int, verdict: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    rules = economics_guard(nano_usd / 1e9, extra)
    async with proxy_with_limits(tmp_path, upstream, CALLS, rules=rules) as (proxy, client):
        got_status, _, body = await ask(client)
        [record] = await proxy.sink.wait()
        shadow = "true" if "shadow" in extra else "false"
        labels = f'guard="economics",shadow="{shadow}",stage="input",verdict="{verdict}"'
        assert f"headrace_guard_decisions_total{{{labels}}} 1.0" in await proxy.metrics()

    assert got_status == status
    assert [(r.guard, r.verdict) for _, r in record.list_guard_results()] == [
        ("economics", verdict)
    ]
    assert build_call_line(record)["guards"][0]["verdict"] == verdict
    if status == 400:
        assert body["error"]["code"] == "guardrail_blocked"
        assert body["error"]["message"].endswith("the call may cost more than the policy allows.")
        assert record.outcome == "blocked"
        assert (record.limit_decision, record.attempts, upstream.requests) == (None, [], [])


async def test_costs_of_a_model_list_are_added(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(legacy_completion()))
    rules = economics_guard(COST * 1.5 / 1e9)
    body = {"prompt": "x" * 40, "max_new_tokens": 20}
    async with proxy_with_limits(tmp_path, upstream, CALLS, rules=rules) as (proxy, _):
        replies = [
            await proxy.send("/v1/completion", {"model": models, **body})
            for models in (["first"], ["first", "second"])
        ]

    assert [reply.status for reply in replies] == [200, 400]


@pytest.mark.parametrize(
    ("extra", "status"), [("", 400), (", on_error: open", 200), (", action: flag", 200)]
)
async def test_unpriced_call_is_a_failure_of_the_guard(
    extra: str, status: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(legacy_completion()))
    rules = economics_guard(1, f"{extra}, message: Ask for less.")
    async with proxy_with_limits(tmp_path, upstream, CALLS, rules=rules) as (proxy, client):
        got_status, _, body = await ask(client, model="legacy-only")
        [record] = await proxy.sink.wait()

    assert got_status == status
    assert status == 200 or body["error"]["message"].endswith("the price of its model is unknown.")
    [(_, result)] = record.list_guard_results()
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


async def test_rules_add_and_remove_cost_cap(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    values = []
    async with running_proxy(tmp_path / "policies", policies_for(upstream.url) + RULED) as proxy:
        upstream.answer_with(respond(legacy_completion()))
        for headers in ({}, {"x-headrace-tags": "beta"}, {"x-poor": "yes", "x-request-id": "poor"}):
            status, _, body = await ask(proxy.client, {**BEARER, **headers})
            values.append((status, body.get("error", {}).get("message", "")))
        await proxy.sink.wait(3)
        explained = await proxy.read("/explain/poor")

    assert values[0] == (400, "Ask for less.")
    assert [status for status, _ in values] == [400, 200, 400]
    assert "input cheap: block above 0.000002 USD" in explained


WRONG = {
    "output: [{guard: economics, max_cost_usd: 1}]": "economics is allowed under input only",
    "input: [{guard: economics}]": '"max_cost_usd" is missing',
    "input: [{guard: economics, max_cost_usd: 0}]": "must be greater than 0",
    "input: [{guard: economics, max_cost_usd: 1, action: mask}]": "must be block or flag",
    "input: [{guard: economics, max_cost_usd: 1, roles: [user]}]": "it inspects no text",
}


@for_each("fields", WRONG)
def test_invalid_cost_caps_are_refused(fields: str, tmp_path: Path) -> None:
    text = f"{policies_for('http://127.0.0.1:9')}policies:\n  default: {{{fields}}}\n"

    with pytest.raises(PolicyError, match=WRONG[fields]):
        read_text(tmp_path, text)


def test_check_warns_of_cap_that_blocks_every_call(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        f"{policies_for('http://127.0.0.1:9')}policies:\n  default:\n{economics_guard(1)}"
    )

    events = [p.path for p in check_folder(tmp_path, None).warnings if "economics" in p.message]

    unpriced = ("search-answers", "legacy-only", "responses-only")
    assert events == [f"deployments.{name}.targets" for name in unpriced]
