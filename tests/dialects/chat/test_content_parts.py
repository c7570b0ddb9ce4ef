"""A chat's content as a list of parts: what it says, in texts."""

from __future__ import annotations

from typing import Any

from proxy.dialects.chat.content_parts import (
    PartTexts,
    joined_message,
    texts_of_parts,
    without_thoughts,
)
from proxy.dialects.chat.conversion import ChatToLegacy
from tests.adversary.odd_values import ODD
from tests.doubles import chat
from tests.for_each import for_each

THINKING = {
    "type": "thinking",
    "thinking": [{"type": "text", "text": "One "}, {"text": "capital."}],
}
TEXT = {"type": "text", "text": "Paris."}


@for_each(
    ("parts", "texts"),
    [
        ([], PartTexts("", "", "")),
        ([THINKING, TEXT], PartTexts("One capital.", "Paris.", "")),
        ([TEXT, TEXT], PartTexts("", "Paris.Paris.", "")),
        ([{"type": "thinking", "thinking": "Hm."}], PartTexts("Hm.", "", "")),
        ([{"type": "thinking", "text": "Hm."}], PartTexts("Hm.", "", "")),
        ([{"type": "refusal", "refusal": "No."}], PartTexts("", "", "No.")),
        (["Par", {"text": "is."}], PartTexts("", "Paris.", "")),
        ([{"type": "reference", "reference_ids": [1]}, TEXT], PartTexts("", "Paris.", "")),
        ([{"type": "unheard-of", "text": "Paris.", "x": "y"}], PartTexts("", "Paris.", "")),
    ],
)
def test_parts_say_thoughts_texts_and_refusals(parts: list[Any], texts: PartTexts) -> None:
    assert texts_of_parts(parts) == texts


@for_each("odd", ODD, ids=repr)
def test_odd_parts_say_what_is_a_text_in_them(odd: Any) -> None:
    parts = [odd, {"type": "thinking", "thinking": odd}, {"type": "refusal", "refusal": odd}]

    texts = texts_of_parts([*parts, {"type": "text", "text": odd}, {"type": odd}])

    assert all(isinstance(text, str) for text in (texts.thoughts, texts.text, texts.refusal))


@for_each(
    ("message", "joined"),
    [
        ({"content": []}, {"content": ""}),
        ({"content": [TEXT]}, {"content": "Paris."}),
        ({"content": [THINKING]}, {"content": None, "reasoning_content": "One capital."}),
        (
            {"content": [THINKING, TEXT], "reasoning_content": "One capital."},
            {"content": "Paris.", "reasoning_content": "One capital."},
        ),
        (
            {"content": [THINKING], "reasoning_content": "Before: "},
            {"content": None, "reasoning_content": "Before: One capital."},
        ),
        (
            {"content": [{"type": "refusal", "refusal": "No."}], "refusal": None},
            {"content": None, "refusal": "No."},
        ),
    ],
)
def test_a_message_says_its_parts_in_texts(message: dict[str, Any], joined: dict[str, Any]) -> None:
    assert joined_message(message) == joined


def test_a_legacy_completion_is_the_text_and_has_the_thoughts_beside_it() -> None:
    answer = chat("", choices=[{"index": 0, "message": {"content": [THINKING, TEXT]}}])

    document = ChatToLegacy().feed(answer)

    assert document is not None
    assert document["choices"][0]["text"] == "Paris."
    assert document["choices"][0]["reasoning_content"] == "One capital."


REDACTED = {"type": "redacted_thinking", "data": "x"}


@for_each(
    ("message", "remaining", "names"),
    [
        ({"content": [THINKING, TEXT]}, {"content": [TEXT]}, ("thinking",)),
        ({"content": [THINKING, REDACTED]}, None, ("thinking",)),
        (
            {"content": [REDACTED], "tool_calls": [{"id": "c"}]},
            {"content": None, "tool_calls": [{"id": "c"}]},
            ("thinking",),
        ),
        ({"content": "a", "reasoning_content": "b"}, {"content": "a"}, ("reasoning_content",)),
        ({"content": "a", "reasoning": "b"}, {"content": "a"}, ("reasoning",)),
        ({"content": "a", "reasoning_content": None}, ..., ()),
        ({"content": [TEXT]}, ..., ()),
    ],
)
def test_names_dropped_thoughts(message: Any, remaining: Any, names: tuple[str, ...]) -> None:
    body = {"messages": [{"role": "user", "content": [THINKING]}, {"role": "assistant", **message}]}

    document, dropped = without_thoughts(body)

    assert dropped == names
    stored = (
        []
        if remaining is None
        else [{"role": "assistant", **(message if remaining is ... else remaining)}]
    )
    assert document["messages"] == [body["messages"][0], *stored]
    assert (document is body) == (not names)
