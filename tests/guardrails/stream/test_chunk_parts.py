"""A chunk taken apart: the text that it has alone, and where each text goes on."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.guardrails.stream.chunk_parts import content, finished, going_on, text_place
from proxy.guardrails.text.walk import MemberName, Path, Text
from proxy.types import Json

HEAD = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
SAID = {"index": 2, "delta": {"content": "Hi"}, "finish_reason": None}


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({**HEAD, "choices": [SAID]}, "Hi"),
        ({"choices": [{"index": 0, "text": "Hi"}]}, "Hi"),
        ({"choices": [{"index": 0, "delta": {"role": "assistant"}}]}, None),
    ],
)
def test_the_text_of_a_usual_chunk_is_known_without_a_walk(data: Json, text: str | None) -> None:
    found = content(data)

    assert found is not None
    assert [each.text for each in found] == ([] if text is None else [text])


@pytest.mark.parametrize(
    "data",
    [
        {**HEAD, "choices": [SAID, SAID]},
        {**HEAD, "choices": [SAID], "unknown": 1},
        {**HEAD, "choices": [{**SAID, "logprobs": {"content": []}}], "usage": "much"},
        {**HEAD, "choices": [{**SAID, "delta": {"content": ["Hi"]}}]},
        {**HEAD, "choices": [{**SAID, "delta": {"content": "Hi", "refusal": "no"}}]},
    ],
)
def test_any_other_chunk_is_unusual(data: Json) -> None:
    assert content(data) is None


@pytest.mark.parametrize(
    ("path", "spot"),
    [
        (("choices", 0, "delta", "content"), (2, ("delta", "content"))),
        (("choices", 0, "delta", "refusal"), (2, ("delta", "refusal"))),
        (
            ("choices", 0, "delta", "tool_calls", 0, "function", "arguments"),
            (2, ("delta", "tool_calls", 7, "function", "arguments")),
        ),
        (("choices", 0, "delta", "tool_calls", 0, "function", "name"), None),
        (("choices", 0, "delta", MemberName("more")), None),
        (("model",), None),
    ],
)
def test_a_text_goes_on_in_its_choice_by_the_choices_own_number(path: Path, spot: Any) -> None:
    function = {"name": "f", "arguments": "{"}
    delta = {"content": "a", "refusal": "b", "tool_calls": [{"index": 7, "function": function}]}
    data = {**HEAD, "choices": [{**SAID, "delta": delta}]}

    assert going_on(data, Text(path, "a", "content")) == spot


def test_choices_end_by_their_own_numbers() -> None:
    ends = {"finish_reason": "stop", "delta": {}}

    assert finished({"choices": [{**ends, "index": 3}, ends, SAID, "odd"]}) == {3, 1}
    assert finished({"choices": None}) == set()


@pytest.mark.parametrize("place", [0, 1])
def test_a_text_goes_on_by_the_index_that_its_choice_has(place: int) -> None:
    choice = {"index": "7", "delta": {"content": "Hydro"}}
    data: Json = {"choices": [choice, choice]}

    assert text_place(data, ("choices", place, "delta", "content")) == (7, ("delta", "content"))
