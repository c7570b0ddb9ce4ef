"""Event types, part types and silent members of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from proxy.dialects.shapes import is_name
from proxy.types import Json
from proxy.types.events import Kind

FAMILY: Final = "responses"
PREVIOUS, CONVERSATION = "previous_response_id", "conversation"
"""Members of a request that refer to stored state."""
UNSTORED = "unstored_"
"""Follows the kind in the ids of items that the proxy makes, which no provider stores."""
ADDED, DONE = "response.output_item.added", "response.output_item.done"
ANNOTATED = "response.output_text.annotation.added"
ENDS = frozenset({"response.completed", "response.incomplete"})
"""Types of the events that end a stream, besides those of a failure."""
OF_RESPONSE = ENDS | {"response.created", "response.in_progress", "response.queued"}
"""Types of the events that have the response itself."""
UNFINISHED = ("queued", "in_progress")
"""Statuses of a response that has no answer yet."""
SEQUENCE, OUTPUT, ITEM_ID, OBFUSCATION = "sequence_number", "output_index", "item_id", "obfuscation"


class TextType(NamedTuple):
    """How the API writes one kind of text.

    Events are `event` with `.delta` and `.done`. `member` has the text in a `done` event, a part
    and an item. `item` is the type of the items that have such texts. Texts in parts have the part
    type `part`, stand in the list `within` of the item, and are numbered by `numbered_by`.
    """

    kind: Kind
    event: str
    member: str
    item: str
    part: str = ""
    within: str = ""
    numbered_by: str = ""


_IN_CONTENT = {"within": "content", "numbered_by": "content_index"}
_IN_SUMMARY = {"within": "summary", "numbered_by": "summary_index"}
TEXTS: tuple[TextType, ...] = (
    TextType(
        kind="text",
        event="response.output_text",
        member="text",
        item="message",
        part="output_text",
        **_IN_CONTENT,
    ),
    TextType(
        kind="refusal",
        event="response.refusal",
        member="refusal",
        item="message",
        part="refusal",
        **_IN_CONTENT,
    ),
    TextType(
        kind="reasoning",
        event="response.reasoning_text",
        member="text",
        item="reasoning",
        part="reasoning_text",
        **_IN_CONTENT,
    ),
    TextType(
        kind="summary",
        event="response.reasoning_summary_text",
        member="text",
        item="reasoning",
        part="summary_text",
        **_IN_SUMMARY,
    ),
    TextType(
        kind="arguments",
        event="response.function_call_arguments",
        member="arguments",
        item="function_call",
    ),
    TextType(
        kind="input",
        event="response.custom_tool_call_input",
        member="input",
        item="custom_tool_call",
    ),
)
BY_KIND: Mapping[str, TextType] = {each.kind: each for each in TEXTS}
BY_DELTA: Mapping[str, TextType] = {f"{each.event}.delta": each for each in TEXTS}
BY_DONE: Mapping[str, TextType] = {f"{each.event}.done": each for each in TEXTS}
BY_PART: Mapping[str, TextType] = {each.part: each for each in TEXTS if each.part}
BY_CALL: Mapping[str, TextType] = {each.item: each for each in TEXTS if not each.part}
"""By the type of the items that are calls of a client's tool."""
PART_INDEX: Mapping[str, str] = {
    f"response.{part}.{step}": index
    for part, index in (
        ("content_part", "content_index"),
        ("reasoning_summary_part", "summary_index"),
    )
    for step in ("added", "done")
}
"""By the type of an event of a part: the member with the number of the part."""
ITEM_KINDS: Mapping[str, Kind] = {
    "message": "item",
    "reasoning": "item",
    **{each.item: each.kind for each in BY_CALL.values()},
}
"""By the type of an item. All others are opaque: tools that the provider runs."""

ECHOED: Mapping[str, object] = {
    "conversation": None,
    "instructions": None,
    "metadata": {},
    "previous_response_id": None,
    "prompt": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "user": None,
}
"""Members of a response that repeat the request in words, and their defaults."""

_EVENT_TYPES = frozenset({*OF_RESPONSE, ADDED, DONE, ANNOTATED, *PART_INDEX, *BY_DELTA, *BY_DONE})
_STATUSES = frozenset({"queued", "in_progress", "completed", "incomplete", "searching"})
WORDS: Mapping[str, frozenset[str]] = {
    "type": _EVENT_TYPES | BY_PART.keys() | ITEM_KINDS.keys() | {"web_search_call"},
    "status": _STATUSES | {"failed", "cancelled", "interpreting", "generating", "calling"},
    "role": frozenset({"assistant"}),
    "object": frozenset({"response"}),
    "reason": frozenset({"max_output_tokens", "content_filter"}),
    "effort": frozenset({"none", "minimal", "low", "medium", "high"}),
    "summary": frozenset({"auto", "concise", "detailed"}),
    "truncation": frozenset({"auto", "disabled"}),
}
"""Strings that no guard needs to read, by the member that has them."""
NAMES = frozenset({"id", ITEM_ID, "call_id", "model", "service_tier"})
"""Members whose strings are silent if they have no white space and at most 128 characters."""
TEXT_MEMBERS = frozenset({"text", "refusal", "arguments", "input", "name", "encrypted_content"})
"""Members that are silent only while they are empty."""
NUMBERS = (
    WORDS.keys()
    | NAMES
    | {SEQUENCE, OUTPUT, "content_index", "summary_index", "annotation_index", "created_at"}
    | {"completed_at", "response", "item", "part", "output", "content", "annotations", "logprobs"}
    | {"usage", "error", "incomplete_details", "parallel_tool_calls", "temperature", "top_p"}
    | {"top_logprobs", "max_output_tokens", "max_tool_calls", "background", "store", "reasoning"}
    | {"input_tokens", "output_tokens", "total_tokens", "cached_tokens", "cache_write_tokens"}
    | {"reasoning_tokens", "input_tokens_details", "output_tokens_details", "presence_penalty"}
    | {"frequency_penalty", "phase"}
)
"""Members whose numbers are silent, and whose lists and objects are if all that they hold is."""


def is_silent(name: str, value: Any) -> bool:
    """Return True if a member of an event says nothing that a guard has to read."""
    if name in TEXT_MEMBERS:
        return value is None or value == ""
    if name not in NUMBERS or (name in NAMES and isinstance(value, list | dict)):
        return False
    if isinstance(value, str):
        return not value or value in WORDS.get(name, ()) or (name in NAMES and is_name(value))
    if isinstance(value, list):
        return all([is_silent(name, each) for each in value])
    return not isinstance(value, dict) or is_silent_object(value)


def is_silent_object(value: Json) -> bool:
    return all([is_silent(name, each) for name, each in value.items()])


def member(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def number(value: Any) -> int:
    return value if type(value) is int else 0
