"""A stream that is blocked at its first words is an error response."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.doubles import ScriptedUpstream, chat_events, message_events, stream, text_events
from tests.guards.test_run import ask, guarded
from tests.test_pipeline import BEARER


@pytest.mark.parametrize("wants", ["chat", "messages", "responses"])
async def test_messages_blocked_at_their_first_words_are_an_error(
    wants: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(stream(message_events(text_events(0, "A hip", "po."))))
    fields: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
    body = {"model": "anthropic-model", "stream": True, **fields}
    paths = {"chat": "/v1/chat/completions", "messages": "/v1/messages"}
    if wants == "responses":
        body = {"model": "anthropic-model", "stream": True, "input": "Hi"}
    guards = "output: [{guard: keywords, words: [hippo], action: block}]"
    async with (
        guarded(tmp_path, upstream, guards) as (_, client),
        client.post(paths.get(wants, "/v1/responses"), headers=BEARER, json=body) as response,
    ):
        answered = await response.json()

    assert (response.status, "error" in answered) == (400, True)


@pytest.mark.parametrize("action", ["block", "flag"])
async def test_chat_blocked_at_its_first_words_is_an_error(
    action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(stream(chat_events("A hip", "po.")))
    guards = f"output: [{{guard: keywords, words: [hippo], action: {action}}}]"
    async with guarded(tmp_path, upstream, guards) as (_, client):
        status, raw, answered = await ask(client, "Hi", stream=True)

    if action == "block":
        assert (status, answered["error"]["code"]) == (400, "guardrail_blocked")
    else:
        events: Any = raw.count(b"data: ")
        assert (status, events) == (200, 5)
