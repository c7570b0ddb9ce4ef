"""Members of chat completions and of legacy completions, as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.dialects.shapes import (
    Check,
    Shape,
    is_counts,
    is_empty,
    is_name,
    is_number,
    is_text,
    nullable,
    one_of,
)
from proxy.runtime.frozen import frozen
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


SILENT_MEMBERS: Final[Shape] = {
    **dict.fromkeys(("id", "object", "model", "system_fingerprint", "service_tier"), is_name),
    "created": is_number,
    "usage": is_counts,
    "choices": lambda value: type(value) is list,
}
"""Members of a document that no guard reads if their value has this shape."""
SILENT_OF_CHOICE: Final[Mapping[str, Check]] = {
    "index": is_number,
    "finish_reason": one_of(*FINISHES, "error", "timeout", "eos", "abort", ""),
    "logprobs": lambda value: not value,
}
"""Members of a choice that no guard reads, likewise."""
SILENT_CALL: Final[Shape] = {
    "id": is_name,
    "index": is_number,
    "type": one_of(*INPUTS, ""),
    **{
        kind: nullable({"name": is_empty, member: nullable(is_text)})
        for kind, (member, _) in INPUTS.items()
    },
}
"""Members of a tool call that no guard reads as JSON: its name is in `Begin`, and is read as JSON
only if it comes again."""
