"""Adapts chat requests to legacy completions, and to providers that differ from OpenAI.

`proxy.types.providers` declares how the providers differ.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any

from proxy.dialects.chat.content_parts import THOUGHTS
from proxy.errors import InvalidField
from proxy.types import Json
from proxy.types.providers import MAX_TOKENS, Provider

UNKNOWN_THOUGHT = " "
"""A thought that nobody sent back: providers that require one take it for any."""
SHORT_ID = re.compile("[A-Za-z0-9]{9}")
_REFUSED = THOUGHTS | {"annotations", "audio", "function_call", "refusal"}
_OF_CALLS = frozenset({"custom", "function", "id", "index", "type"})


def logprobs_as_count(body: Json) -> Json:
    """Return a request with `logprobs` as a number of alternatives, as in legacy completions.

    `true` without a number becomes 0: the chosen token only.
    """
    logprobs = body.get("logprobs")
    if type(logprobs) is not bool:
        return body
    count = (body.get("top_logprobs") or 0) if logprobs else None
    other_fields = {k: v for k, v in body.items() if k not in ("logprobs", "top_logprobs")}
    return other_fields if count is None else other_fields | {"logprobs": count}


def logprobs_as_flag(body: Json) -> Json:
    """Return a request with `logprobs` as chat has it: a flag, and the number of alternatives as
    `top_logprobs`."""
    logprobs = body.get("logprobs")
    if type(logprobs) is not int:
        return body
    return body | {"logprobs": True, "top_logprobs": logprobs}


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
    other_fields = {k: v for k, v in body.items() if k != "prompt"}
    return logprobs_as_flag({**other_fields, "messages": [message]})


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
    other_fields = {k: v for k, v in body.items() if k not in ("messages", "max_completion_tokens")}
    if body.get("max_completion_tokens") is not None:
        other_fields["max_tokens"] = body["max_completion_tokens"]
    return logprobs_as_count({**other_fields, "prompt": prompt})


def provider_chat(body: Json, traits: Provider) -> tuple[Json, tuple[str, ...]]:
    """Return a chat as the provider accepts it, and the names of removed parts of messages."""
    chat, dropped = dict(body), set[str]()
    for renamed in traits.renamed:
        name, provider_name = renamed
        value, limit = chat.pop(name, None), chat.get(provider_name)
        if limit is not None and type(limit) is not int:
            raise InvalidField(provider_name, "must be an integer")
        if value is not None and (limit is None or renamed == MAX_TOKENS):
            chat[provider_name] = value if limit is None else min(value, limit)
    messages = body.get("messages")
    if isinstance(messages, list):
        chat["messages"] = [_message(message, traits, dropped) for message in messages]
    return chat, tuple(sorted(dropped))


def _message(message: Any, traits: Provider, dropped: set[str]) -> Any:
    role = message.get("role") if isinstance(message, dict) else None
    if role == "developer" and traits.fields is not None:
        return {**message, "role": "system"}
    if role == "tool" and traits.has_short_ids:
        return _shortened(message, "tool_call_id")
    if role != "assistant":
        return message
    if traits.thoughts == "refused":
        dropped |= {name for name in _REFUSED & message.keys() if message[name]}
        message = {name: value for name, value in message.items() if name not in _REFUSED}
    calls = message.get("tool_calls")
    if not isinstance(calls, list) or not calls:
        return message
    if traits.thoughts == "required" and not message.get("reasoning_content"):
        thought = message.get("reasoning")
        message = {**message, "reasoning_content": thought or UNKNOWN_THOUGHT}
    return {**message, "tool_calls": [_call(call, traits) for call in calls]}


def _call(call: Any, traits: Provider) -> Any:
    if not isinstance(call, dict):
        return call
    if traits.thoughts == "refused" and not traits.signs_calls:
        call = {name: value for name, value in call.items() if name in _OF_CALLS}
    return _shortened(call, "id") if traits.has_short_ids else call


def _shortened(value: Json, name: str) -> Json:
    """Return an object whose id has nine letters and digits, always the same for one id."""
    id_ = value.get(name)
    if not isinstance(id_, str) or SHORT_ID.fullmatch(id_):
        return value
    short = blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()[:9]
    return {**value, name: short}
