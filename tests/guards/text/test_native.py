"""Texts of native documents, by their places and kinds."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.guards.text.native import logprobs_text, native_walk, value_walk
from proxy.guards.text.replace import replaced
from proxy.guards.text.text_walker import collect_texts
from proxy.types import Json
from proxy.types.events import FamilyName

TOKEN = {"token": "Paris", "logprob": -0.1, "bytes": [80], "top_logprobs": []}


def found(document: Json, family: FamilyName = "responses") -> dict[tuple[Any, ...], str]:
    texts = collect_texts(native_walk(document, family, cut=True)).texts
    return {text.path: text.kind for text in texts}


@pytest.mark.parametrize(
    ("family", "document", "expected"),
    [
        (
            "messages",
            {"type": "text", "content_block": {"id": "srv_1", "name": "f", "input": {"n": 41}}},
            {("content_block", "name"): "name", ("content_block", "input", "n"): "arguments"},
        ),
        (
            "messages",
            {"type": "text", "content_block": {"type": "tool_use", "id": "a", "name": "f"}},
            {("content_block", "name"): "tool"},
        ),
        (
            "messages",
            {"id": "msg_1", "model": "m", "content": [{"type": "thinking", "thinking": "so"}]},
            {("content", 0, "thinking"): "reasoning"},
        ),
        (
            "responses",
            {"type": "message", "output_index": 0, "item": {"id": "i", "results": ["a"]}},
            {("item", "results", 0): "content"},
        ),
        (
            "responses",
            {"output": [{"type": "function_call", "id": "i", "arguments": '{"a": "b"}'}]},
            {("output", 0, "arguments", at): "arguments" for at in range(2)},
        ),
        ("responses", {"input": "to find"}, {("input",): "arguments"}),
        (
            "chat",
            {"id": "c", "choices": [{"delta": {"odd": "x"}}]},
            {("choices", 0, "delta", "odd"): "content"},
        ),
    ],
)
def test_texts_have_kinds(family: FamilyName, document: Json, expected: dict[Any, str]) -> None:
    paths = found(document, family)
    strings = {path: kind for path, kind in paths.items() if isinstance(path[-1], str | int)}
    assert strings == expected


def test_documents_of_an_unknown_family_are_read_as_json() -> None:
    document = {"candidates": [{"role": "a secret", "parts": [{"finish_reason": "b"}]}]}

    read = found(document, "made-up")

    assert read == found(document, "responses")
    assert read != found(document, "chat")
    assert read.keys() >= {
        ("candidates", 0, "role"),
        ("candidates", 0, "parts", 0, "finish_reason"),
    }


def test_identifier_with_spaces_is_a_text() -> None:
    assert ("item", "id") in found({"item": {"id": "a secret"}})
    assert ("item", "id") not in found({"item": {"id": "item_1"}})


def test_member_of_arguments_named_id_is_a_text() -> None:
    document = {"content_block": {"type": "tool_use", "input": {"id": "hidden", "logprobs": "x"}}}

    assert found(document, "messages").keys() >= {
        ("content_block", "input", "id"),
        ("content_block", "input", "logprobs"),
    }


def test_tokens_that_spell_the_text_are_no_text() -> None:
    part = {"type": "output_text", "text": "Paris", "logprobs": [TOKEN | {"bytes": [*b"Paris"]}]}
    other = {**part, "text": "Rome"}

    assert ("part", "logprobs") not in found({"part": part})
    assert ("part", "logprobs") in found({"part": other})
    assert logprobs_text(("logprobs",), [TOKEN], "Paris") is not None


def test_value_is_walked_at_its_place() -> None:
    document = {"delta": {"citation": {"cited_text": "a secret", "url": "https://a.example"}}}
    slot = ("delta", "citation")

    texts = collect_texts(value_walk(slot, document["delta"]["citation"], "content")).texts
    [cited] = [text for text in texts if text.text == "a secret"]

    changed = replaced(document, {cited.path: "[WORD]"})
    assert changed["delta"]["citation"]["cited_text"] == "[WORD]"
