"""An answer whose content is a list of parts says the same when it is given again, in whatever form
it came, is asked for and is read."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from aiohttp import ClientSession

from tests.adversary.test_cut_lists_of_parts import CLIENTS
from tests.conftest import running_proxy, world
from tests.dialects.test_anthropic import ASKED, HEADERS, THOUGHT, accumulated, events_of
from tests.doubles import (
    Json,
    ScriptedUpstream,
    answer,
    block_events,
    message,
    message_events,
    stream,
)
from tests.recipes.provider_answers import MISTRAL_THINKING, streamed
from tests.test_pipeline import BEARER

APART = frozenset({"messages", "responses"})  # forms whose events make no whole answer
POLICY = "\npolicies:\n  default: {match: all, cache: {ttl: 1h}}\n"


@pytest.mark.parametrize("again", [True, False], ids=["to a stream", "to a whole"])
@pytest.mark.parametrize("first", [True, False], ids=["from a stream", "from a whole"])
@pytest.mark.parametrize("asked", CLIENTS)
async def test_it_says_all_of_it_again(
    asked: str, first: bool, again: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    each = MISTRAL_THINKING
    path, body = CLIENTS[asked]
    shown: list[str] = []
    kept: list[str] = []
    async with (
        running_proxy(tmp_path / "p", world(upstream.url) + POLICY) as proxy,
        ClientSession(base_url=proxy.url, headers=BEARER) as client,
    ):
        for stream in (first, again, again):
            upstream.answer_with(streamed(each) if stream else answer(each.whole))
            asking = {"model": "search-answers", "stream": stream, **body}
            async with client.post(path, json=asking) as response:
                shown.append(await response.text())
                kept.append(response.headers["x-headrace-cache"])

    assert kept[-1] == "hit"
    assert len(upstream.requests) == (2 if asked in APART and first != again else 1)
    for words in ("France ha", "s one capital.", " Par", "is."):
        assert all(words in text for text in shown)


CITED: Json = {"type": "text", "text": "Paris.", "citations": [{"type": "x", "cited_text": "Q"}]}
SEARCHED: Json = {"type": "server_tool_use", "id": "s_1", "name": "web_search", "input": {}}
BLOCKS = (THOUGHT, SEARCHED, CITED)
EVENTS = message_events(
    block_events(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": THOUGHT["thinking"]},
        {"type": "signature_delta", "signature": THOUGHT["signature"]},
    ),
    block_events(1, SEARCHED),
    block_events(
        2,
        {"type": "text", "text": "", "citations": []},
        {"type": "text_delta", "text": "Paris."},
        {"type": "citations_delta", "citation": {"type": "x", "cited_text": "Q"}},
    ),
)


@pytest.mark.parametrize("first", [True, False], ids=["a stream", "a whole"])
async def test_keeps_event_parts(first: bool, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    said: list[list[str]] = []
    async with (
        running_proxy(tmp_path / "p", world(upstream.url) + POLICY) as proxy,
        ClientSession(base_url=proxy.url, headers=HEADERS) as client,
    ):
        for streamed_now in (first, not first) * 2:
            script = stream(EVENTS, done=False) if streamed_now else answer(message(*BLOCKS))
            upstream.answer_with(script)
            body = {**ASKED, "stream": streamed_now}
            to = {"x-headrace-deployment": "via-anthropic"}
            async with client.post("/v1/messages", json=body, headers=to) as response:
                raw = await response.read()
            whole = accumulated(events_of(raw)) if streamed_now else orjson.loads(raw)
            said.append([each["type"] for each in whole["content"]])
            assert THOUGHT["signature"].encode() in raw
            assert b"cited_text" in raw

    assert said == [["thinking", "server_tool_use", "text"]] * 4
    assert len(upstream.requests) == 2
