"""What answers of Messages cost: usage as Anthropic's documents show it, priced by hand.

Prices in USD per million tokens: 5 for input, 0.5 read from the cache, 6.25 written to it for five
minutes and 10 for an hour, 25 for output; and 10 for a thousand searches, 0.01 for each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conftest import KEY, Proxy, running_proxy, world
from tests.dialects.vendors.test_anthropic import ASKED, HEADERS
from tests.doubles import ScriptedUpstream, answer, message, message_events, stream, text_events

PRICE = "input: 5, output: 25, cached_input: 0.5, cache_write: 6.25, cache_write_1h: 10"
BEGUN = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}


@pytest.fixture
async def priced(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    plain = "price: {input: 0.15, output: 0.6, cached_input: 0.075}"
    policies = world(upstream.url)
    index = policies.index("model: anthropic-model")
    policies = policies[:index] + policies[index:].replace(
        plain, f"price: {{{PRICE}, web_search: 10}}", 1
    )
    async with running_proxy(tmp_path / "priced", policies) as running:
        yield running


DOCUMENT = [
    pytest.param(
        {"input_tokens": 2095, "output_tokens": 503},
        "0.02305",  # 2095 x 5 + 503 x 25 = 10475 + 12575, in millionths
        id="plain",
    ),
    pytest.param(
        {
            "input_tokens": 21,
            "cache_creation_input_tokens": 188086,
            "cache_read_input_tokens": 0,
            "cache_creation": {"ephemeral_5m_input_tokens": 188086, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 393,
        },
        "1.1854675",  # 105 + 188086 x 6.25 + 9825
        id="written-for-five-minutes",
    ),
    pytest.param(
        {
            "input_tokens": 21,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 188086,
            "output_tokens": 393,
        },
        "0.103973",  # 105 + 94043 + 9825
        id="read",
    ),
    pytest.param(
        {
            "input_tokens": 10,
            "cache_creation_input_tokens": 1000,
            "cache_read_input_tokens": None,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 1000},
            "output_tokens": 20,
        },
        "0.01055",  # 50 + 10000 + 500
        id="written-for-an-hour",
    ),
    pytest.param(
        {
            "input_tokens": 2048,
            "cache_read_input_tokens": 1800,
            "cache_creation_input_tokens": 248,
            "cache_creation": {"ephemeral_5m_input_tokens": 148, "ephemeral_1h_input_tokens": 100},
            "output_tokens": 503,
        },
        "0.02564",  # 10240 + 900 + 148 x 6.25 + 100 x 10 + 12575
        id="written-for-both",
    ),
    pytest.param(
        {"input_tokens": 8, "cache_creation_input_tokens": 4, "output_tokens": 1}
        | {"cache_creation": {"ephemeral_1h_input_tokens": 9}},
        "0.000105",  # 40 + 4 x 10 + 25: no more for an hour than was written
        id="more-for-an-hour-than-was-written",
    ),
    pytest.param(
        {
            "input_tokens": 105,
            "output_tokens": 6039,
            "cache_read_input_tokens": 7123,
            "cache_creation_input_tokens": 7345,
            "server_tool_use": {"web_search_requests": 1},
        },
        "0.21096775",  # 525 + 150975 + 3561.5 + 45906.25 + 10000
        id="a-search",
    ),
    pytest.param(
        {
            "input_tokens": 25039,
            "output_tokens": 931,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0,
            "server_tool_use": {"web_fetch_requests": 1, "web_search_requests": 0},
        },
        "0.14847",  # 125195 + 23275: pages that are fetched cost their tokens
        id="a-fetch",
    ),
    pytest.param(
        {"input_tokens": 62, "output_tokens": 1240}
        | {"output_tokens_details": {"thinking_tokens": 1000}},
        "0.03131",  # 310 + 31000: thoughts are part of the output
        id="thoughts",
    ),
]


async def cost_of(proxy: Proxy, *, messages: bool, **options: Any) -> Decimal:
    """Return in USD what one call has cost."""
    headers = HEADERS if messages else {"authorization": f"Bearer {KEY}"}
    path = "/v1/messages" if messages else "/v1/chat/completions"
    headers = {**headers, "x-headrace-deployment": "via-anthropic"}
    async with (
        aiohttp.ClientSession(base_url=proxy.url) as client,
        client.post(path, headers=headers, json={**ASKED, **options}) as response,
    ):
        raw = await response.read()
        assert response.status == 200, raw
    [record] = await proxy.sink.wait()
    return Decimal(record.billing.cost) / 10**9


@pytest.mark.parametrize("messages", [True, False], ids=["messages", "chat"])
@pytest.mark.parametrize(("usage", "usd"), DOCUMENT)
async def test_a_whole_answer_costs_what_its_usage_says(
    usage: dict[str, Any], usd: str, messages: bool, priced: Proxy, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(message(usage=usage)))

    assert await cost_of(priced, messages=messages) == Decimal(usd)


STREAMED = [
    pytest.param(
        {"input_tokens": 25, "output_tokens": 1},
        {"output_tokens": 15},
        "0.0005",  # 125 + 375
        id="plain",
    ),
    pytest.param(
        {"input_tokens": 2679, "output_tokens": 3, **BEGUN},
        {
            "input_tokens": 10682,
            "output_tokens": 510,
            "server_tool_use": {"web_search_requests": 1},
            **BEGUN,
        },
        "0.07616",  # 53410 + 12750 + 10000: counts of the end, which have what was found in them
        id="a-search",
    ),
    pytest.param(
        {
            "input_tokens": 10,
            "cache_creation_input_tokens": 300,
            "cache_creation": {"ephemeral_5m_input_tokens": 200, "ephemeral_1h_input_tokens": 100},
            "output_tokens": 1,
        },
        {"output_tokens": 4},
        "0.0024",  # 50 + 200 x 6.25 + 100 x 10 + 100
        id="written-for-both",
    ),
]


@pytest.mark.parametrize("messages", [True, False], ids=["messages", "chat"])
@pytest.mark.parametrize(("started", "ended", "usd"), STREAMED)
async def test_a_stream_costs_what_its_counts_say_in_the_end(
    started: dict[str, Any],
    ended: dict[str, Any],
    usd: str,
    messages: bool,
    priced: Proxy,
    upstream: ScriptedUpstream,
) -> None:
    first_document, *remainder = message_events(text_events(0, "Par", "is."), usage=ended)
    first_document["message"]["usage"] = started
    upstream.answer_with(stream([first_document, *remainder], is_done=False))

    assert await cost_of(priced, messages=messages, stream=True) == Decimal(usd)


async def test_a_stream_that_breaks_off_costs_what_had_begun(
    priced: Proxy, upstream: ScriptedUpstream
) -> None:
    first_document, *remainder = message_events(text_events(0, "Par", "is."))
    first_document["message"]["usage"] = {"input_tokens": 472, "output_tokens": 2}
    upstream.answer_with(stream([first_document, *remainder], is_done=False, cut_after=5))

    amount = await cost_of(priced, messages=True, stream=True)

    assert amount >= Decimal("0.00241")  # 2360 + 2 x 25, and what came after that by estimate
