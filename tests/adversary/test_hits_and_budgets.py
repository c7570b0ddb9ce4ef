"""What a kept answer needs: it costs nothing, so no budget; it is a call, so a request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.conftest import Proxy, running_proxy, world
from tests.doubles import ScriptedUpstream, answer, chat, legacy, legacy_events, stream, usage
from tests.limits.test_init import SEARCH, ask
from tests.test_pipeline import BEARER

SPENT = "{name: money, usd: 1 per month, unpriced: allow}"
MANY_TOKENS: dict[str, Any] = {"max_tokens": 100_000}  # claims more than is left
FORMS = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@asynccontextmanager
async def proxied(
    folder: Path, upstream: ScriptedUpstream, *limits: str, extra: str = ""
) -> AsyncIterator[tuple[Proxy, ClientSession]]:
    rule = f"limits: [{', '.join(limits)}], cache: {{ttl: 1h}}{extra}"
    text = f"\npolicies:\n  default: {{match: all, {rule}}}\n"
    async with running_proxy(folder / "policies", world(upstream.url) + text) as proxy:
        yield proxy, proxy.client


def dear(*, streamed: bool) -> Any:
    """An answer that leaves less of the budget than another call would claim."""
    used = {"prompt_tokens": 5, "completion_tokens": 1_600_000, "total_tokens": 1_600_005}
    if streamed:
        return stream(
            [*legacy_events(" Par", "is.", with_usage=False), {"choices": [], "usage": used}]
        )
    return answer(legacy(usage=used))


@FORMS
@pytest.mark.parametrize("limit", [SPENT, "{name: words, tokens: 1600k per day}"])
async def test_a_hit_needs_no_budget_and_a_miss_does(
    limit: str, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(dear(streamed=streamed))
    async with proxied(tmp_path, upstream, limit) as (proxy, client):
        body: dict[str, Any] = {"max_tokens": 100_000, "stream": streamed}
        first_item = await ask(client, **body)
        repeated = await ask(client, **body)
        other_item = await ask(client, **body, prompt="another question")
        records = await proxy.sink.wait(3)

    assert [first_item[0], repeated[0], other_item[0]] == [200, 200, 429]
    assert repeated[1]["x-headrace-cache"] == "hit"
    assert other_item[2]["error"]["code"] in ("budget_exceeded", "rate_limit_exceeded")
    assert len(upstream.requests) == 1
    assert [record.outcome for record in records] == ["success", "success", "limited"]
    assert records[1].billing.cost == 0


async def test_a_hit_counts_as_a_request(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(dear(streamed=False))
    limits = (SPENT, "{name: calls, requests: 3 per day}")
    async with proxied(tmp_path, upstream, *limits) as (proxy, client):
        statuses = [(await ask(client, **MANY_TOKENS))[0] for _ in range(4)]
        refused = await ask(client, **MANY_TOKENS)

        assert statuses == [200, 200, 200, 429]
        assert (
            "calls" in refused[2]["error"]["message"] or "money" in refused[2]["error"]["message"]
        )
        denials = 'headrace_limit_decisions_total{decision="deny",limit="calls"} 2.0'
        assert denials in await proxy.metrics()


async def test_budget_refusal_spends_no_limit(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    """A key without budget must not use up the requests that all keys share."""
    upstream.answer_with(answer(chat(usage=usage(2_000_000, 0))))
    limits = (
        "{name: money, usd: 0.1 per month, unpriced: allow, per: key}",
        "{name: calls, requests: 5 per day}",
    )
    async with proxied(tmp_path, upstream, *limits) as (proxy, client):
        spender = [await chatted(client, BEARER, "support-chat", f"x{n}") for n in range(10)]
        other_item = [await chatted(client, SEARCH, "search-answers", f"y{n}") for n in range(2)]
        records = await proxy.sink.wait(12)

    assert spender == [200] + [429] * 9
    assert other_item == [200, 200]
    assert [record.outcome for record in records].count("limited") == 9


async def chatted(client: ClientSession, key: dict[str, str], model: str, text: str) -> int:
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 1}
    async with client.post("/v1/chat/completions", headers=key, json=body) as response:
        await response.read()
        return response.status


async def test_cache_hit_holds_its_lease(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(dear(streamed=False))
    async with proxied(tmp_path, upstream, SPENT, "{name: at-once, concurrency: 1}") as (_, client):
        statuses = [(await ask(client, **MANY_TOKENS))[0] for _ in range(5)]
        missed = [(await ask(client, **MANY_TOKENS, prompt=f"p{n}"))[0] for n in range(5)]

    assert (statuses, missed) == ([200] * 5, [429] * 5)


async def test_budget_precedes_remote_guards(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(dear(streamed=False))
    text = f"url: '{upstream.url}/hook', secret: '${{UPSTREAM_KEY}}', action: flag"
    hook = f", input: [{{guard: webhook, {text}}}]"
    async with proxied(tmp_path, upstream, SPENT, extra=hook) as (_, client):
        assert (await ask(client, **MANY_TOKENS))[0] == 200
        count_before = len(upstream.requests)

        assert (await ask(client, **MANY_TOKENS))[0] == 429
        assert len(upstream.requests) == count_before
