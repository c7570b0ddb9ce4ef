"""What a Responses answer says its texts by, and what it repeats of the question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PREVIOUS = "previous_response_id"
CONVERSATION = "conversation"
UNSTORED = "unstored_"
"""Follows the kind in the ids of items that Headrace makes of a chat: no provider stores those."""
Place = tuple[int, str, int]
"""Where a text stands: the number of its item, its kind, and the number of its part."""


class TextKind(NamedTuple):
    """A kind of text: its events are ``event`` with ``.delta`` and ``.done``.

    ``part_index`` is the member of an event that says which part of its item it is, if items have
    several. In ``done``, and in a part or an item that is whole, it stands under ``member``; a part
    that has it is of the type ``part``, and in the list ``within`` its item.
    """

    event: str
    member: str
    part_index: str | None = None
    part: str | None = None
    within: str = "content"


KINDS: Mapping[str, TextKind] = {
    "text": TextKind(
        "response.output_text", "text", part_index="content_index", part="output_text"
    ),
    "refusal": TextKind("response.refusal", "refusal", part_index="content_index", part="refusal"),
    "thought": TextKind(
        "response.reasoning_text", "text", part_index="content_index", part="reasoning_text"
    ),
    "summary": TextKind(
        "response.reasoning_summary_text",
        "text",
        part_index="summary_index",
        part="summary_text",
        within="summary",
    ),
    "arguments": TextKind("response.function_call_arguments", "arguments"),
    "input": TextKind("response.custom_tool_call_input", "input"),
}
"""The texts of a model that have a place in a chat, by our name for them."""

BY_DELTA: Mapping[str, str] = {f"{kind.event}.delta": name for name, kind in KINDS.items()}
BY_DONE: Mapping[str, str] = {f"{kind.event}.done": name for name, kind in KINDS.items()}
BY_PART: Mapping[str, str] = {kind.part: name for name, kind in KINDS.items() if kind.part}
CALLS: Mapping[str, str] = {"function_call": "arguments", "custom_tool_call": "input"}
"""Items that ask a tool of the client's, and the kind of what they say to it."""

ENDS = frozenset({"response.completed", "response.incomplete"})
"""The events that a stream ends with, but for those of a failure."""
OF_RESPONSE = ENDS | {"response.created", "response.in_progress", "response.queued"}
"""The events that have the response itself with them."""

ECHOED: Mapping[str, object] = {
    "conversation": None,
    "instructions": None,
    "metadata": {},
    PREVIOUS: None,
    "prompt": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "user": None,
}
"""What an answer repeats of its question in words, and what it says where that says nothing."""


UNKEPT = (
    " Responses whose id does not begin with {} are not stored. Send the whole conversation in "
    "input instead."
)


def where_unkept(text: str, prefix: str) -> str:
    """Return what to add for an id that leads nowhere: where it has not the ``prefix`` of
    responses, no provider keeps what it names."""
    return UNKEPT.format(prefix) if text and not text.startswith(prefix) else ""
