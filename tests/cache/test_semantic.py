"""The semantic cache, from policy files to sockets: chats and their embeddings."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from proxy.cache.semantic import MAX_CHARACTERS
from tests.conftest import KEY, Proxy, metric_total, running_proxy
from tests.doubles import (
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    Wire,
    chat,
    chat_events,
    cut_before_head,
    hang,
    respond,
    stream,
)
from tests.for_each import for_each

OTHER_KEY = "hr-other-key"
PROMPT = "How do I reset my password?"
SIMILAR = "What is the way to change my password?"
FURTHER = "How do I reset my router?"
DEGREES = {PROMPT: 0, SIMILAR: 10, FURTHER: 40, "further still": 20}
"""Prompts and the angles of their embeddings. The cosine of 10 degrees is 0.985."""
SEMANTIC = "embeddings: vectors, mode: serve, deadline: 60s"
POLICIES = """
upstreams:
  openai: {{dialect: openai, base_url: '{url}/v1', breaker: off}}
keys:
  support: {{sha256: {key}, deployments: [support-chat, other-chat], may: [refresh]}}
  other: {{sha256: {other}, deployments: [support-chat]}}
policies:
  semantic:
    cache: {{ttl: 1h, {cache} semantic: {{{semantic}}}}}
    {fields}
deployments:
  support-chat: {{targets: [{{upstream: openai, model: smol}}], policy: semantic}}
  other-chat: {{targets: [{{upstream: openai, model: smol}}], policy: semantic}}
  vectors: {{targets: [{{upstream: openai, model: embed, price: {{input: 2}}}}]}}
