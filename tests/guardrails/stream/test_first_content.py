"""What opens a stream waits for its first words, and no longer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.guardrails.stream.first_content import MOST, MOST_VALUES, FirstContent
from proxy.types import Chunk
from tests.doubles import ScriptedUpstream, chat_events, message_events, stream, text_events
from tests.guardrails.test_run import ask, guarded
from tests.test_pipeline import BEARER

ROLE, TEXT, FINISH, USAGE = map(Chunk, chat_events("Hi"))
END = Chunk(None, last=True)


def test_a_role_waits_for_words() -> None:
    opening = FirstContent(waits=True)

    assert [list(opening.feed([each])) for each in (ROLE, TEXT, FINISH, USAGE, END)] == [
        [],
        [ROLE, TEXT],
        [FINISH],
        [USAGE],
        [END],
    ]


@pytest.mark.parametrize("end", [FINISH, END])
def test_an_end_without_words_is_shown(end: Chunk) -> None:
    opening = FirstContent(waits=True)

    assert [*opening.feed([ROLE]), *opening.feed([end])] == [ROLE, end]


def test_a_chunk_is_not_looked_through_for_ever_for_what_it_says() -> None:
    full = Chunk({"choices": [], "unknown": [{}] * (MOST_VALUES + 1)})

    assert [*FirstContent(waits=True).feed([full])] == [full]


@pytest.mark.parametrize("wants", ["chat", "messages", "responses"])
async def test_an_upstream_of_messages_that_is_blocked_at_its_first_words_is_a_clean_error(
    wants: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(stream(message_events(text_events(0, "A hip", "po."))))
    said: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}
    body = {"model": "anthropic-model", "stream": True, **said}
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


def test_a_stream_that_says_nothing_does_not_wait_for_ever() -> None:
    opening = FirstContent(waits=True)

    shown = [len(opening.feed([ROLE])) for _ in range(MOST + 2)]

    assert shown == [0] * MOST + [MOST + 1, 1]


def test_nothing_waits_where_nothing_can_be_blocked() -> None:
    assert FirstContent(waits=False).feed([ROLE]) == [ROLE]


@pytest.mark.parametrize("action", ["block", "flag"])
async def test_a_chat_that_is_blocked_at_its_first_words_is_a_clean_error(
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
