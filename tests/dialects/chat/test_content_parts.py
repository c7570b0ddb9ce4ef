"""Content of a chat as a list of parts, and its conversion to and from legacy completions."""

from __future__ import annotations

from typing import Any

from proxy.dialects.chat.merging import (
    convert_chat_to_legacy,
    convert_legacy_to_chat,
    convert_logprobs_to_legacy,
    to_chat_logprobs,
    to_legacy_logprobs,
)
from proxy.dialects.chat.requests import (
    move_texts_to_members,
    read_part_texts,
    remove_reasoning,
)
from tests.adversary.invalid_values import ODD_VALUES
from tests.doubles import chat, legacy_completion
from tests.for_each import for_each

THINKING = {
    "type": "thinking",
    "thinking": [{"type": "text", "text": "One "}, {"text": "capital."}],
}
TEXT = {"type": "text", "text": "Paris."}


@for_each(
    ("parts", "texts"),
    [
        ([], ("", "", "")),
        ([THINKING, TEXT], ("One capital.", "Paris.", "")),
        ([TEXT, TEXT], ("", "Paris.Paris.", "")),
        ([{"type": "thinking", "thinking": "Hm."}], ("Hm.", "", "")),
        ([{"type": "thinking", "text": "Hm."}], ("Hm.", "", "")),
        ([{"type": "refusal", "refusal": "No."}], ("", "", "No.")),
        (["Par", {"text": "is."}], ("", "Paris.", "")),
        ([{"type": "reference", "reference_ids": [1]}, TEXT], ("", "Paris.", "")),
        ([{"type": "unheard-of", "text": "Paris.", "x": "y"}], ("", "Paris.", "")),
    ],
)
def test_parts_have_thoughts_texts_and_refusals(parts: list[Any], texts: tuple[str, ...]) -> None:
    assert read_part_texts(parts) == texts


@for_each("odd", ODD_VALUES, ids=repr)
def test_only_strings_of_invalid_parts_are_read(odd: Any) -> None:
    parts = [odd, {"type": "thinking", "thinking": odd}, {"type": "refusal", "refusal": odd}]

    texts = read_part_texts([*parts, {"type": "text", "text": odd}, {"type": odd}])

    assert all(isinstance(text, str) for text in texts)


@for_each(
    ("message", "joined"),
    [
        ({"content": []}, {"content": ""}),
        ({"content": [TEXT]}, {"content": "Paris."}),
        ({"content": [THINKING]}, {"content": None, "reasoning_content": "One capital."}),
        ({"content": [THINKING, TEXT], "reasoning_content": "One capital."},
            {"content": "Paris.", "reasoning_content": "One capital."}),
        ({"content": [THINKING], "reasoning_content": "Before: "},
            {"content": None, "reasoning_content": "Before: One capital."}),
        ({"content": [{"type": "refusal", "refusal": "No."}], "refusal": None},
            {"content": None, "refusal": "No."}),
    ],
)  # fmt: skip
def test_message_has_its_parts_as_texts(message: dict[str, Any], joined: dict[str, Any]) -> None:
    assert move_texts_to_members(message) == joined


def test_legacy_completion_has_text_and_separate_thoughts() -> None:
    answer = chat("", choices=[{"index": 0, "message": {"content": [THINKING, TEXT]}}])

    [choice] = (convert_chat_to_legacy({}, answer) or {})["choices"]

    assert (choice["text"], choice["reasoning_content"]) == ("Paris.", "One capital.")


REDACTED = {"type": "redacted_thinking", "data": "x"}


@for_each(
    ("message", "remaining", "names"),
    [
        ({"content": [THINKING, TEXT]}, {"content": [TEXT]}, ("thinking",)),
        ({"content": [THINKING, REDACTED]}, None, ("thinking",)),
        ({"content": [REDACTED], "tool_calls": [{"id": "c"}]},
            {"content": None, "tool_calls": [{"id": "c"}]}, ("thinking",)),
        ({"content": "a", "reasoning_content": "b"}, {"content": "a"}, ("reasoning_content",)),
        ({"content": "a", "reasoning": "b"}, {"content": "a"}, ("reasoning",)),
        ({"content": "a", "reasoning_content": None}, ..., ()),
        ({"content": [TEXT]}, ..., ()),
    ],
)  # fmt: skip
def test_dropped_thoughts_are_named(message: Any, remaining: Any, names: tuple[str, ...]) -> None:
    body = {"messages": [{"role": "user", "content": [THINKING]}, {"role": "assistant", **message}]}

    document, dropped = remove_reasoning(body)

    assert dropped == names
    kept_message = message if remaining is ... else remaining
    stored = [] if kept_message is None else [{"role": "assistant", **kept_message}]
    assert document["messages"] == [body["messages"][0], *stored]
    assert (document is body) == (not names)


TOKENS: dict[str, Any] = {"tokens": [" Par", "is"], "token_logprobs": [-0.1, -0.2]}
TOKENS |= {"top_logprobs": [{" Par": -0.1}, {"is": -0.2}], "text_offset": [0, 4]}


def test_logprobs_survive_both_conversions() -> None:
    answer = legacy_completion(choices=[{"index": 0, "text": " Paris", "logprobs": TOKENS}])

    context = convert_legacy_to_chat(None, answer)
    returned = convert_chat_to_legacy({}, context)

    assert context["choices"][0]["logprobs"]["content"][0]["token"] == " Par"
    assert (returned or {})["choices"][0]["logprobs"] == TOKENS


def token_objects(*tokens: str) -> dict[str, Any]:
    return {"content": [{"token": token, "logprob": -0.1, "top_logprobs": []} for token in tokens]}


def test_token_offsets_continue_across_chunks() -> None:
    by_chat: dict[int, int] = {}
    by_legacy: dict[int, int] = {}

    def chunk(index: int, tokens: tuple[str, ...], **text: Any) -> dict[str, Any]:
        return {"choices": [{"index": index, **text, "logprobs": token_objects(*tokens)}]}

    values: list[Any] = [(0, (" Par", "is"), " Paris"), (1, ("x",), "x"), (0, (".",), ".")]
    for (index, tokens, text), places in zip(values, ([0, 4], [0], [6]), strict=True):
        chat = chunk(index, tokens, delta={"content": text})
        converted = convert_chat_to_legacy(by_chat, chat) or {}
        assert converted["choices"][0]["logprobs"]["text_offset"] == places
        converted = convert_logprobs_to_legacy(by_legacy, chunk(index, tokens, text=text))
        assert converted["choices"][0]["logprobs"]["text_offset"] == places


ODD_LOGPROBS: list[Any] = [
    None, 5, [], "x", {}, {"content": None}, {"content": [5, {"token": None}]},
    {"content": [{"token": ["a"], "top_logprobs": [7, {"token": {}}]}]},
    {"tokens": 5, "token_logprobs": {}}, {"tokens": ["a"], "top_logprobs": [5]},
]  # fmt: skip


@for_each("logprobs", ODD_LOGPROBS)
def test_invalid_logprobs_raise_nothing(logprobs: Any) -> None:
    to_legacy_logprobs(logprobs, 0)
    to_chat_logprobs(logprobs)
    for choices in (5, [5], [{"index": [], "text": 5, "logprobs": logprobs}]):
        convert_logprobs_to_legacy({}, {"choices": choices})
