"""Between legacy completions and chat, both ways."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects import hub
from proxy.errors import BadField
from tests.doubles import chat, legacy
from tests.for_each import for_each

TOKENS = {
    "tokens": [" Par", "is"],
    "token_logprobs": [-0.1, -0.2],
    "top_logprobs": [{" Par": -0.1}, {"is": -0.2}],
    "text_offset": [0, 4],
}


def test_log_probabilities_survive_both_ways() -> None:
    answer = legacy(choices=[{"index": 0, "text": " Paris", "logprobs": TOKENS}])

    there = hub.LegacyToChat(streamed=False).feed(answer)
    back = hub.ChatToLegacy().feed(there or {})

    assert (there or {})["choices"][0]["logprobs"]["content"][0]["token"] == " Par"
    assert (back or {})["choices"][0]["logprobs"] == TOKENS


@for_each(
    ("asked", "count"),
    [
        ({"logprobs": True, "top_logprobs": 3}, {"logprobs": 3}),
        ({"logprobs": True}, {"logprobs": 0}),
        ({"logprobs": False}, {}),
        ({"logprobs": 2}, {"logprobs": 2}),
        ({}, {}),
    ],
)
def test_a_flag_becomes_a_count(asked: dict[str, Any], count: dict[str, Any]) -> None:
    assert hub.logprobs_as_count(asked) == count


def test_a_streamed_choice_opens_with_its_role_once() -> None:
    turn = hub.LegacyToChat(streamed=True)
    chunk = legacy(choices=[{"index": 1, "text": "x", "finish_reason": None}])

    deltas = [(turn.feed(chunk) or {})["choices"][0]["delta"] for _ in range(2)]

    assert deltas == [{"role": "assistant", "content": "x"}, {"content": "x"}]


def test_tool_calls_stay_on_a_legacy_choice() -> None:
    calls = [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    answer = chat(choices=[{"index": 0, "message": message, "finish_reason": "tool_calls"}])

    turned = hub.ChatToLegacy().feed(answer) or {}

    assert turned["choices"][0]["tool_calls"] == calls
    assert turned["choices"][0]["text"] == ""


@pytest.mark.parametrize("prompt", [["a", "b"], [1, 2], [[1]]])
def test_a_chat_takes_one_text_as_prompt(prompt: Any) -> None:
    with pytest.raises(BadField, match="prompt"):
        hub.chat_request({"prompt": prompt})


def test_text_parts_of_a_message_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    request = hub.legacy_request({"messages": [{"role": "user", "content": parts}]})

    assert request["prompt"] == "user: ab\n\nassistant:"


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]},
        {"role": "user", "content": 5},
    ],
)
def test_what_is_not_text_cannot_become_a_prompt(message: dict[str, Any]) -> None:
    with pytest.raises(BadField, match="messages"):
        hub.legacy_request({"messages": [message]})


def test_the_output_bound_of_a_chat_becomes_that_of_a_completion() -> None:
    request = hub.legacy_request({"messages": [], "max_completion_tokens": 7})

    assert request["max_tokens"] == 7
    assert "max_completion_tokens" not in request
