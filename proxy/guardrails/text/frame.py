"""Members of a response that guards ignore, with the reason.

A member is ignored only at its known path and with a value of its known type. Anything else is
text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from proxy.guardrails.text.payloads import LEAST_OPAQUE, data_of

Level = tuple[str, ...]

COUNTS = frozenset({
    "accepted_prediction_tokens", "audio_tokens", "cache_creation_input_tokens",
    "cache_read_input_tokens", "cached_tokens", "completion_tokens", "completion_tokens_details",
    "cost", "image_tokens", "input_tokens", "output_tokens", "prompt_tokens",
    "cache_write_tokens", "input_tokens_details", "output_tokens_details", "prompt_tokens_details",
    "reasoning_tokens", "rejected_prediction_tokens", "text_tokens", "total_tokens",
})  # fmt: skip
"""Names in usage."""

OF_BLOCKS = frozenset({
    "block", "citations", "end", "input_schema", "is_error", "seal", "signature", "source", "start",
    "stop", "stop_reason", "system", "tool_use_id",
})  # fmt: skip
"""Members of blocks of Messages without texts."""

OF_ITEMS = frozenset({
    "at", "call_id", "content_index", "event", "item", "output", "output_index", "part", "response",
    "sequence_number", "status", "summary_index",
})  # fmt: skip
"""Members of items of Responses without texts."""


def role_of_item(item: Mapping[str, Any]) -> str | None:
    """Return the role of a message or an item of a request, or None. Outputs belong to the tool,
    all other typed items to the assistant."""
    role, kind = item.get("role"), item.get("type")
    if isinstance(role, str):
        return role
    if not isinstance(kind, str) or kind == "message":
        return None
    return "tool" if kind.endswith("_output") else "assistant"


_CALLS = frozenset(
    {"custom_tool_call", "function_call", "mcp_call", "mcp_tool_use", "server_tool_use"}
    | {"tool_use"}
)
"""Types of blocks and items that call a tool."""


def name_in_chat(name: str, item: Mapping[str, Any], path: Sequence[object]) -> str:
    """Return the name in a chat of a member of an item at a path, so that its texts have the same
    kind in every API family."""
    if name == "input" and path[-1:] == ("custom",) and path[0] in ("choices", "messages"):
        return "arguments"
    if name in ("content", "name"):
        kind = item.get("type")
        if name == "content" and kind == "reasoning":
            return "reasoning"
        if name == "name" and isinstance(kind, str) and kind in _CALLS:
            return "tool_calls"
    return name


NUMBERS = frozenset({bool, float, int, type(None)})
"""Types of JSON values without texts."""

_FINISHES = frozenset(
    {"stop", "length", "tool_calls", "function_call", "content_filter", "error", "timeout",
     "eos", "abort"}
)  # fmt: skip

_FILTER = "content_filter_results"
_HARMS = frozenset(
    {"hate", "self_harm", "sexual", "violence", "jailbreak", "profanity", "indirect_attack",
     "protected_material_text", "protected_material_code"}
)  # fmt: skip
_SEVERITIES = frozenset({"safe", "low", "medium", "high"})
_FLAGS = frozenset({"filtered", "detected"})


def is_counts(value: Any) -> bool:
    """Return True if a value is numbers under known names of usage."""
    if value.__class__ is not dict:
        return value.__class__ in NUMBERS
    for name, part in value.items():
        if name not in COUNTS or not (part.__class__ in NUMBERS or is_details(part)):
            return False
    return True


def is_details(value: Any) -> bool:
    """Return True if a value is a part of usage."""
    if value.__class__ is not dict:
        return False
    for name, part in value.items():
        if name not in COUNTS or part.__class__ not in NUMBERS:
            return False
    return True


def is_name(value: Any) -> bool:
    """Return True if a value is null or at most 128 characters without white space."""
    if value is None:
        return True
    return isinstance(value, str) and len(value) <= _LONGEST and value.split() in ([value], [])


def _is_number(value: Any) -> bool:
    """Return True if a value is null or a number."""
    return value is None or isinstance(value, int | float)


def _is_finish(value: Any) -> bool:
    """Return True if a value is null or a finish reason of a dialect."""
    return value is None or (value.__class__ is str and value in _FINISHES)


def _is_filtered(value: Any) -> bool:
    """Return True if a value is null or a result of Azure's content filter."""
    # https://learn.microsoft.com/azure/ai-foundry/openai/concepts/content-filter
    if value.__class__ is not dict:
        return value is None
    return all(name in _HARMS and _is_verdict(each) for name, each in value.items())


