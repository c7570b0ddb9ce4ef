"""Costs of published usage, computed by hand and by the product, for every API.

``published_usage`` has the usage and the arithmetic. Clients of each API call upstreams of each
API, whole and streamed.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession

from tests.conformance.published_usage import PUBLISHED, Published
from tests.conftest import DIGEST, KEY, Proxy, running_proxy
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    chat,
    chat_events,
    item_events,
    message,
    message_events,
    respond,
    response,
    response_events,
    stream,
    text_events,
    text_item,
)

REQUESTS = [{"role": "user", "content": "Name the capital of France."}]
BEARER = {"authorization": f"Bearer {KEY}"}
CLIENTS: dict[str, tuple[str, Json]] = {
    "chat": ("/v1/chat/completions", {"messages": REQUESTS}),
    "messages": ("/v1/messages", {"messages": REQUESTS, "max_tokens": 9000}),
    "responses": ("/v1/responses", {"input": "Name the capital of France."}),
}
FORMS = {
    "chat": "dialect: openai, base_url: '{url}/v1'",
    "messages": "dialect: anthropic, base_url: '{url}'",
    "responses": "dialect: openai, base_url: '{url}/v1'",
}
TEXT = text_item(" Paris.")
CUT_PRICE = "{input: 2, output: 8}"


def policies(url: str) -> str:
    """Return a deployment for each usage, and for each API one whose streams break off."""
    key = "api_key: '${UPSTREAM_KEY}'"
    ups = [f"  {form}: {{{text.format(url=url)}, {key}}}" for form, text in FORMS.items()]
    targets = [
        (name, published.upstream, f"{{{published.price}}}")
        for name, published in PUBLISHED.items()
    ]
    targets += [(f"cut-{form}", form, CUT_PRICE) for form in FORMS]
    deployments = [
        f"  {name}: {{targets: [{{upstream: {form}, model: m-{name}, price: {price}"
        f"{'' if form == 'messages' else f', endpoint: {form}'}}}]}}"
        for name, form, price in targets
    ]
    reach = ", ".join(name for name, _, _ in targets)
    keys = f"keys: {{support-widget: {{sha256: {DIGEST}, deployments: [{reach}]}}}}"
    return "\n".join(["upstreams:", *ups, keys, "deployments:", *deployments])


@pytest.fixture
async def priced(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    async with running_proxy(tmp_path / "priced", policies(upstream.url)) as running:
        yield running


def upstream_script(published: Published, *, streamed: bool) -> Script:
    if published.upstream == "messages":
        if not streamed:
            return respond(message(usage=published.usage))
        first_document, *remainder = message_events(
            text_events(0, " Par", "is."), usage=published.usage
        )
        first_document["message"]["usage"] = published.begun or {
            **published.usage,
            "output_tokens": 1,
        }
        return stream([first_document, *remainder], is_done=False)
    if published.upstream == "responses":
        items = [*published.more.get("output", ()), TEXT]
        document = response(*items, usage=published.usage)
        texts = item_events(len(items) - 1, TEXT, " Par", "is.")
        return (
            stream(response_events(texts, document=document), is_done=False)
            if streamed
            else respond(document)
        )
    if not streamed:
        return respond(chat(" Paris.", usage=published.usage))
    events = chat_events(" Par", "is.")
    return stream([*events[:-1], {**events[-1], "usage": published.usage}])


async def call(proxy: Proxy, client: str, deployment: str, **options: Any) -> bytes:
    path, body = CLIENTS[client]
    async with (
        ClientSession(base_url=proxy.url) as session,
        session.post(
            path, headers=BEARER, json={"model": deployment, **body, **options}
        ) as response,
    ):
        raw = await response.read()
        assert response.status == 200, raw
        return raw


def shown_tokens(client: str, raw: bytes, *, streamed: bool) -> tuple[int, int]:
    """Return the prompt and completion tokens that a client reads."""
    documents = [raw]
    if streamed:
        lines = [line[6:] for line in raw.splitlines() if line.startswith(b"data: {")]
        documents = [line for line in lines if b'"usage"' in line]
    last_value = json.loads(documents[-1])
    used = (last_value.get("response") or last_value)["usage"]
    if client == "chat":
        return used["prompt_tokens"], used["completion_tokens"]
    cached = used.get("cache_read_input_tokens") or 0, used.get("cache_creation_input_tokens") or 0
    return used["input_tokens"] + sum(cached), used["output_tokens"]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", PUBLISHED)
async def test_cost_equals_the_manual_calculation(
    name: str, client: str, streamed: bool, priced: Proxy, upstream: ScriptedUpstream
) -> None:
    published = PUBLISHED[name]
    upstream.answer_with(upstream_script(published, streamed=streamed))
    options: Json = {"stream": True} if streamed else {}
    if streamed and client == "chat":
        options["stream_options"] = {"include_usage": True}

    raw = await call(priced, client, name, **options)

    [record] = await priced.sink.wait()
    assert Decimal(record.billing.cost) / 10**9 == published.usd
    assert record.billing.usage_source == "provider"
    tokens = record.billing.tokens
    assert (tokens.prompt_total, tokens.completion_total) == published.shown
    if client != published.upstream:  # clients of the same API read the usage unchanged
        assert shown_tokens(client, raw, streamed=streamed) == published.shown


CUT = {
    "chat": (chat_events(" Paris", " is the capital."), 3),
    "messages": (message_events(text_events(0, " Paris", " is the capital.")), 5),
    "responses": (response_events(item_events(0, TEXT, " Paris", " is the capital.")), 6),
}
"""Streams of each form, and after how many events the connection breaks: both texts are out."""


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("form", FORMS)
async def test_broken_stream_costs_its_tokens_so_far(
    form: str, client: str, priced: Proxy, upstream: ScriptedUpstream
) -> None:
    events, count_after = CUT[form]
    upstream.answer_with(stream(events, is_done=False, cut_after=count_after))
    options = {"stream_options": {"include_usage": True}} if client == "chat" else {}

    try:
        await call(priced, client, f"cut-{form}", stream=True, **options)
    except aiohttp.ClientPayloadError:
        assert client == "messages"

    [record] = await priced.sink.wait()
    tokens = record.billing.tokens
    assert (record.outcome, record.billing.usage_source) == ("upstream_error", "partial_estimate")
    assert record.billing.cost == 2000 * tokens.prompt_total + 8000 * tokens.completion_total
    assert tokens.prompt_total >= 5  # prompt of 27 characters
    assert 5 <= tokens.completion_total <= 12  # response of 22 characters