"""


def embedding(*vectors: Any) -> dict[str, Any]:
    items = [{"object": "embedding", "index": 0, "embedding": vector} for vector in vectors]
    return {"object": "list", "data": items, "usage": {"prompt_tokens": 7, "total_tokens": 7}}


async def embed(request: ReceivedRequest, wire: Wire) -> None:
    """Respond with a vector at the angle of the input."""
    angle = math.radians(DEGREES.get(request.json["input"], 90))
    await respond(embedding([math.cos(angle), math.sin(angle), 0]))(request, wire)


@dataclass
class Client:
    """A client of a proxy with a semantic cache."""

    proxy: Proxy
    upstream: ScriptedUpstream
    bodies: list[bytes] = field(default_factory=list)

    async def ask(
        self,
        prompt: Any = PROMPT,
        *,
        key: str = KEY,
        headers: dict[str, str] | None = None,
        status: int = 200,
        **fields: Any,
    ) -> str:
        """Return the cache result of a chat."""
        body = {"model": "support-chat", **messages(prompt), **fields}
        request_headers = {"authorization": f"Bearer {key}", **(headers or {})}
        reply = await self.proxy.send("/v1/chat/completions", body, request_headers)
        self.bodies.append(reply.raw)
        assert reply.status == status, reply.raw
        return reply.headers["x-headrace-cache"]

    @property
    def embedded(self) -> list[str]:
        requests = self.upstream.requests
        return [item.json["input"] for item in requests if item.path == "/v1/embeddings"]

    @property
    def chats(self) -> int:
        return len(self.upstream.requests) - len(self.embedded)

    async def counted(self, result: str) -> float:
        name = "headrace_cache_semantic_total"
        return float(metric_total(await self.proxy.metrics(), name, result=result))


@asynccontextmanager
async def proxy_with_semantic_cache(
    folder: Path,
    upstream: ScriptedUpstream,
    semantic: str = SEMANTIC,
    *,
    cache: str = "",
    fields: str = "",
    **settings: Any,
) -> AsyncIterator[Client]:
    upstream.answer_with(respond(chat()))
    upstream.by_model["embed"] = embed
    digests = (hashlib.sha256(key.encode()).hexdigest() for key in (KEY, OTHER_KEY))
    policies = POLICIES.format(
        url=upstream.url,
        key=next(digests),
        other=next(digests),
        semantic=semantic,
        cache=cache,
        fields=fields,
    )
    async with running_proxy(folder / "policies", policies, **settings) as proxy:
        yield Client(proxy, upstream)


@pytest.fixture
async def client(tmp_path: Path, upstream: ScriptedUpstream) -> AsyncIterator[Client]:
    async with proxy_with_semantic_cache(tmp_path, upstream) as running:
        yield running


async def test_similar_prompt_gets_the_cached_response(client: Client) -> None:
    results = [await client.ask(prompt) for prompt in (PROMPT, SIMILAR, PROMPT, FURTHER)]

    assert results == ["miss", "hit_semantic", "hit", "miss"]
    assert client.chats == 2
    assert client.embedded == [PROMPT, SIMILAR, FURTHER]
    assert client.bodies[0] == client.bodies[1]
    assert [await client.counted(result) for result in ("hit", "miss")] == [1, 2]


async def test_embedding_is_a_separate_call(client: Client) -> None:
    await client.ask()
    await client.ask(SIMILAR)
    records = await client.proxy.sink.wait(4)
    calls = [record for record in records if record.key == "support"]
    embeddings = [record for record in records if record.key == "cache/support-chat"]

    assert [record.plan.deployment for record in embeddings] == ["vectors", "vectors"]
    assert [record.billing.cost for record in embeddings] == [14_000, 14_000]
    assert [item.ids.trace_id for item in embeddings] == [item.ids.trace_id for item in calls]
    assert [record.semantic_match for record in calls] == [False, True]
    assert calls[1].billing.cost == 0
    assert calls[1].saved is not None


async def test_either_form_serves_a_similar_prompt(client: Client) -> None:
    client.upstream.answer_with(stream(chat_events()))

    await client.ask(stream=True)
    results = [await client.ask(SIMILAR, stream=streamed) for streamed in (True, False)]

    assert results == ["hit_semantic", "hit_semantic"]
    assert client.chats == 1


async def test_portkey_client_gets_semantic_hit_status(client: Client) -> None:
    headers = {"x-portkey-api-key": KEY, "x-portkey-virtual-key": "support-chat"}
    await client.ask(headers=headers)
    body = {"model": "support-chat", **messages(SIMILAR)}

    reply = await client.proxy.send("/v1/chat/completions", body, headers)
    assert reply.headers["x-portkey-cache-status"] == "SEMANTIC HIT"


def messages(prompt: Any, *earlier: dict[str, str], **fields: Any) -> dict[str, Any]:
    return {"messages": [*earlier, {"role": "user", "content": prompt, **fields}]}


SYSTEM = {"role": "system", "content": "Be brief."}
TURN = ({"role": "user", "content": PROMPT}, {"role": "assistant", "content": "Press it."})
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "reset"}}
DIFFERENCES: dict[str, dict[str, Any]] = {
    "system prompt": messages(SIMILAR, SYSTEM),
    "name": messages(SIMILAR, name="mia"),
    "turn before": messages(SIMILAR, *TURN),
    "temperature": {"temperature": 0.5},
    "temperature above the maximum": {"temperature": 1.5},
    "length": {"max_tokens": 5},
    "context": {"context": "Passwords are reset on Mondays."},
    "tools": {"tools": [TOOL]},
    "unknown field": {"novelty": 1},
    "parts": messages([{"type": "text", "text": SIMILAR}]),
    "picture": messages([{"type": "text", "text": SIMILAR}, PICTURE]),
    "deployment": {"model": "other-chat"},
    "key": {"key": OTHER_KEY},
    "namespace": {
        "headers": {
            "x-portkey-api-key": KEY,
            "x-portkey-virtual-key": "support-chat",
            "x-portkey-cache-namespace": "b",
        }
    },
}


@pytest.mark.parametrize("name", DIFFERENCES)
async def test_only_the_last_prompt_may_differ(name: str, client: Client) -> None:
    await client.ask()
    other_response = await client.ask(SIMILAR, **DIFFERENCES[name])
    same_response = await client.ask(SIMILAR)

    assert (other_response, same_response) == ("miss", "hit_semantic")


async def test_equal_context_matches(client: Client) -> None:
    fields: dict[str, Any] = {"temperature": 0.2, "tools": [TOOL], "novelty": 1}

    await client.ask(**messages(PROMPT, SYSTEM), **fields)

    assert await client.ask(**messages(SIMILAR, SYSTEM), **fields) == "hit_semantic"


INELIGIBLE: dict[str, dict[str, Any]] = {
    "high temperature": {"temperature": 1.5},
    "several turns": messages(SIMILAR, *TURN),
    "parts": messages([{"type": "text", "text": SIMILAR}]),
    "long": messages("x" * (MAX_CHARACTERS + 1)),
    "several lines": messages("Sort this:\n  b\n  a"),
    "blank": messages(" "),
    "answer of the assistant": {"messages": [{"role": "assistant", "content": SIMILAR}]},
}


async def test_ineligible_prompts_are_not_embedded(client: Client) -> None:
    for fields in INELIGIBLE.values():
        assert await client.ask(**fields) == "miss"

    assert client.embedded == []
    assert await client.counted("ineligible") == len(INELIGIBLE)


@pytest.mark.parametrize("tools", ["tools", "functions"])
async def test_calls_with_tools_are_not_compared(
    tools: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with proxy_with_semantic_cache(tmp_path, upstream, cache="tool_calls: true,") as client:
        fields: dict[str, Any] = {tools: [TOOL if tools == "tools" else TOOL["function"]]}
        results = [await client.ask(prompt, **fields) for prompt in (PROMPT, SIMILAR)]
        plain = [await client.ask(prompt) for prompt in (PROMPT, SIMILAR)]

    assert results == ["miss", "miss"]
    assert plain == ["miss", "hit_semantic"]


@pytest.mark.parametrize("action", ["flag", "mask"])
@pytest.mark.parametrize("mode", ["shadow", "enforce"])
async def test_prompt_with_findings_is_not_embedded(
    mode: str, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    guard = f"input: [{{guard: pii, action: {action}, mode: {mode}}}]"
    async with proxy_with_semantic_cache(tmp_path, upstream, fields=guard) as client:
        for prompt in ("Who is mia@example.com?", "Tell me who mia@example.com is", PROMPT):
            await client.ask(prompt)
        similar = await client.ask(SIMILAR)

    assert client.embedded == [PROMPT, SIMILAR]
    assert similar == "hit_semantic"


async def test_over_budget_gets_exact_hits_only(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    limit = "limits: [{name: minute, tokens: 30 per minute, per: key}]"
    async with proxy_with_semantic_cache(tmp_path, upstream, fields=limit) as client:
        assert await client.ask(max_tokens=5) == "miss"
        exact = await client.ask(max_tokens=5)
        await client.ask(SIMILAR, max_tokens=5, status=429)

    assert exact == "hit"
    assert client.embedded == [PROMPT]


async def test_cache_headers_control_lookup_and_storage(client: Client) -> None:
    await client.ask()
    client.upstream.answer_with(respond(chat("Press the button.")))

    refresh = await client.ask(headers={"cache-control": "no-cache"})
    similar = await client.ask(SIMILAR)
    no_store = await client.ask(SIMILAR, headers={"cache-control": "no-store"})

    assert (refresh, similar, no_store) == ("refresh", "hit_semantic", "miss")
    assert b"Press the button." in client.bodies[2]


async def test_equal_prompts_at_once_share_one_embedding(client: Client) -> None:
    await client.ask()

    results = await asyncio.gather(*(client.ask(SIMILAR) for _ in range(20)))

    assert results == ["hit_semantic"] * 20
    assert client.embedded == [PROMPT, SIMILAR]


async def test_match_is_not_stored_for_further_matches(client: Client) -> None:
    results = [await client.ask(prompt) for prompt in (PROMPT, SIMILAR, "further still")]

    assert results == ["miss", "hit_semantic", "miss"]


async def test_deleted_response_is_not_found(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with proxy_with_semantic_cache(tmp_path, upstream, cache_bytes=2500) as client:
        await client.ask()
        for number in range(3):  # evict the response
            await client.ask(f"Prompt {number}", temperature=1.5)

        assert [await client.ask(SIMILAR) for _ in range(2)] == ["miss", "hit"]
        assert await client.counted("miss") == 2


async def test_vectors_end_with_the_process(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    settings: dict[str, Any] = {"cache_file": tmp_path / "cache", "cache_secret": "s" * 32}
    prompts = {"before": (PROMPT, SIMILAR), "after": (PROMPT, SIMILAR, SIMILAR)}
    results = {}
    for run, run_prompts in prompts.items():
        async with proxy_with_semantic_cache(
            tmp_path, upstream, cache="store: sqlite,", **settings
        ) as client:
            results[run] = [await client.ask(prompt) for prompt in run_prompts]

    assert results == {"before": ["miss", "hit_semantic"], "after": ["hit", "miss", "hit"]}


FAILURES: dict[str, tuple[Script, str]] = {
    "error": (respond({"error": {"message": "no"}}, 500), "failed"),
    "reset": (cut_before_head(), "failed"),
    "NaN": (respond(b'{"data": [{"embedding": [NaN, 1]}]}'), "failed"),
    "none": (respond(embedding()), "invalid"),
    "two": (respond(embedding([1, 0], [1, 0])), "invalid"),
    "10 MB": (respond(embedding([0.123456] * 1_000_000)), "invalid"),
    "silence": (hang(), "timeout"),
}


@pytest.mark.parametrize("mode", ["serve", "shadow"])
@pytest.mark.parametrize("name", FAILURES)
async def test_failing_embedding_is_a_miss(
    name: str, mode: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    script, result = FAILURES[name]
    deadline = "200ms" if result == "timeout" else "60s"
    semantic = f"embeddings: vectors, mode: {mode}, deadline: {deadline}"
    async with proxy_with_semantic_cache(tmp_path, upstream, semantic) as client:
        await client.ask()
        upstream.by_model["embed"] = script
        failed = await client.ask(SIMILAR)
        await client.proxy.sink.wait(4)
        upstream.by_model["embed"] = embed
        exact, match = await client.ask(SIMILAR), await client.ask(FURTHER + "?")

        assert (failed, exact, match) == ("miss", "hit", "miss")
        assert await client.counted(result) == 1


@for_each(("threshold", "result"), [("0.99", "miss"), ("0.98", "hit_semantic")])
async def test_threshold_decides_matches(
    threshold: str, result: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    semantic = f"{SEMANTIC}, threshold: {threshold}"
    async with proxy_with_semantic_cache(tmp_path, upstream, semantic) as client:
        await client.ask()

        assert await client.ask(SIMILAR) == result


async def test_shadow_mode_counts_without_delay(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()

    async def slow(request: ReceivedRequest, wire: Wire) -> None:
        await gate.wait()
        await embed(request, wire)

    semantic = "embeddings: vectors, deadline: 60s"
    async with proxy_with_semantic_cache(tmp_path, upstream, semantic) as client:
        upstream.by_model["embed"] = slow
        results = [await client.ask(prompt) for prompt in (PROMPT, FURTHER)]  # without vectors
        gate.set()
        await client.proxy.sink.wait(4)
        results += [await client.ask(SIMILAR)]
        records = await client.proxy.sink.wait(6)

        assert results == ["miss"] * 3
        assert client.chats == 3
        assert [await client.counted(item) for item in ("would_hit", "hit")] == [1, 0]
    calls = [record for record in records if record.key == "support"]
    assert [record.semantic_match for record in calls] == [False, False, True]
