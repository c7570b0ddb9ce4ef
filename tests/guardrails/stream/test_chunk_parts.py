"""A chunk taken apart: where each text goes on."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.guardrails.stream.chunk_parts import finished, going_on, text_place
from proxy.guardrails.text.walk import MemberName, Path, Text
from proxy.types import Json
from tests.for_each import for_each

HEAD = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
CHOICE = {"index": 2, "delta": {"content": "Hi"}, "finish_reason": None}


@for_each(
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
    data = {**HEAD, "choices": [{**CHOICE, "delta": delta}]}

    assert going_on(data, Text(path, "a", "content")) == spot


def test_choices_end_by_their_own_numbers() -> None:
    ends = {"finish_reason": "stop", "delta": {}}

    assert finished({"choices": [{**ends, "index": 3}, ends, CHOICE, "odd"]}) == {3, 1}
    assert finished({"choices": None}) == set()


@pytest.mark.parametrize("place", [0, 1])
def test_a_text_goes_on_by_the_index_that_its_choice_has(place: int) -> None:
    choice = {"index": "7", "delta": {"content": "Hydro"}}
    data: Json = {"choices": [choice, choice]}

    assert text_place(data, ("choices", place, "delta", "content")) == (7, ("delta", "content"))
