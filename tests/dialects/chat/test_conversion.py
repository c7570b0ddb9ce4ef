"""Answers between legacy completions and chat, both ways."""

from __future__ import annotations

from proxy.dialects.chat.conversion import ChatToLegacy, LegacyToChat
from tests.doubles import chat, legacy

TOKENS = {
    "tokens": [" Par", "is"],
    "token_logprobs": [-0.1, -0.2],
    "top_logprobs": [{" Par": -0.1}, {"is": -0.2}],
    "text_offset": [0, 4],
}


def test_log_probabilities_survive_both_ways() -> None:
    answer = legacy(choices=[{"index": 0, "text": " Paris", "logprobs": TOKENS}])

    there = LegacyToChat(streamed=False).feed(answer)
    back = ChatToLegacy().feed(there or {})

    assert (there or {})["choices"][0]["logprobs"]["content"][0]["token"] == " Par"
    assert (back or {})["choices"][0]["logprobs"] == TOKENS


def test_a_streamed_choice_opens_with_its_role_once() -> None:
    turn = LegacyToChat(streamed=True)
    chunk = legacy(choices=[{"index": 1, "text": "x", "finish_reason": None}])

    deltas = [(turn.feed(chunk) or {})["choices"][0]["delta"] for _ in range(2)]

    assert deltas == [{"role": "assistant", "content": "x"}, {"content": "x"}]


def test_tool_calls_stay_on_a_legacy_choice() -> None:
    calls = [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    answer = chat(choices=[{"index": 0, "message": message, "finish_reason": "tool_calls"}])

    turned = ChatToLegacy().feed(answer) or {}

    assert turned["choices"][0]["tool_calls"] == calls
    assert turned["choices"][0]["text"] == ""
