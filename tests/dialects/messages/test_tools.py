"""What is asked of a tool crosses both ways; who crosses says what arguments are that are none."""

from __future__ import annotations

from typing import Any

from proxy.dialects.messages.tools import CHOICES, TIERS, tool_call, tool_use
from tests.for_each import for_each

BLOCK = {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"place": "Hydropolis"}}


def wrapped(arguments: Any) -> dict[str, Any]:
    return {"wrapped": arguments}


def test_a_block_becomes_a_call_and_a_block_again() -> None:
    call = tool_call(BLOCK)

    assert call["function"] == {"name": "look_up", "arguments": '{"place":"Hydropolis"}'}
    assert tool_use(call, wrapped) == BLOCK


@for_each(
    ("arguments", "read"),
    [
        ("", {}),
        (None, {}),
        ("{}", {}),
        ("[1]", {"wrapped": [1]}),
        ("{cut", {"wrapped": "{cut"}),
        (7, {"wrapped": 7}),
    ],
)
def test_arguments_that_are_no_object_are_what_who_crosses_says(
    arguments: Any, read: dict[str, Any]
) -> None:
    call = {"id": "c1", "function": {"name": "look_up", "arguments": arguments}}

    assert tool_use(call, wrapped)["input"] == read


@for_each("words", [CHOICES, TIERS])
def test_no_two_words_of_a_chat_are_one_of_messages(words: dict[str, str]) -> None:
    assert len(set(words.values())) == len(words)
