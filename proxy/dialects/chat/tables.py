"""Members of chat completions and of legacy completions, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.frozen import frozen
from proxy.types import Json
from proxy.types.events import FamilyName, FinishReason, Kind

MAX_PARTS: Final = 16_384
"""Parts of one answer. A split stream with more is an error; the others of any other stream are
not typed."""
IDENTITY: Final[tuple[str, ...]] = ("id", "object", "created", "model", "system_fingerprint")
"""Members that each chunk of an answer repeats."""
PADDING: Final = "obfuscation"
"""Random text by which OpenAI hides the sizes of chunks. It is dropped if a stream is inspected."""
THOUGHTS: Final = ("reasoning_content", "reasoning")
"""The names of reasoning. Some servers send the same text under both."""
INPUTS: Final[Mapping[str, tuple[str, Kind]]] = {
    "function": ("arguments", "arguments"),
    "custom": ("input", "input"),
}
"""By the type of a tool call: the member of its text, and the kind."""
FINISHES: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}
ROLES: Final = frozenset({"assistant", "", None})
CALL_TYPES: Final = frozenset({"function", "custom", "", None})
NUMBERS: Final = frozenset({int, float, bool, type(None)})
MAX_NAME: Final = 128
"""Characters of a string that can be an id or a name."""

_FINISH_WORDS: Final = FINISHES.keys() | {"error", "timeout", "eos", "abort", "", None}
_COUNTS: Final = frozenset(
    {"accepted_prediction_tokens", "audio_tokens", "cache_creation_input_tokens"}
    | {"cache_read_input_tokens", "cache_write_tokens", "cached_tokens", "completion_tokens"}
    | {"completion_tokens_details", "cost", "image_tokens", "input_tokens", "output_tokens"}
    | {"input_tokens_details", "output_tokens_details", "prompt_tokens", "prompt_tokens_details"}
    | {"reasoning_tokens", "rejected_prediction_tokens", "text_tokens", "total_tokens"}
)


@frozen
class ChatForm:
    """Where a document of the family has the texts of a choice: in a member of the choice, or in
    the choice itself if `holder` is empty. `texts` are in the order of a chat message."""

    family: FamilyName
    holder: str
    texts: Mapping[str, Kind]


_REASONING: Final[dict[str, Kind]] = dict.fromkeys(THOUGHTS, "reasoning")
CHAT: Final = ChatForm("chat", "delta", {**_REASONING, "content": "text", "refusal": "refusal"})
WHOLE_CHAT: Final = ChatForm("chat", "message", CHAT.texts)
COMPLETIONS: Final = ChatForm(
    "completions", "", {**_REASONING, "text": "text", "refusal": "refusal"}
)


def is_name(value: Any) -> bool:
    """Return True for null, or at most 128 characters without white space."""
    if type(value) is not str:
        return value is None
    return len(value) <= MAX_NAME and value.split() in ([value], [])


def is_number(value: Any) -> bool:
    return type(value) in NUMBERS


def is_counts(value: Any, depth: int = 2) -> bool:
    """Return True for numbers under the names that usage has, in up to two levels."""
    if type(value) is not dict:
        return is_number(value)
    return depth > 0 and all(
        name in _COUNTS and is_counts(part, depth - 1) for name, part in value.items()
    )


def is_finish(value: Any) -> bool:
    return type(value) in (str, type(None)) and value in _FINISH_WORDS


SILENT_MEMBERS: Final = {
    **dict.fromkeys(("id", "object", "model", "system_fingerprint", "service_tier"), is_name),
    "created": is_number,
    "usage": is_counts,
    "choices": lambda value: type(value) is list,
}
"""Members of a document that no guard reads if their value has this shape."""
SILENT_OF_CHOICE: Final = {
    "index": is_number,
    "finish_reason": is_finish,
    "logprobs": lambda value: not value,
}
"""Members of a choice that no guard reads, likewise."""


def is_silent(value: Json, silent: Mapping[str, Any]) -> bool:
    """Return True if all members of an object are silent ones of the right shape."""
    return all([name in silent and silent[name](each) for name, each in value.items()])
