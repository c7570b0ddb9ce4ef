"""Event types, part types, usage and failures of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap
from typing import Any, Final, NamedTuple

from proxy.dialects.statuses import STATUS_OF_WORD
from proxy.dialects.wire.sse import encode_named_event
from proxy.dialects.wire.strict_json import as_object, as_objects, as_text, dump, is_null_or_word
from proxy.errors import InvalidField
from proxy.errors.field_problems import describe_missing_field
from proxy.money.usage import Tokens, read_chat_usage
from proxy.types import Call, Json
from proxy.types.events import Event, Finish, FinishReason, Kind, ResponseStart, UsageReport

FAMILY: Final = "responses"
PREVIOUS_RESPONSE_ID, CONVERSATION = "previous_response_id", "conversation"
"""Members of a request that refer to stored state."""
UNSTORED_MARK = "unstored_"
"""Text in the ids of items that the proxy creates. No provider stores such items."""
ITEM_ADDED, ITEM_DONE = "response.output_item.added", "response.output_item.done"
ANNOTATION_ADDED = "response.output_text.annotation.added"
END_EVENTS = frozenset({"response.completed", "response.incomplete"})
"""Events that end a stream without a failure."""
RESPONSE_EVENTS = END_EVENTS | {"response.created", "response.in_progress", "response.queued"}
"""Events that contain the response."""
UNFINISHED_STATUSES = ("queued", "in_progress")
CANCELLED = "cancelled"
FAILED_STATUSES = ("failed", CANCELLED)
"""Statuses of a response that has no result."""
SEQUENCE_NUMBER, OUTPUT_INDEX = "sequence_number", "output_index"
ITEM_ID, OBFUSCATION = "item_id", "obfuscation"


class TextType(NamedTuple):
    """Representation of one kind of text.

    Its events are ``event`` with ``.delta`` and ``.done``. A ``done`` event, a part and an item
    have the text in ``member``. A text in a part is in ``list_member`` of the item, and its events
    have the index of the part in ``index_member``.
    """

    kind: Kind
    event: str
    member: str
    item_type: str
    part_type: str = ""
    list_member: str = ""
    index_member: str = ""


_CONTENT = ("content", "content_index")
_SUMMARY = ("summary_text", "summary", "summary_index")
_TEXT_TYPES: tuple[tuple[Any, ...], ...] = (
    ("text", "response.output_text", "text", "message", "output_text", *_CONTENT),
    ("refusal", "response.refusal", "refusal", "message", "refusal", *_CONTENT),
    ("reasoning", "response.reasoning_text", "text", "reasoning", "reasoning_text", *_CONTENT),
    ("summary", "response.reasoning_summary_text", "text", "reasoning", *_SUMMARY),
    ("arguments", "response.function_call_arguments", "arguments", "function_call"),
    ("input", "response.custom_tool_call_input", "input", "custom_tool_call"),
)
TEXT_TYPES: tuple[TextType, ...] = tuple(starmap(TextType, _TEXT_TYPES))
TEXT_BY_KIND: Mapping[str, TextType] = {text.kind: text for text in TEXT_TYPES}
TEXT_BY_DELTA: Mapping[str, TextType] = {f"{text.event}.delta": text for text in TEXT_TYPES}
TEXT_BY_DONE: Mapping[str, TextType] = {f"{text.event}.done": text for text in TEXT_TYPES}
TEXT_BY_PART: Mapping[str, TextType] = {
    text.part_type: text for text in TEXT_TYPES if text.part_type
}
TEXT_BY_CALL: Mapping[str, TextType] = {
    text.item_type: text for text in TEXT_TYPES if not text.part_type
}
"""Types of the items that are calls of a client's tool."""
_PARTS = {"content_part": "content_index", "reasoning_summary_part": "summary_index"}
PART_INDEX: Mapping[str, str] = {
    f"response.{part}.{step}": _PARTS[part] for part in _PARTS for step in ("added", "done")
}
"""The member with the number of a part, by event type."""
ITEM_KINDS: Mapping[str, Kind] = {
    "message": "item",
    "reasoning": "item",
    **{text.item_type: text.kind for text in TEXT_BY_CALL.values()},
}
"""Kinds of items by type. Other items are opaque: tools that the provider runs."""