def _is_verdict(value: Any) -> bool:
    if value.__class__ is not dict:
        return False
    for name, each in value.items():
        known = _SEVERITIES if name == "severity" else (True, False) if name in _FLAGS else ()
        if each.__class__ not in (str, bool) or each not in known:
            return False
    return True


def _is_vector(value: Any) -> bool:
    """Return True if a value is numbers, or more than 256 characters of base64 without a text."""
    if isinstance(value, str):
        return len(value) > LEAST_OPAQUE and _is_opaque(value)
    if isinstance(value, orjson.Fragment):  # unparsed JSON of numbers
        return True
    return isinstance(value, list) and all(isinstance(each, int | float) for each in value)


def _is_opaque(value: str) -> bool:
    """Return True if a value is base64 without a text."""
    data = data_of(value, bare=True)
    return data is not None and data.text is None and not value.startswith("data:")


def _is_signature(value: Any) -> bool:
    """Return True if a value is only a thought signature of Gemini."""
    for name in ("google", "thought_signature"):
        if value.__class__ is not dict or [*value] != [name]:
            return False
        value = value[name]
    return is_name(value) or (isinstance(value, str) and _is_opaque(value))


Silence = tuple[Callable[[Any], bool], str]
_ID: Silence = (is_name, "identifier from the upstream")
_INDEX: Silence = (_is_number, "index")
_CALL: Mapping[str, Silence] = {
    "id": _ID,
    "index": _INDEX,
    "extra_content": (_is_signature, "signature that the upstream expects back"),
}
_ITEM: Mapping[str, Silence] = {"call_id": _ID, "id": _ID}

SILENT_ANSWER: Mapping[Level, Mapping[str, Silence]] = {
    (): {
        "id": _ID,
        "object": (is_name, "type of document"),
        "created": (_is_number, "time"),
        "model": (is_name, "model"),
        "system_fingerprint": (is_name, "build of the model"),
        "service_tier": (is_name, "service tier"),
        "usage": (is_counts, "counts"),
    },
    ("choices",): {
        "index": _INDEX,
        "finish_reason": (_is_finish, "finish reason"),
        _FILTER: (_is_filtered, "result of a filter of the upstream"),
    },
    ("choices", "message", "content"): _ITEM,
    ("choices", "message", "tool_calls"): _CALL,
    ("choices", "delta", "tool_calls"): _CALL,
    ("data",): {
        "index": _INDEX,
        "object": (is_name, "type of document"),
        "embedding": (_is_vector, "vector"),
    },
}
"""Ignored members by their path, with the check of their value and the reason."""

_LONGEST = 128  # characters of a name or an id; a longer one is a text
_NO_WORDS = frozenset({"created", "usage"})  # ignored members that are no strings
_CHOICES = ("choices",)
_DEEP = (dict, list)

NAMES = frozenset(name for names in SILENT_ANSWER.values() for name in names)
"""All names that are ignored at some path."""


NO_TEXTS = (NAMES - {_FILTER}) | COUNTS | OF_BLOCKS | OF_ITEMS
"""All names under which a number is no text."""


def is_silent(level: Level, name: str, value: Any) -> bool:
    """Return True if a member at a level of a response is ignored."""
    silence = SILENT_ANSWER.get(level, {}).get(name)
    return silence is not None and silence[0](value)


def is_silent_head(data: Mapping[str, Any]) -> bool:
    """Return True if only the choices have texts: a fast form of ``is_silent``."""
    words = [value for value in data.values() if value.__class__ is str]
    together = " ".join(words)
    if len(together) > _LONGEST or together.split() != words:  # otherwise each is a name
        for word in words:
            if not is_name(word):
                return False
    for name, value in data.items():
        kind = value.__class__
        if kind is str:
            if name in _NO_WORDS:
                return False
        elif kind in _DEEP and name != "choices" and not (name == "usage" and is_counts(value)):
            return False
    return True


def is_silent_choice(choice: Mapping[str, Any]) -> bool:
    """Return True if the index and the finish reason of a choice are ignored."""
    index = choice.get("index")
    if index.__class__ is str or index.__class__ in _DEEP:
        return False
    return _is_finish(choice.get("finish_reason"))
