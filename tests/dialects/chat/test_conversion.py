"""Tests the conversion between legacy completions and chat, with log-probabilities."""

from __future__ import annotations

from typing import Any

from proxy.dialects.chat.conversion import (
    ChatToLegacy,
    LegacyLogprobs,
    LegacyToChat,
    chat_form,
    legacy_form,
)
from tests.doubles import legacy
from tests.for_each import for_each

TOKENS = {
    "tokens": [" Par", "is"],
    "token_logprobs": [-0.1, -0.2],
    "top_logprobs": [{" Par": -0.1}, {"is": -0.2}],
    "text_offset": [0, 4],
}


def test_log_probabilities_survive_both_ways() -> None:
    answer = legacy(choices=[{"index": 0, "text": " Paris", "logprobs": TOKENS}])

    context = LegacyToChat(streamed=False).feed(answer)
    returned = ChatToLegacy().feed(context or {})

    assert (context or {})["choices"][0]["logprobs"]["content"][0]["token"] == " Par"
    assert (returned or {})["choices"][0]["logprobs"] == TOKENS


def token_objects(*tokens: str) -> dict[str, Any]:
    return {"content": [{"token": token, "logprob": -0.1, "top_logprobs": []} for token in tokens]}


def test_the_places_of_tokens_go_on_from_chunk_to_chunk() -> None:
    turn, logprobs = ChatToLegacy(), LegacyLogprobs()

    def chat(index: int, *tokens: str) -> dict[str, Any]:
        delta = {"content": "".join(tokens)}
        return {"choices": [{"index": index, "delta": delta, "logprobs": token_objects(*tokens)}]}

    def legacy(index: int, *tokens: str) -> dict[str, Any]:
        text = "".join(tokens)
        return {"choices": [{"index": index, "text": text, "logprobs": token_objects(*tokens)}]}

    values: list[Any] = [(0, " Par", "is"), (1, "x"), (0, ".")]
    turned = [turn.feed(chat(*item)) or {} for item in values]
    reworded = [logprobs.feed(legacy(*item)) for item in values]

    for events in (turned, reworded):
        places = [item["choices"][0]["logprobs"]["text_offset"] for item in events]
        assert places == [[0, 4], [0], [6]]


ODD: list[Any] = [
    None, 5, [], "x", {}, {"content": None}, {"content": [5, {"token": None}]},
    {"content": [{"token": ["a"], "top_logprobs": [7, {"token": {}}]}]},
    {"tokens": 5, "token_logprobs": {}}, {"tokens": ["a"], "top_logprobs": [5]},
]  # fmt: skip


@for_each("logprobs", ODD)
def test_whatever_stands_for_them_breaks_nothing(logprobs: Any) -> None:
    legacy_form(logprobs, 0)
    chat_form(logprobs)
    for choices in (5, [5], [{"index": [], "text": 5, "logprobs": logprobs}]):
        LegacyLogprobs().feed({"choices": choices})
