"""A word that a stream cuts in two, each half in a list of parts of its own, is found whatever form
the client reads, and what is said is estimated where the upstream says no usage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from tests.conftest import running_proxy, world
from tests.doubles import ScriptedUpstream, answer, stream
from tests.test_pipeline import BEARER

WORD = "hydropolis"
POLICY = """
policies:
  default: {{match: all, output: [{{guard: keywords, words: [{}], action: {}}}]}}
"""
CLIENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
    "messages": (
        "/v1/messages",
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9},
    ),
    "responses": ("/v1/responses", {"input": "Hi"}),
    "completions": ("/v1/completions", {"prompt": "Hi"}),
}


def thoughts(text: str) -> list[Any]:
    return [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]


def texts(text: str) -> list[Any]:
    return [{"type": "text", "text": text}]


CUT: dict[str, list[Any]] = {
    "thoughts": [thoughts("We go to hydro"), thoughts("polis today."), "So be it."],
    "texts": [thoughts("Where to?"), texts("We go to hydro"), texts("polis today.")],
    "a list and a text": [texts("We go to hydro"), "polis today."],
    "one list": [[*texts("We go to hydro"), *texts("polis today.")]],
}


def events(contents: list[Any]) -> list[Any]:
    deltas: list[Any] = [({"content": content}, None) for content in contents]
    return [
        {"id": "c1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in [*deltas, ({"content": ""}, "stop")]
    ]


@pytest.mark.parametrize("action", ["mask", "block"])
@pytest.mark.parametrize("cut", CUT)
@pytest.mark.parametrize("prompt", CLIENTS)
async def test_a_word_that_is_cut_is_found(
    prompt: str, cut: str, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(stream(events(CUT[cut])))
    path, body = CLIENTS[prompt]
    policies = world(upstream.url) + POLICY.format(WORD, action)
    async with (
        running_proxy(tmp_path / "p", policies) as proxy,
        ClientSession(base_url=proxy.url, headers=BEARER) as client,
        client.post(path, json={"model": "search-answers", "stream": True, **body}) as response,
    ):
        output = await response.text()
        [record] = await proxy.sink.wait()

    assert not record.is_internal_error
    assert record.outcome == ("blocked" if action == "block" else "success")
    assert "polis" not in output
    if action == "mask":
        assert "[WORD]" in output
        assert record.billing.source == "partial_estimate"


@pytest.mark.parametrize("action", ["mask", "block"])
@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("prompt", ["chat", "completions"])
async def test_a_word_that_parts_of_a_legacy_text_cut_is_found(
    prompt: str, is_stream: bool, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    path, body = CLIENTS[prompt]
    policies = world(upstream.url) + POLICY.format(WORD, action)
    parts = texts("We go to hydro"), texts("polis today.")
    full_value = {
        "choices": [{"index": 0, "text": [*parts[0], *parts[1]], "finish_reason": "stop"}]
    }
    chunks = [{"choices": [{"index": 0, "text": part}]} for part in parts]
    async with (
        running_proxy(tmp_path / "p", policies) as proxy,
        ClientSession(base_url=proxy.url, headers=BEARER) as client,
    ):
        for answered in (
            (stream(chunks), stream([full_value])) if is_stream else (answer(full_value),)
        ):
            upstream.answer_with(answered)
            sent_value = {"model": "legacy-only", "stream": is_stream, **body}
            async with client.post(path, json=sent_value) as response:
                assert "polis" not in await response.text()
