"""Tests of added request fields, run in a copy of the repository."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.dialects.requests.field_filter import apply_field_rules
from proxy.guards.text.documents import collect_request_texts
from proxy.types import Json, Upstream
from tests.conftest import DIGEST, Proxy, running_proxy
from tests.doubles import ScriptedUpstream, chat, message, respond

POLICIES = """
upstreams:
  openai: {{dialect: openai, base_url: '{url}/v1'}}
  anthropic: {{dialect: anthropic, base_url: '{url}'}}
keys:
  support-widget: {{sha256: {digest}, deployments: [chat, messages]}}
policies:
  house:
    input: [{{guard: keywords, words: [hippo], fields: [content]}}]
deployments:
  chat:
    policy: house
    targets: [{{upstream: openai, model: smol}}]
    cache: {{ttl: 1h, store: memory}}
  messages: {{targets: [{{upstream: anthropic, model: smol}}]}}
"""


@pytest.fixture
async def proxy(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    policies = POLICIES.format(url=upstream.url, digest=DIGEST)
    async with running_proxy(tmp_path / "policies", policies) as running:
        yield running


async def test_field_is_checked_and_forwarded(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(chat()))

    wrong = await proxy.chat(model="chat", acme_notes=1)
    replies = [await proxy.chat(model="chat", acme_notes=text) for text in ("a", "b", "a")]

    assert wrong.status == 400
    assert "acme_notes: must be a string" in wrong.error["message"]
    assert [reply.status for reply in replies] == [200, 200, 200]
    assert [request.json["acme_notes"] for request in upstream.requests] == ["a", "b"]


async def test_caller_field_shares_responses(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(chat()))

    statuses = [(await proxy.chat(model="chat", acme_session=text)).status for text in ("a", "b")]

    assert statuses == [200, 200]
    assert len(upstream.requests) == 1


async def test_guards_read_texts_of_field(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    blocked = await proxy.chat(model="chat", acme_notes="a hippo")

    assert blocked.status == 400
    assert not upstream.requests


async def test_upstream_without_field_refuses(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    refused = await proxy.chat(model="messages", acme_notes="a")

    assert refused.status == 400
    assert "acme_notes: this value is not supported" in refused.error["message"]
    assert not upstream.requests


async def test_field_is_translated_for_other_api(proxy: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(message({"type": "text", "text": "Paris."})))

    moved = await proxy.chat(model="messages", acme_style="brief")

    assert moved.status == 200
    [request] = upstream.requests
    assert request.json["output_config"] == {"acme_style": "brief"}
    assert "acme_style" not in request.json


def test_member_is_known_in_items_namespaces_and_results() -> None:
    data = {"acme_data": {"server_url": "a", "deeper": ["b"]}}
    upstream = Upstream("openai", "openai", "https://llm.example")
    tools = [{"type": "namespace", "tools": [data]}, data]
    free: Json = {"tools": tools, "input": [{"type": "tool_search_output", "tools": tools}]}
    assert apply_field_rules(free, upstream) == (free, [])

    texts: Json = {
        "input": [
            {"type": "function_call_output", "output": [{"acme_data": "one"}]},
            {"role": "user", "content": [{"type": "acme", "acme_data": "two"}]},
        ],
        "messages": [{"role": "tool", "content": [{"acme_data": "three"}]}],
    }
    texts_found = [(text.text, text.kind) for text in collect_request_texts(texts).texts]
    assert [item for item in texts_found if item[0] in ("one", "two", "three")] == [
        ("one", "arguments"),
        ("two", "arguments"),
        ("three", "arguments"),
    ]
    assert "acme_data" not in [text for text, _ in texts_found]
