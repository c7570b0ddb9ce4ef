"""The calls of tools of a chat's server, over sockets: what clients of each dialect get of them,
however the server says them, streamed or whole, with guards, with a cache and without."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession

from proxy.dialects.waiting import MOST_EVENTS
from tests.adversary.test_call_shapes import SHAPES, Call, answer_of, chat_calls
from tests.adversary.test_items_in_turns import in_sequence
from tests.conftest import running_proxy, world
from tests.dialects.test_anthropic import accumulated, events_of
from tests.dialects.test_responses import BEARER
from tests.dialects.test_responses import accumulated as accumulated_response
from tests.doubles import Json, Script, ScriptedUpstream, answer, chat, stream
from tests.guardrails.test_run import EMAIL, PII

QUESTION = [{"role": "user", "content": "p"}]
BY: Mapping[str, tuple[str, Json]] = {
    "responses": ("/v1/responses", {"input": QUESTION}),
    "chat": ("/v1/chat/completions", {"messages": QUESTION}),
    "messages": ("/v1/messages", {"messages": QUESTION, "max_tokens": 9}),
}
POLICIES = {
    "plain": "cache: {off: true}",
    "guarded": f"output: [{PII}]",
    "kept": "cache: {ttl: 60s, tool_calls: true}",
}
TEXTS = [json.dumps({"to": EMAIL}), "{}", json.dumps({"b": [EMAIL]})]


def calls_in(by: str, raw: bytes, *, streamed: bool) -> list[Call]:
    """Return the id, the name and the arguments of each call that a client has."""
    if by == "chat":
        if not streamed:
            calls = json.loads(raw)["choices"][0]["message"]["tool_calls"]
            return [(c.get("id"), *c["function"].values()) for c in calls]
        lines = [line[6:] for line in raw.splitlines() if line.startswith(b"data: {")]
        return chat_calls([json.loads(line) for line in lines])
    if by == "responses":
        whole = accumulated_response(raw) if streamed else json.loads(raw)
        found = [each for each in whole["output"] if each["type"] == "function_call"]
        return [(each["call_id"], each["name"], each["arguments"]) for each in found]
    whole = accumulated(events_of(raw)) if streamed else json.loads(raw)
    uses = [each for each in whole["content"] if each["type"] == "tool_use"]
    return [(each["id"], each["name"], json.dumps(each["input"])) for each in uses]


def as_made(texts: list[str], policy: str) -> list[tuple[str, str]]:
    shown = [each.replace(EMAIL, "[EMAIL]") if policy == "guarded" else each for each in texts]
    return [(f"f_{at % 2}", text) for at, text in enumerate(shown)]


class Asking:
    """A client of one dialect, which asks a server of chats through a proxy."""

    def __init__(self, by: str, client: ClientSession, upstream: ScriptedUpstream) -> None:
        self._by = by
        self._client = client
        self._upstream = upstream
        self._asked = 0

    async def ask(self, script: Script, *, streamed: bool, again: bool = False) -> list[Call]:
        """Return the calls of an answer, which is the last one's where it is kept."""
        self._upstream.answer_with(script)
        self._asked += not again
        path, body = BY[self._by]
        sent = {**body, "model": "m", "stream": streamed, "temperature": self._asked / 100}
        headers = BEARER | {"x-headrace-deployment": "search-answers"}
        async with self._client.post(path, headers=headers, json=sent) as answered:
            raw = await answered.read()
            assert answered.status == 200, raw
        return calls_in(self._by, raw, streamed=streamed)


@asynccontextmanager
async def asking(
    by: str, policy: str, tmp_path: Path, upstream: ScriptedUpstream
) -> AsyncIterator[Asking]:
    policies = f"{world(upstream.url)}\npolicies: {{default: {{match: all, {POLICIES[policy]}}}}}\n"
    async with (
        running_proxy(tmp_path / "policies", policies) as proxy,
        ClientSession(base_url=proxy.url) as client,
    ):
        yield Asking(by, client, upstream)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("by", BY)
async def test_each_shape_of_a_stream_is_the_calls_that_the_server_made(
    by: str, policy: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    pieces = [[text[:5], text[5:]] if text != "{}" else [text] for text in TEXTS]
    async with asking(by, policy, tmp_path, upstream) as client:
        for name, shape in SHAPES.items():
            if by == "chat" and shape.placeholder:
                continue  # what came, as it came
            said = answer_of(shape, pieces, in_sequence())
            script = stream([{**each, "object": "chat.completion.chunk"} for each in said])
            asks = [(True, False)] + [(True, True), (False, True)] * (policy == "kept")
            for streamed, again in asks if by == "chat" else asks[:2]:
                calls = await client.ask(script, streamed=streamed, again=again)
                if by == "chat" and streamed and shape.index != "own" and policy != "guarded":
                    continue
                assert [each[1:] for each in calls] == as_made(TEXTS, policy), (name, streamed)
                assert by == "chat" or all(each[0] for each in calls), name
    assert len(upstream.requests) == len(SHAPES) - (4 if by == "chat" else 0)


def whole(texts: list[str], finish: str | None, **more: object) -> Json:
    calls = [
        {"type": "function", "function": {"name": f"f_{at % 2}", "arguments": text}, **more}
        for at, text in enumerate(texts)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    return chat(choices=[{"index": 0, "message": message, "finish_reason": finish}])


WHOLE: Mapping[str, tuple[list[str], Json]] = {
    "usual": (TEXTS, {"id": "a"}),
    "no ids": (TEXTS, {}),
    "null ids": (TEXTS, {"id": None}),
    "one index": (TEXTS, {"id": "", "index": 0}),
    "no arguments": ([""] * 3, {"index": 0}),
    "empty arguments": (["{}"] * 3, {}),
    "not even whole": (['{"a":', "{}", ""], {}),
    "many, of much": ([json.dumps({"b": "x" * 4000})] * 60, {}),
}


@pytest.mark.parametrize("finish", ["tool_calls", None])
@pytest.mark.parametrize("by", ["messages", "responses"])
async def test_a_whole_answer_is_the_calls_that_the_server_made(
    by: str, finish: str | None, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with asking(by, "plain", tmp_path, upstream) as client:
        for way, (texts, more) in WHOLE.items():
            for streamed in (True, False):
                if way == "not even whole" and by == "messages":
                    continue  # no input of a block can be that
                script = answer(whole(texts, finish, **more))
                calls = await client.ask(script, streamed=streamed)
                made = [
                    (n, text or "{}" if by == "messages" else text)
                    for n, text in as_made(texts, "")
                ]
                assert [each[1:] for each in calls] == made, (way, streamed)
                assert all(each[0] for each in calls), (way, streamed)


@pytest.mark.parametrize("by", ["messages", "responses"])
async def test_reads_all_calls(by: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    texts = [json.dumps({"b": "x" * 4000})] * 60
    calls = [
        {"index": at, "id": f"c_{at}", "function": {"name": f"f_{at % 2}", "arguments": text}}
        for at, text in enumerate(["", *texts[1:]])
    ]
    rest = [{"index": 0, "function": {"arguments": texts[0]}}]
    chunks = [
        {"id": "1", "choices": [{"index": 0, "delta": {"tool_calls": each}, "finish_reason": end}]}
        for each, end in ((calls, None), (rest, None), ([], "tool_calls"))
    ]
    assert len(json.dumps(calls)) * len(calls) > 8 * 1024 * 1024
    assert len(calls) < MOST_EVENTS

    async with asking(by, "plain", tmp_path, upstream) as client:
        got = await client.ask(stream(chunks), streamed=True)

    assert [each[1:] for each in got] == as_made(texts, "")
