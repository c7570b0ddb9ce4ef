"""Requests between legacy completions and chat, both ways."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects import completions
from proxy.errors import InvalidField
from tests.for_each import for_each


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
    assert completions.logprobs_as_count(asked) == count


@pytest.mark.parametrize("prompt", [["a", "b"], [1, 2], [[1]]])
def test_a_chat_takes_one_text_as_prompt(prompt: Any) -> None:
    with pytest.raises(InvalidField, match="prompt"):
        completions.chat_request({"prompt": prompt})


def test_text_parts_of_a_message_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    request = completions.legacy_request({"messages": [{"role": "user", "content": parts}]})

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
    with pytest.raises(InvalidField, match="messages"):
        completions.legacy_request({"messages": [message]})


def test_the_output_bound_of_a_chat_becomes_that_of_a_completion() -> None:
    request = completions.legacy_request({"messages": [], "max_completion_tokens": 7})

    assert request["max_tokens"] == 7
    assert "max_completion_tokens" not in request
