"""A proxy with one deployment for each outcome of a call, and the calls that have them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

from aiohttp import ClientTimeout

from tests.conftest import KEY, Proxy, running_proxy
from tests.doubles import PATIENCE_S, ScriptedUpstream, chat, chat_events, hang, respond, stream
from tests.servers import eventually

HOSTILE = "<img src=x onerror=alert(1)>\u202egpt"
CALLS = 13
POLICIES = """
upstreams:
  openai: {{dialect: openai, base_url: '{url}/v1', api_key: '${{UPSTREAM_KEY}}',
    breaker: {{failures: 3, rest: 60s}}}}
  slow: {{dialect: openai, base_url: '{url}/v1', breaker: off, timeouts: {{total: 200ms}}}}
  dead: {{dialect: openai, base_url: 'http://127.0.0.1:9/v1', breaker: {{failures: 1, rest: 60s}}}}
tags: {{team: [support, search]}}
keys:
  support-widget: {{sha256: {digest}, deployments: [support-chat, broken, small, resilient, late]}}
deployments:
  support-chat:
    description: The help widget
    tags: {{team: support}}
    targets: [{{upstream: openai, model: gpt-4o-mini, price: {{input: 1000, output: 2000}}}}]
    policy: house
  broken: {{targets: [{{upstream: dead, model: gpt-4o}}]}}
  late: {{targets: [{{upstream: slow, model: gpt-4o-mini}}]}}
  resilient:
    targets: [{{upstream: dead, model: gpt-4o}}]
    fallback: [{{upstream: openai, model: gpt-4o-mini}}]
  small: {{targets: [{{upstream: openai, model: gpt-4o-mini}}], policy: tight}}
policies:
  house:
    match: all
    limits: [{{name: team-day, usd: {budget} per day, per: tag.team, warn_at: 80%}}]
    input:
      - {{guard: keywords, words: [Hydropolis], action: block, message: Not this word.}}
      - {{guard: pii, entities: [email], action: mask, restore: true}}
    rules:
      - {{name: bounded, cap: {{max_tokens: {cap}}}}}
      - {{name: eu, when: {{header: {{x-region: eu}}}}, set: {{temperature: 0.2}}}}
  tight: {{limits: [{{name: once, requests: 1 per day, per: key}}]}}
"""


def policies(url: str, *, budget: float = 50, cap: int = 1000) -> str:
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    return POLICIES.format(url=url, digest=digest, budget=budget, cap=cap)


@asynccontextmanager
async def running_shop(
    folder: Path, upstream: ScriptedUpstream, **settings: Any
) -> AsyncIterator[Proxy]:
    async with running_proxy(folder, policies(upstream.url), **settings) as proxy:
        yield proxy


async def post_chat(
    proxy: Proxy, text: str = "Where is my order?", *, key: str = KEY, **body: Any
) -> int:
    """Send a chat and read the whole response. Return its status."""
    body = {"model": "support-chat", "messages": [{"role": "user", "content": text}], **body}
    headers = {"authorization": f"Bearer {key}"}
    path = "/v1/chat/completions"
    async with proxy.client.post(
        path, headers=headers, json=body, timeout=ClientTimeout(10)
    ) as response:
        await response.read()
        return response.status


async def leave_early(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    """Send a call to an upstream that hangs, and disconnect."""
    upstream.answer_with(hang())
    count = len(upstream.requests)
    task = asyncio.create_task(post_chat(proxy, model="resilient"))
    await eventually(lambda: len(upstream.requests) > count)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def make_traffic(proxy: Proxy, upstream: ScriptedUpstream, earlier: int = 0) -> None:
    """Make one call of each outcome that a client sees to the end, and some more.

    There were ``earlier`` calls before.
    """
    upstream.answer_with(respond(chat("Paris.")))
    assert await post_chat(proxy) == 200
    assert await post_chat(proxy, "Write to jane@example.com") == 200
    assert await post_chat(proxy, "Tell me of Hydropolis") == 400
    assert await post_chat(proxy, model="small") == 200
    assert await post_chat(proxy, model="small") == 429
    assert await post_chat(proxy, model="resilient") == 200
    assert await post_chat(proxy, model="broken") >= 500
    assert await post_chat(proxy, model=HOSTILE) == 404
    assert await post_chat(proxy, model="x" * 10_000) == 400
    assert await post_chat(proxy, key="hr-unknown") == 401
    upstream.answer_with(stream(chat_events("The capital ", "of France ", "is Paris.")))
    assert await post_chat(proxy, stream=True) == 200
    upstream.answer_with(hang())
    assert await post_chat(proxy, model="late") == 504
    await leave_early(proxy, upstream)
    await proxy.sink.wait(CALLS + earlier)


async def fill_charts(proxy: Proxy, upstream: ScriptedUpstream, seconds: float) -> None:
    """Make calls of most outcomes for so long that the charts of a picture have lines."""
    loop, chance = asyncio.get_running_loop(), Random(1)  # noqa: S311  # no secret
    end = loop.time() + seconds
    while loop.time() < end:
        upstream.answer_with(respond(chat("Paris.")))
        for _ in range(chance.randint(1, 4)):
            await post_chat(proxy)
        await post_chat(proxy, "Write to jane@example.com")
        if chance.random() < 0.3:
            await post_chat(proxy, "Tell me of Hydropolis")
        if chance.random() < 0.2:
            await post_chat(proxy, model="small")
        upstream.answer_with(stream(chat_events("The capital ", "of France ", "is Paris.")))
        await asyncio.gather(*(post_chat(proxy, stream=True) for _ in range(chance.randint(0, 2))))
        if chance.random() < 0.1:
            upstream.answer_with(hang())
            await post_chat(proxy, model="late")
        await asyncio.sleep(chance.uniform(0.1, 0.6))


async def wait_for_ledger(proxy: Proxy, calls: int = CALLS) -> None:
    """Wait until the ledger has the rows of so many calls."""
    count = 0
    async with asyncio.timeout(PATIENCE_S):
        while count < calls:
            async with proxy.client.get(f"{proxy.admin}/api/v1/money") as response:
                count = (await response.json())["total"]["calls"]
