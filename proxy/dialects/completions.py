"""Converts requests between chat and legacy completions.

A client of one can be served by a target that has only the other.
"""

from __future__ import annotations

from typing import Any

from proxy.errors import InvalidField
from proxy.types import Json


def logprobs_as_count(body: Json) -> Json:
    """Return a request with `logprobs` as legacy completions has it: the number of alternatives.
    `true` alone is 0, the chosen token only."""
    asked = body.get("logprobs")
    if type(asked) is not bool:
        return body
    count = (body.get("top_logprobs") or 0) if asked else None
    rest = {k: v for k, v in body.items() if k not in ("logprobs", "top_logprobs")}
    return rest if count is None else rest | {"logprobs": count}


def logprobs_as_flag(body: Json) -> Json:
    """Return a request with `logprobs` as chat has it: a flag, and the number of alternatives as
    `top_logprobs`."""
    asked = body.get("logprobs")
    if type(asked) is not int:
        return body
    return body | {"logprobs": True, "top_logprobs": asked}


def _one_text(prompt: Any) -> str:
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        problem = "must be one string, because the upstream of this model supports chat only"
        raise InvalidField("prompt", problem)
    return prompt


def chat_request(body: Json) -> Json:
    """Return a legacy request as a chat, whose user message is the prompt. Raises
    `InvalidField`."""
    message = {"role": "user", "content": _one_text(body.get("prompt"))}
    rest = {k: v for k, v in body.items() if k != "prompt"}
    return logprobs_as_flag({**rest, "messages": [message]})


def _text(message: Json) -> str:
    content = message.get("content")
    if content is None:
        content = ""
    if isinstance(content, list):
        parts = [p.get("text") for p in content if isinstance(p, dict) and p.get("type") == "text"]
        content = (
            "".join(p for p in parts if isinstance(p, str)) if len(parts) == len(content) else None
        )
    if not isinstance(content, str) or message.get("tool_calls") or message.get("function_call"):
        problem = "must have only text, because the upstream of this model has no chat endpoint"
        raise InvalidField("messages", problem)
    return content


def legacy_request(body: Json) -> Json:
    """Return a chat as a legacy request. The prompt has a paragraph `role: text` for each message,
    and ends with `assistant:`. Raises `InvalidField` for content that is not text."""
    turns = [f"{message['role']}: {_text(message)}" for message in body.get("messages") or ()]
    prompt = "\n\n".join([*turns, "assistant:"])
    rest = {k: v for k, v in body.items() if k not in ("messages", "max_completion_tokens")}
    if body.get("max_completion_tokens") is not None:
        rest["max_tokens"] = body["max_completion_tokens"]
    return logprobs_as_count({**rest, "prompt": prompt})
