"""The frame of an answer is silent at its own places alone."""

from __future__ import annotations

from typing import Any

from proxy.guards.text.frame import SILENT_ANSWER, is_silent, name_in_chat
from tests.for_each import for_each

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
def test_a_name_is_silent_by_its_place_and_its_value(
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
def test_a_member_has_the_name_that_a_chat_has_for_it(
    name: str, item: Any, path: tuple[Any, ...], expected: str
) -> None:
    assert name_in_chat(name, item, path) == expected
