"""Tool loops through providers that differ from OpenAI, by clients of every dialect."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import DIGEST, KEY, Proxy, Reply, running_proxy
from tests.doubles import ScriptedUpstream
from tests.for_each import for_each
from tests.recipes.strict_servers import ANSWER, SERVERS, SIGNATURE, THOUGHT, Provider
from tests.recipes.tool_loops import CLIENTS, QUESTION, RESULT, Client, events

Json = dict[str, Any]
GUARDING = """
  guarding:
    input: [{guard: secrets, action: mask}, {guard: pii, action: mask, restore: true}]
    output: [{guard: secrets, action: mask}, {guard: keywords, words: [hippo], action: mask}]
"""
CASES = [*product(SERVERS, CLIENTS, ("whole", "streamed"), ("bare", "guarded"))]


def policies(url: str) -> Iterator[str]:
    yield "upstreams:"
    for name in SERVERS:
        base = f"base_url: '{url}/{name}/v1', api_key: '${{UPSTREAM_KEY}}'"
        yield f"  {name}: {{dialect: openai_compatible, {base}, provider: {name}}}"
    yield "deployments:"
    for name, server in SERVERS.items():
        only = ", endpoint: chat" if name == "groq" else ""  # which has Responses, too
        targets = f"targets: [{{upstream: {name}, model: {server.model}{only}}}]"
        yield f"  {name}-bare: {{{targets}}}"
        yield f"  {name}-guarded: {{{targets}, policy: guarding}}"
    listed = ", ".join(f"{name}-bare, {name}-guarded" for name in SERVERS)
    yield f"policies:{GUARDING}keys:\n  agent: {{sha256: {DIGEST}, deployments: [{listed}]}}"


class Agent:
    """Runs tool loops through a proxy with strict servers behind it."""

    def __init__(self, proxy: Proxy, provider: Provider) -> None:
        self._proxy, self._provider = proxy, provider

    @property
    def accepted_bodies(self) -> list[Json]:
        return self._provider.accepted_bodies

    def start_case(self) -> None:
        self._provider.accepted_bodies.clear()

    async def send(self, client: Client, deployment: str, body: Json, *, stream: bool) -> Reply:
        headers = {"authorization": f"Bearer {KEY}", "x-headrace-deployment": deployment}
        name = deployment.rpartition("-")[0]
        request = {**body, "model": SERVERS[name].model, "stream": stream}
        if stream and client is CLIENTS["chat"]:
            request["stream_options"] = {"include_usage": True}
        return await self._proxy.send(client.path, request, headers)

    async def ask(self, client: Client, deployment: str, body: Json, *, stream: bool) -> Json:
        reply = await self.send(client, deployment, body, stream=stream)
        assert reply.status == 200, reply.raw
        return client.read_stream(events(reply.raw)) if stream else client.read(reply.raw)

    async def loop(self, client: Client, deployment: str, *, stream: bool) -> Json:
        calls = await self.ask(client, deployment, client.first, stream=stream)
        second = client.second(client.first, calls)
        return await self.ask(client, deployment, second, stream=stream)


@pytest.fixture
async def agent(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Agent]:
    provider = Provider()
    upstream.answer_with(provider.script)
    text = "\n".join(policies(upstream.url))
    async with running_proxy(tmp_path / "loops", text) as proxy:
        yield Agent(proxy, provider)


@for_each(("name", "dialect", "form", "guards"), CASES)
async def test_tool_loop_ends_with_a_response(
    name: str, dialect: str, form: str, guards: str, agent: Agent
) -> None:
    client, server = CLIENTS[dialect], SERVERS[name]

    answered = await agent.loop(client, f"{name}-{guards}", stream=form == "streamed")

    assert client.text(answered) == ANSWER
    first_document, second = agent.accepted_bodies
    bounds = {"max_tokens", "max_completion_tokens"} & first_document.keys()
    assert server.bound in bounds or bounds == {"max_tokens"}
    assert [QUESTION in str(body["messages"]) for body in (first_document, second)] == [True, True]
    *_, calls, result = second["messages"]
    [call] = calls["tool_calls"]
    assert (result["content"], result["tool_call_id"]) == (RESULT, call["id"])
    assert (call["id"], call["function"]["arguments"]) == (
        server.call_id,
        '{"of": "France"}' if dialect != "messages" else '{"of":"France"}',
    )
    if name in ("deepseek", "moonshotai"):
        assert calls["reasoning_content"] == THOUGHT
    if server.signs:
        assert call["extra_content"] == {"google": {"thought_signature": SIGNATURE}}


@for_each(("first_text", "second", "dialect"), [*product(SERVERS, SERVERS, CLIENTS)])
async def test_another_provider_can_finish_a_loop(
    first_text: str, second: str, dialect: str, agent: Agent
) -> None:
    client = CLIENTS[dialect]

    calls = await agent.ask(client, f"{first_text}-guarded", client.first, stream=False)
    next_body = client.second(client.first, calls)
    answered = await agent.ask(client, f"{second}-guarded", next_body, stream=False)

    assert client.text(answered) == ANSWER


WORDS = {
    "mistral": (422, "made_up: Extra inputs are not permitted"),
    "google": (400, 'Invalid JSON payload received. Unknown name "made_up": Cannot find field.'),
    "groq": (400, "property 'made_up' is unsupported"),
    "cerebras": (400, "body.made_up: property 'body.made_up' is unsupported"),
}
"""What a provider says of a field that nobody knows."""


@for_each(("name", "dialect", "stream"), [*product(WORDS, CLIENTS, (False, True))])
async def test_client_reads_refusal(name: str, dialect: str, stream: bool, agent: Agent) -> None:
    client = CLIENTS[dialect]

    body = {**client.first, "made_up": 1}
    reply = await agent.send(client, f"{name}-bare", body, stream=stream)

    assert (reply.status, reply.error["message"]) == WORDS[name]
