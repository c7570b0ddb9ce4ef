"""Documents of any API family are read completely."""

from __future__ import annotations

import copy
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.guards.text.documents import (
    MAX_MESSAGES,
    NON_ASCII_WEIGHT,
    collect_plain_request_texts,
    collect_plain_response_texts,
    collect_request_texts,
    collect_response_texts,
    collect_texts,
    estimate_weight,
    walk_response_document,
    walk_response_value,
)
from proxy.guards.text.members import OPAQUE_MEMBERS, PAYLOAD_MEMBERS
from proxy.guards.text.replace import replace_texts
from proxy.guards.text.walk import KIND_BY_FIELD, KNOWN_MEMBERS, Texts, iter_joined_unshown_logprobs
from proxy.guards.whole.joined_parts import iter_joined_message_parts
from proxy.types import Json
from proxy.types.events import FamilyName

TOKEN = {"token": "Paris", "logprob": -0.1, "bytes": [80], "top_logprobs": []}


def texts_of(document: Json, family: FamilyName = "responses") -> dict[tuple[Any, ...], str]:
    texts = collect_texts(walk_response_document(document, family, is_event=True)).texts
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
    paths = texts_of(document, family)
    strings = {path: kind for path, kind in paths.items() if isinstance(path[-1], str | int)}
    assert strings == expected


def test_unknown_family_is_read_as_json() -> None:
    document = {"candidates": [{"role": "a secret", "parts": [{"finish_reason": "b"}]}]}

    read = texts_of(document, "made-up")

    assert read == texts_of(document, "responses")
    assert read != texts_of(document, "chat")
    path = ("candidates", 0)
    assert read.keys() >= {(*path, "role"), (*path, "parts", 0, "finish_reason")}


def test_identifier_with_spaces_or_in_arguments_is_a_text() -> None:
    arguments = {"type": "tool_use", "input": {"id": "hidden", "logprobs": "x"}}
    path = ("content_block", "input")

    assert ("item", "id") in texts_of({"item": {"id": "a secret"}})
    assert ("item", "id") not in texts_of({"item": {"id": "item_1"}})
    read = texts_of({"content_block": arguments}, "messages")
    assert read.keys() >= {(*path, "id"), (*path, "logprobs")}


def test_tokens_that_spell_the_text_are_not_inspected() -> None:
    part = {"type": "output_text", "text": "Paris", "logprobs": [TOKEN | {"bytes": [*b"Paris"]}]}
    other_value = {**part, "text": "Rome"}

    assert ("part", "logprobs") not in texts_of({"part": part})
    assert ("part", "logprobs") in texts_of({"part": other_value})
    assert [*iter_joined_unshown_logprobs(("logprobs",), [TOKEN], "Paris")]


def test_value_is_walked_at_its_place() -> None:
    document = {"delta": {"citation": {"cited_text": "a secret", "url": "https://a.example"}}}
    slot = ("delta", "citation")

    texts = collect_texts(walk_response_value(slot, document["delta"]["citation"], "content")).texts
    [cited] = [text for text in texts if text.text == "a secret"]

    changed = replace_texts(document, {cited.path: "[WORD]"})
    assert changed["delta"]["citation"]["cited_text"] == "[WORD]"


HEAD = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
CHOICE = {"index": 2, "delta": {"content": "Hi"}, "finish_reason": None}
CHAT: Json = {
    "model": "support-chat",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 5,
    "temperature": 0.5,
    "user": "ada",
    "seed": None,
}
ANSWER: Json = {
    **HEAD,
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Paris.", "reasoning_content": "France?"},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}},
}
CHUNK: Json = {**HEAD, "choices": [{**CHOICE, "delta": {"role": "assistant", "content": "Hi"}}]}
NAMES = sorted({
    *KNOWN_MEMBERS, *OPAQUE_MEMBERS, *PAYLOAD_MEMBERS, *KIND_BY_FIELD, *CHAT, *ANSWER, *CHOICE,
    "media_type", "odd", "source",
})  # fmt: skip
WORDS = (
    "", "a", "two words", "user", "assistant", "text", "tool", "stop", "aGVsbG8gd29ybGQgYWdhaW4=",
    "data:text/plain;base64,aGVsbG8=", "data:,b", "x" * 200, "\n", "\u00e9", '{"a": "b"}',
)  # fmt: skip
SIMPLE: tuple[Any, ...] = (
    None, True, 0, 1, 0.5, *WORDS, [], {}, ["a"], [1], {"odd": "a"}, {"prompt_tokens": 1},
)  # fmt: skip
VALUES = st.recursive(
    st.sampled_from(SIMPLE),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=5,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return each dict and list of a document with each of its keys."""
    keys = [*value] if isinstance(value, dict) else range(len(value)) if value else []
    matches = [(value, key) for key in keys]
    for key in keys:
        if isinstance(value[key], dict | list):
            matches += places(value[key])
    return matches


def levels(document: Json) -> list[Json]:
    """Return the documents within a document, and itself."""
    upper = {id(item): item for item, _ in places(document) if isinstance(item, dict)}
    return [*upper.values()]


@st.composite
def documents(draw: st.DrawFn, *usual: Json) -> Json:
    """Draw a common document with some values changed, removed or added."""
    document = copy.deepcopy(draw(st.sampled_from(usual)))
    for _ in range(draw(st.integers(0, 3))):
        if not document:
            return document
        upper, key = draw(st.sampled_from(places(document)))
        if isinstance(upper, dict) and draw(st.booleans()):
            upper[draw(st.sampled_from(NAMES))] = copy.deepcopy(draw(VALUES))
        elif draw(st.booleans()):
            upper[key] = copy.deepcopy(draw(VALUES))
        else:
            del upper[key]
    return document


def compared(texts: Texts) -> tuple[Any, Any]:
    return texts.texts, texts.opaque


@pytest.mark.parametrize("document", [CHAT, ANSWER, CHUNK], ids=["chat", "answer", "chunk"])
def test_plain_reader_agrees_with_the_walk(document: Json) -> None:
    read: Any = collect_plain_response_texts
    walked: Any = collect_response_texts
    if document is CHAT:
        read, walked = collect_plain_request_texts, collect_request_texts
    assert read(document) is not None
    plain_documents = 0
    for number in range(len(levels(document))):
        for name, value in product(NAMES, SIMPLE):
            changed = copy.deepcopy(document)
            levels(changed)[number][name] = value
            plain = read(changed)
            if plain is not None:
                plain_documents += 1
                assert compared(plain) == compared(walked(changed)), (number, name, value)
    assert plain_documents > 100


@given(
    documents(CHAT, {"model": "m", "prompt": "Hi", "suffix": "!"}),
    documents(ANSWER, CHUNK),
    st.booleans(),
)
def test_plain_reader_agrees_on_random_documents(body: Json, data: Json, cut: bool) -> None:
    for plain, walked in (
        (collect_plain_request_texts(body), collect_request_texts(body)),
        (collect_plain_response_texts(data), collect_response_texts(data, is_event=cut)),
    ):
        if plain is not None:
            assert compared(plain) == compared(walked)
            assert [*iter_joined_message_parts(plain.texts)] == []


def test_long_chat_is_walked() -> None:
    messages = [{"role": "user", "content": "Hi"}] * (MAX_MESSAGES + 1)

    assert collect_plain_request_texts({"messages": messages[:-1]}) is not None
    assert collect_plain_request_texts({"messages": messages}) is None


def test_letters_beyond_ascii_have_more_weight() -> None:
    assert estimate_weight("abc") == 3
    assert estimate_weight("abç") == 3 * NON_ASCII_WEIGHT