ECHOED_MEMBERS: Mapping[str, object] = {
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
"""Members of a response that repeat texts of the request, and their defaults."""

_EVENT_TYPES = RESPONSE_EVENTS.union(
    {ITEM_ADDED, ITEM_DONE, ANNOTATION_ADDED}, PART_INDEX, TEXT_BY_DELTA, TEXT_BY_DONE
)
SILENT_WORDS: Mapping[str, frozenset[str]] = {
    "type": _EVENT_TYPES | TEXT_BY_PART.keys() | ITEM_KINDS.keys() | {"web_search_call"},
    "status": frozenset(
        {*UNFINISHED_STATUSES, *FAILED_STATUSES, "completed", "incomplete"}
        | {"searching", "interpreting", "generating", "calling"}
    ),
    "role": frozenset({"assistant"}),
    "object": frozenset({"response"}),
    "reason": frozenset({"max_output_tokens", "content_filter"}),
    "effort": frozenset({"none", "minimal", "low", "medium", "high"}),
    "summary": frozenset({"auto", "concise", "detailed"}),
    "truncation": frozenset({"auto", "disabled"}),
}
"""Strings that no guard inspects, by member."""
NAME_MEMBERS = frozenset({"id", ITEM_ID, "call_id", "model", "service_tier"})
"""Members whose strings are not inspected if they are names of at most 128 characters."""
TEXT_MEMBERS = frozenset({"text", "refusal", "arguments", "input", "name", "encrypted_content"})
"""Members that are inspected unless they are empty."""
SILENT_MEMBERS = (
    SILENT_WORDS.keys()
    | NAME_MEMBERS
    | {SEQUENCE_NUMBER, OUTPUT_INDEX, *_PARTS.values(), "annotation_index", "created_at"}
    | {"completed_at", "response", "item", "part", "output", "content", "annotations", "logprobs"}
    | {"usage", "error", "incomplete_details", "parallel_tool_calls", "temperature", "top_p"}
    | {"top_logprobs", "max_output_tokens", "max_tool_calls", "background", "store", "reasoning"}
    | {"input_tokens", "output_tokens", "total_tokens", "cached_tokens", "cache_write_tokens"}
    | {"reasoning_tokens", "input_tokens_details", "output_tokens_details", "presence_penalty"}
    | {"frequency_penalty", "phase"}
)
"""Members whose numbers, and lists and objects of numbers, are not inspected."""


def is_textless_member(name: str, value: Any) -> bool:
    """Return True if a member of an event has no text that a guard must inspect."""
    if name in TEXT_MEMBERS:
        return value is None or value == ""
    if name not in SILENT_MEMBERS or (name in NAME_MEMBERS and isinstance(value, list | dict)):
        return False
    if isinstance(value, str):
        return (
            not value
            or value in SILENT_WORDS.get(name, ())
            or (name in NAME_MEMBERS and is_null_or_word(value))
        )
    if isinstance(value, list):
        return all([is_textless_member(name, element) for element in value])
    return not isinstance(value, dict) or is_textless_object(value)


def is_textless_object(value: Json) -> bool:
    return all([is_textless_member(name, inner) for name, inner in value.items()])


# Requests

NOT_STORED = "cannot be combined with store: false, because the response could not be retrieved"
NO_CONVERSATION = "cannot be combined with conversation, as its usage cannot be charged"


def is_item_reference(item: Json) -> bool:
    """Return True if an item is only the id of a stored item."""
    return item.get("type") == "item_reference" or item.keys() == {"id"}


def check_input_items(body: Json) -> None:
    """Raise ``InvalidField`` for an item without a type or a role. The upstream checks the rest."""
    items: Any = body.get("input")
    for index, item in enumerate(items if isinstance(items, list) else ()):
        kind, place = item.get("type"), f"input.{index}"
        if kind is not None and not isinstance(kind, str):
            raise InvalidField(f"{place}.type", "must be a string")
        if is_item_reference(item) or kind not in (None, "message"):
            continue
        if not isinstance(item.get("role"), str):
            raise InvalidField(f"{place}.role", describe_missing_field("a string"))


def check_background_conflicts(body: Json) -> None:
    """Raise ``InvalidField`` for ``background`` with ``stream``, ``conversation`` or no storage."""
    if body.get("background"):
        if body.get("stream"):
            problem = "requires stream: false. Retrieve the response by its id later."
            raise InvalidField("background", problem)
        if body.get("store") is False:
            raise InvalidField("background", NOT_STORED)
        if body.get("conversation") is not None:
            raise InvalidField("background", NO_CONVERSATION)


REQUEST_CHECKS = (check_input_items, check_background_conflicts)
RULED_FIELDS = frozenset({"background", "input"})


# Events


class EventEncoder:
    """Encodes events with sequence numbers. For a whole response, returns no bytes."""

    def __init__(self, *, is_whole: bool) -> None:
        self.is_whole = is_whole
        self.number = 0

    def encode(self, kind: str, doc: Json, size: int = 0) -> bytes:
        if self.is_whole:
            return b""
        numbered = {"type": kind, SEQUENCE_NUMBER: 0, **doc}
        numbered[SEQUENCE_NUMBER] = self.number
        self.number += 1
        return encode_named_event(kind, dump(numbered, size))


def echo_request_members(call: Call) -> Json:
    """Return the members of a response that repeat the client's request."""
    members = {name: call.body.get(name, default) for name, default in ECHOED_MEMBERS.items()}
    ref = call.state_ref
    if ref is not None and ref.id:
        value = {CONVERSATION: {"id": ref.client_id}}
        members |= value if ref.is_conversation else {PREVIOUS_RESPONSE_ID: ref.client_id}
    return members


def remove_echoed_members(response: Json) -> Json:
    """Return a response without the members that repeat the client's request."""
    return {name: value for name, value in response.items() if name not in ECHOED_MEMBERS}


# Start, usage and end of a response

_FINISHES: Mapping[str, FinishReason] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}
"""Finish reasons by the reason of an incomplete response. Any other reason is ``stop``."""
_REASONS: Mapping[str, str] = {finish: reason for reason, finish in _FINISHES.items()}


