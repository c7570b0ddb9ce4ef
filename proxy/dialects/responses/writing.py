"""An answer in chat's form as a response, whole.

What came from an upstream of Responses has its items with it, see ``reading``; of any other answer
they are made here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.dialects.responses.reading import member, objects
from proxy.dialects.responses.words import CONVERSATION, ECHOED, PREVIOUS, UNSTORED
from proxy.dialects.signed_calls import shown_id
from proxy.types import Call, Json
from proxy.usage import read_usage

REASONS: Mapping[str, str] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
}
"""Why an answer is not complete, in the words of Responses."""

CHAT_COUNTS = frozenset(
    {"completion_tokens", "completion_tokens_details", "prompt_tokens", "prompt_tokens_details"}
    | {"server_tool_use"}
)
NOT_STORED: Json = {"store": False}
"""Nobody keeps an answer that crosses, whatever was asked for."""
REPEATED = (
    *("background", "max_output_tokens", "parallel_tool_calls", "reasoning", "store"),
    *("temperature", "top_p", "truncation"),
)
"""What an answer that crosses repeats of its question, beside what is ``ECHOED``."""
_USUAL: Json = {"parallel_tool_calls": True, "temperature": 1.0, "top_p": 1.0, "background": False}


def own_usage(usage: Any) -> Json | None:
    """Return usage in the words of Responses."""
    if not isinstance(usage, dict):
        return None
    if "input_tokens" in usage:
        return {name: value for name, value in usage.items() if name not in CHAT_COUNTS}
    tokens = read_usage(usage)
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


def echoed(call: Call | None) -> Json:
    """Return what a response repeats of its question: as the client has said it."""
    body = {} if call is None else call.body
    made = {name: body.get(name, usual) for name, usual in ECHOED.items()}
    if call is not None and call.pin is not None and call.pin.id:
        if call.pin.is_conversation:
            made[CONVERSATION] = {"id": call.pin.sealed}
        else:
            made[PREVIOUS] = call.pin.sealed
    return made


def repeated(call: Call | None) -> Json:
    """Return what one that crosses repeats, where nobody else says it."""
    body = {} if call is None else call.body
    return {name: body.get(name, _USUAL.get(name)) for name in REPEATED} | NOT_STORED


def choice_of(data: Json) -> Json:
    choices = data.get("choices")
    return member(choices[0]) if isinstance(choices, list) and choices else {}


def status_of(finish: Any) -> Json:
    reason = REASONS.get(str(finish))
    if reason is None:
        return {"status": "completed", "incomplete_details": None}
    return {"status": "incomplete", "incomplete_details": {"reason": reason}}


def whole(call: Call | None, parts: Mapping[int, Json]) -> Json:
    """Compose the response out of its only part."""
    data = parts[0]
    choice = choice_of(data)
    message = member(choice.get("message"))
    rest = choice.get("rest")
    output = message.get("content")
    if output.__class__ is not list:
        output = items_of(message, str(data.get("id")))
    made = repeated(call) | status_of(choice.get("finish_reason"))
    return {
        "id": data.get("id"),
        "object": "response",
        "created_at": data.get("created"),
        "model": data.get("model"),
        "error": None,
        **(rest if isinstance(rest, dict) else made),
        **echoed(call),
        "output": output,
        "usage": own_usage(data.get("usage")),
    }


def items_of(message: Json, name: str) -> list[Json]:
    """Return what a chat's message says as items, whose ids follow from a ``name``."""
    items: list[Json] = []
    thought = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thought, str) and thought:
        items.append(reasoning_item(name, 0, [{"type": "reasoning_text", "text": thought}]))
    parts: list[Json] = []
    if isinstance(message.get("content"), str) and (message["content"] or not items):
        parts.append(text_part(message["content"]))
    if isinstance(message.get("refusal"), str) and message["refusal"]:
        parts.append({"type": "refusal", "refusal": message["refusal"]})
    calls = objects(message.get("tool_calls"))
    if any(part.get("text") or part.get("refusal") for part in parts) or not calls:
        items.append(message_item(name, len(items), parts))
    return items + [call_item(name, len(items) + at, call) for at, call in enumerate(calls)]


def unstored_id(kind: str, name: str, at: int) -> str:
    """Return the id of an item that no provider stores."""
    return f"{kind}_{UNSTORED}{name.removeprefix('msg_')}_{at}"


def text_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def message_item(name: str, at: int, parts: list[Json], status: str = "completed") -> Json:
    head = {"id": unstored_id("msg", name, at), "type": "message", "status": status}
    return {**head, "role": "assistant", "content": parts}


def reasoning_item(name: str, at: int, parts: list[Json]) -> Json:
    return {"id": unstored_id("rs", name, at), "type": "reasoning", "summary": [], "content": parts}


def call_item(name: str, at: int, call: Json, status: str = "completed") -> Json:
    """Return a call of a chat as an item."""
    if call.get("type") == "custom":
        custom = member(call.get("custom"))
        head = {"id": unstored_id("ctc", name, at), "type": "custom_tool_call", "status": status}
        inner = {"name": custom.get("name"), "input": custom.get("input") or ""}
    else:
        function = member(call.get("function"))
        head = {"id": unstored_id("fc", name, at), "type": "function_call", "status": status}
        inner = {"name": function.get("name"), "arguments": function.get("arguments") or ""}
    return {**head, "call_id": shown_id(call), **inner}
