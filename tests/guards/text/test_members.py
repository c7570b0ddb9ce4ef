"""Members without a text are ignored, unreadable ones reported."""

from __future__ import annotations

from typing import Any

from proxy.guards.text.members import (
    SILENT_ANSWER,
    is_data,
    is_opaque,
    is_silent,
    kind_of,
    name_in_chat,
    unshown_logprobs,
)
from proxy.types import Json
from tests.for_each import for_each

PICTURE = {"media_type": "image/png", "data": "AA"}


@for_each(
    ("name", "value", "item"),
    [
        ("image_url", "https://example.com/a.png", {}),
        ("source", PICTURE, {}),
        ("inline_data", {"mime_type": "image/png", "data": "AA"}, {}),
        ("inlineData", {"mimeType": "image/png", "data": "AA"}, {}),
        ("x", {"mediaType": "audio/wav", "bytes": [1]}, {}),
        ("source", {"type": "url", "url": "https://example.com/a.png"}, {"type": "image"}),
        ("source", {"type": "url", "url": "https://example.com/a.pdf"}, {"type": "document"}),
    ],
)
def test_content_that_is_no_text_is_opaque(name: str, value: Any, item: Json) -> None:
    assert is_opaque(name, value, item)


@for_each(
    ("name", "value", "item"),
    [
        ("source", {"title": "an article"}, {"type": "text"}),
        ("source", "where it is from", {"type": ["image"]}),
        ("data", "AAAA", {"type": "image"}),
        ("x", {"media_type": "text/plain", "text": "all is well"}, {}),
        ("x", "media_type", {}),
    ],
)
def test_all_else_is_text(name: str, value: Any, item: Json) -> None:
    assert not is_opaque(name, value, item)


def test_a_media_type_without_data_makes_no_data() -> None:
    assert is_data(PICTURE)
    assert not is_data({"media_type": "image/png"})
    assert not is_data({"data": "AA"})
    assert not is_data(["media_type", "data"])


def test_opaque_content_is_reported_by_kind() -> None:
    assert kind_of("image_url") == "image_url"
    assert kind_of("source") == "file"


FILTER = "content_filter_results"


@for_each(
    ("level", "name", "value", "silent"),
    [
        ((), "id", "chatcmpl-1", True),
        ((), "id", {"a": "b"}, False),
        ((), "usage", {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}}, True),
        ((), "usage", {"prompt_tokens": "1"}, False),
        ((), "usage", {"prompt_tokens_details": {"prompt_tokens": {"cost": 1}}}, False),
        (("choices",), "finish_reason", "stop", True),
        (("choices",), "finish_reason", "anything", False),
        (("choices",), "id", "x", False),
        (("choices",), FILTER, {"hate": {"filtered": False, "severity": "safe"}}, True),
        (("choices",), FILTER, {"jailbreak": {"filtered": True, "detected": True}}, True),
        (("choices",), FILTER, {}, True),
        (("choices",), FILTER, None, True),
        (("choices",), FILTER, 4111111111111111, False),
        (("choices",), FILTER, {"hate": {"severity": "call 4111111111111111"}}, False),
        (("choices",), FILTER, {"hate": {"severity": ["safe"]}}, False),
        (("choices",), FILTER, {"hate": {"filtered": 1}}, False),
        (("choices",), FILTER, {"hate": {"other": True}}, False),
        (("choices",), FILTER, {"my word": {"filtered": True}}, False),
        (("choices",), FILTER, {"protected_material_code": {"citation": {"URL": "x"}}}, False),
        ((), FILTER, {}, False),
        (("choices", "message"), "index", 1, False),
        (("choices", "delta", "tool_calls"), "id", "call_1", True),
        (("data",), "embedding", [0.5, 1], True),
        (("data",), "embedding", ["x"], False),
    ],
)
def test_member_is_silent_by_place_and_value(
    level: tuple[str, ...], name: str, value: Any, silent: bool
) -> None:
    assert is_silent(level, name, value) is silent


def test_each_value_is_described() -> None:
    assert all(text for names in SILENT_ANSWER.values() for _, text in names.values())


@for_each(
    ("name", "item", "path", "expected"),
    [
        ("content", {"type": "reasoning"}, ("input", 0), "reasoning"),
        ("content", {"type": "message"}, ("input", 0), "content"),
        ("name", {"type": "tool_use"}, ("messages", 0, "content", 0), "tool_calls"),
        ("name", {"type": ["tool_use"]}, ("messages", 0, "content", 0), "name"),
        ("name", {"role": "user"}, ("messages", 0), "name"),
        ("input", {}, ("choices", 0, "delta", "tool_calls", 0, "custom"), "arguments"),
        ("input", {}, ("tools", 0, "custom"), "input"),
    ],
)
def test_members_are_named_as_in_a_chat(
    name: str, item: Any, path: tuple[Any, ...], expected: str
) -> None:
    assert name_in_chat(name, item, path) == expected


@for_each(
    ("logprobs", "output", "other_names"),
    [
        (None, "a", set()),
        ({"content": [{"token": "a", "logprob": -1, "bytes": [97]}]}, "a", set()),
        ({"content": [{"token": "\\xc3", "bytes": [195]}, {"token": "\\xa9", "bytes": [169]}]},
         "é", {"\\xc3\\xa9"}),
        ({"content": [{"token": "a", "bytes": [98]}]}, "a", {"b"}),
        ({"content": [{"token": "a", "bytes": [98, "x", 300]}]}, "a", {"b", "x"}),
        ({"content": [{"token": "a", "bytes": None, "logprob": None}]}, "a", set()),
        ({"tokens": ["a"], "token_logprobs": [-1], "text_offset": [0],
          "top_logprobs": [{"a": -1, "b": -2}]}, "a", {"b"}),
        ({"tokens": "ab"}, "c", {"ab"}),
        ("ab", "", {"ab"}),
    ],
)  # fmt: skip
def test_what_is_said_beside_the_text(logprobs: Any, output: str, other_names: set[str]) -> None:
    assert {*unshown_logprobs(logprobs, output)} - {""} == other_names


def test_depth_is_no_bound() -> None:
    deep: Any = "found"
    for _ in range(20_000):
        deep = [deep]

    assert "found" in unshown_logprobs(deep, "")