def make_start_event(response: Json) -> ResponseStart:
    created = response.get("created_at")
    return ResponseStart(
        as_text(response.get("id")) or None,
        as_text(response.get("model")) or None,
        int(created) if isinstance(created, int | float) else None,
    )


def make_end_events(response: Json, *, has_calls: bool = False) -> list[Event]:
    """Return the finish of a response, then its usage if reported.

    ``has_calls`` is True if its stream had tool calls.
    """
    events: list[Event] = []
    usage = to_chat_usage(response)
    if usage is not None:
        events.append(UsageReport(read_chat_usage(usage), response["usage"]))
    native = as_text(response.get("status")) or None
    reason: FinishReason = "stop"
    if native == "incomplete":
        native = as_text(as_object(response.get("incomplete_details")).get("reason")) or None
        reason = _FINISHES.get(native or "", "stop")
    else:
        items = as_objects(response.get("output"))
        has_calls = has_calls or any(as_text(item.get("type")) in TEXT_BY_CALL for item in items)
    if reason == "stop" and has_calls:
        reason = "tool_calls"
    return [Finish(0, reason, native), *events]


def make_status_members(reason: FinishReason) -> Json:
    """Return the status of a response, and the reason if it is incomplete."""
    incomplete = _REASONS.get(reason)
    if incomplete is None:
        return {"status": "completed", "incomplete_details": None}
    return {"status": "incomplete", "incomplete_details": {"reason": incomplete}}


def to_chat_usage(response: Json) -> Json | None:
    """Return the usage of a response in chat format, None if it has none.

    If the provider does not report the number of web searches, their items are counted.
    """
    usage = response.get("usage")
    if not isinstance(usage, dict):
        return None
    result: Json = {"total_tokens": usage["total_tokens"]} if "total_tokens" in usage else {}
    for name, chat_name in (("input", "prompt"), ("output", "completion")):
        result[f"{chat_name}_tokens"] = usage.get(f"{name}_tokens")
        if isinstance(usage.get(f"{name}_tokens_details"), dict):
            result[f"{chat_name}_tokens_details"] = usage[f"{name}_tokens_details"]
    web_search = as_object(as_object(response.get("tool_usage")).get("web_search"))
    searches = web_search.get("num_requests")
    if type(searches) is not int:
        searches = sum(
            item.get("type") == "web_search_call"
            and as_object(item.get("action")).get("type", "search") == "search"
            for item in as_objects(response.get("output"))
        )
    return result | ({"server_tool_use": {"web_search_requests": searches}} if searches else {})


def make_response_usage(tokens: Tokens | None) -> Json | None:
    """Return usage in the format of Responses."""
    if tokens is None:
        return None
    return {
        "input_tokens": tokens.prompt_total,
        "input_tokens_details": {
            "cached_tokens": tokens.cached_input,
            "cache_write_tokens": tokens.cache_write,
        },
        "output_tokens": tokens.completion_total,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.total,
    }


def find_failure(doc: Json) -> Json | None:
    """Return the error object of a document or an event that reports a failure, with its usage.

    Returns None if there is no failure.
    """
    kind, response = doc.get("type"), doc
    if kind == "error":
        error = as_object(doc.get("error")) or doc
    elif kind in _FAILURE_EVENTS:
        response = as_object(doc.get("response"))
        error = as_object(response.get("error"))
    elif doc.get("status") in FAILED_STATUSES:
        error = as_object(doc.get("error"))
    else:
        return doc if kind is None and doc.get("error") and "output" not in doc else None
    code, error_type = error.get("code"), error.get("type")
    if code is None and response.get("status") == CANCELLED:
        code = CANCELLED
    if error_type in (None, "error"):
        is_server_error = code is None or STATUS_OF_WORD.get(str(code), 400) >= 429
        error_type = "server_error" if is_server_error else "invalid_request_error"
    details = {"message": error.get("message"), "param": error.get("param")}
    details |= {"code": code, "type": error_type}
    return {"error": details, "usage": to_chat_usage(response)}


_FAILURE_EVENTS = tuple(f"response.{status}" for status in FAILED_STATUSES)
