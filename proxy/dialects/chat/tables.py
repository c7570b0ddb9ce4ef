"""Tables of the members of chat completions and legacy completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.dialects.frames.shapes import (
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
"""Parts of one response. More are an error in a split stream, and have no events in others."""
IDENTITY: Final[tuple[str, ...]] = ("id", "object", "created", "model", "system_fingerprint")
"""Members that each chunk of a response repeats."""
PADDING: Final = "obfuscation"
"""Random text by which OpenAI hides the sizes of chunks. Dropped from an inspected stream."""
THOUGHTS: Final = ("reasoning_content", "reasoning")
"""The names of reasoning. Some servers send the same text under both."""
INPUTS: Final[Mapping[str, tuple[str, Kind]]] = {
    "function": ("arguments", "arguments"),
    "custom": ("input", "input"),
}
"""The member of the text and its kind, by the type of a tool call."""
FINISHES: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


@frozen
class ChatForm:
    """Location of the texts in a choice.

    Attributes:
        holder: Member of the choice that has the texts; empty if the choice itself has them.
        texts: Kinds of the texts by member, in the order of a chat message.
        whole: Form of a response that is one document, if different.
    """

    family: FamilyName
    holder: str
    texts: Mapping[str, Kind]
    whole: ChatForm | None = None


_REASONING: Final[dict[str, Kind]] = dict.fromkeys(THOUGHTS, "reasoning")
_CHAT_TEXTS: Final[dict[str, Kind]] = {**_REASONING, "content": "text", "refusal": "refusal"}
CHAT: Final = ChatForm("chat", "delta", _CHAT_TEXTS, whole=ChatForm("chat", "message", _CHAT_TEXTS))
COMPLETIONS: Final = ChatForm(
    "completions", "", {**_REASONING, "text": "text", "refusal": "refusal"}
)

SILENT_MEMBERS: Final[Shape] = {
    **dict.fromkeys(("id", "object", "model", "system_fingerprint", "service_tier"), is_name),
    "created": is_number,
    "usage": is_counts,
    "choices": lambda value: type(value) is list,
}
"""Shapes of the members of a document that guards need not read."""
SILENT_OF_CHOICE: Final[Mapping[str, Check]] = {
    "index": is_number,
    "finish_reason": one_of(*FINISHES, "error", "timeout", "eos", "abort", ""),
    "logprobs": lambda value: not value,
}
"""Shapes of the members of a choice that guards need not read."""
SILENT_CALL: Final[Shape] = {
    "id": is_name,
    "index": is_number,
    "type": one_of(*INPUTS, ""),
    **{
        kind: nullable({"name": is_empty, member: nullable(is_text)})
        for kind, (member, _) in INPUTS.items()
    },
}
"""Shapes of the members of a tool call that guards need not read. `Begin` has its name, so a name
in a later chunk has none of these shapes."""
