"""Log-probabilities in their two forms, whatever an upstream writes for them."""

from __future__ import annotations

from typing import Any

from proxy.dialects.chat.conversion import ChatToLegacy
from proxy.dialects.logprobs import LegacyLogprobs, chat_form, legacy_form
from tests.for_each import for_each


def content(*tokens: str) -> dict[str, Any]:
    return {"content": [{"token": each, "logprob": -0.1, "top_logprobs": []} for each in tokens]}


def test_the_places_of_tokens_go_on_from_chunk_to_chunk() -> None:
    turn, same = ChatToLegacy(), LegacyLogprobs()

    def chat(index: int, *tokens: str) -> dict[str, Any]:
        delta = {"content": "".join(tokens)}
        return {"choices": [{"index": index, "delta": delta, "logprobs": content(*tokens)}]}

    def legacy(index: int, *tokens: str) -> dict[str, Any]:
        text = "".join(tokens)
        return {"choices": [{"index": index, "text": text, "logprobs": content(*tokens)}]}

    said: list[Any] = [(0, " Par", "is"), (1, "x"), (0, ".")]
    turned = [turn.feed(chat(*each)) or {} for each in said]
    reworded = [same.feed(legacy(*each)) for each in said]

    for told in (turned, reworded):
        places = [each["choices"][0]["logprobs"]["text_offset"] for each in told]
        assert places == [[0, 4], [0], [6]]


def test_what_needs_no_rewording_stays_the_very_same_document() -> None:
    data = {"choices": [{"index": 0, "text": "a", "logprobs": {"tokens": ["a"]}}]}

    assert LegacyLogprobs().feed(data) is data


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
