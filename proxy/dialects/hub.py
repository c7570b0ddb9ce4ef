"""Converts requests and answers between chat and legacy completions, both ways.

A client of one can be served by a target that has only the other. ``translation`` refuses what has
no counterpart.
"""

from __future__ import annotations

from typing import Any

from proxy.dialects.logprobs import Lengths, chat_form, legacy_form
from proxy.errors import BadField, UpstreamInvalid
from proxy.index import index_of
from proxy.types import Json


def finishes(data: Json) -> bool:
    """Return True if a choice of an answer or a chunk has a finish reason."""
    if "choices" not in data or type(data["choices"]) is not list:
        return False
    for choice in data["choices"]:
        if type(choice) is not dict or "finish_reason" not in choice:
            continue
        if choice["finish_reason"]:  # some servers send an empty one in each chunk
            return True
    return False


def logprobs_as_count(body: Json) -> Json:
    """Legacy form: the number of alternatives; ``true`` alone asks for the chosen token only."""
    asked = body.get("logprobs")
    if type(asked) is not bool:
        return body
    count = (body.get("top_logprobs") or 0) if asked else None
    rest = {k: v for k, v in body.items() if k not in ("logprobs", "top_logprobs")}
    return rest if count is None else rest | {"logprobs": count}


def logprobs_as_flag(body: Json) -> Json:
    """Chat form: a flag, and the number of alternatives beside it."""
    asked = body.get("logprobs")
    if type(asked) is not int:
        return body
    return body | {"logprobs": True, "top_logprobs": asked}


def _one_text(prompt: Any) -> str:
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        problem = "must be one string, because the upstream of this model supports chat only"
        raise BadField("prompt", problem)
    return prompt


def chat_request(body: Json) -> Json:
    """Put a legacy request as chat: the prompt is what the user says."""
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
        raise BadField("messages", problem)
    return content


def legacy_request(body: Json) -> Json:
    """Put a chat request as one prompt: ``role: text`` paragraphs, open at the assistant's turn."""
    turns = [f"{message['role']}: {_text(message)}" for message in body.get("messages") or ()]
    prompt = "\n\n".join([*turns, "assistant:"])
    rest = {k: v for k, v in body.items() if k not in ("messages", "max_completion_tokens")}
    if body.get("max_completion_tokens") is not None:
        rest["max_tokens"] = body["max_completion_tokens"]
    return logprobs_as_count({**rest, "prompt": prompt})


def _choices(data: Json) -> list[Json]:
    choices = data.get("choices")
    return [c for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []


def _spoken(choice: Json) -> Json:
    """Return the message or the delta of a choice. Raises ``UpstreamInvalid``."""
    message = choice.get("message") or choice.get("delta") or {}
    if not isinstance(message, dict):
        raise UpstreamInvalid("The upstream sent a choice whose message is not an object.")
    return message


class ChatToLegacy:
    """Reword chat answers, whole or chunk by chunk, as legacy completions.

    What a message holds beside its text (tool calls, refusal, reasoning) stays on the choice.
    """

    __slots__ = ("_lengths",)

    def __init__(self) -> None:
        self._lengths = Lengths()

    def feed(self, data: Json) -> Json | None:
        """Return the reworded answer, or None for a chunk that is empty in the other form."""
        choices = [self._choice(choice) for choice in _choices(data)]
        empty = all(not c["text"] and c["finish_reason"] is None and len(c) == 4 for c in choices)
        if choices and empty and not data.get("usage"):
            return None
        return {**data, "object": "text_completion", "choices": choices}

    def _choice(self, choice: Json) -> Json:
        message = _spoken(choice)
        beside = {k: v for k, v in message.items() if k not in ("role", "content") and v}
        text = message.get("content") or ""
        begin = self._lengths.pass_by(choice, text)
        return {
            "index": choice.get("index", 0),
            "text": text,
            "logprobs": legacy_form(choice.get("logprobs"), begin),
            "finish_reason": choice.get("finish_reason"),
            **beside,
        }


class LegacyToChat:
    """Reword legacy answers, whole or chunk by chunk, as chat; each choice opens with its role."""

    __slots__ = ("_opened", "_streamed")

    def __init__(self, *, streamed: bool) -> None:
        self._streamed = streamed
        self._opened: set[int] = set()

    def feed(self, data: Json) -> Json | None:
        kind = "chat.completion.chunk" if self._streamed else "chat.completion"
        return {**data, "object": kind, "choices": [self._choice(c) for c in _choices(data)]}

    def _choice(self, choice: Json) -> Json:
        index = choice.get("index", 0)
        place = index_of(choice, 0)
        message: Json = {"content": choice.get("text") or ""}
        if not self._streamed or place not in self._opened:
            self._opened.add(place)
            message = {"role": "assistant", **message}
        return {
            "index": index,
            ("delta" if self._streamed else "message"): message,
            "logprobs": chat_form(choice.get("logprobs")),
            "finish_reason": choice.get("finish_reason"),
        }


def as_stream(data: Json) -> list[Json]:
    """Cut a whole answer into the events of a stream, for an upstream that cannot stream."""
    whole_chat = data.get("object") == "chat.completion"
    choices = [_delta(choice) if whole_chat else choice for choice in _choices(data)]
    chat = whole_chat or data.get("object") == "chat.completion.chunk"
    kind = "chat.completion.chunk" if chat else "text_completion"
    head = {k: v for k, v in data.items() if k not in ("choices", "usage", "object")}
    events: list[Json] = [{**head, "object": kind, "choices": choices}]
    if data.get("usage") is not None:
        events.append({**head, "object": kind, "choices": [], "usage": data["usage"]})
    return events


def _delta(choice: Json) -> Json:
    message = _spoken(choice)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        numbered = [
            {**call, "index": at} for at, call in enumerate(calls) if isinstance(call, dict)
        ]
        message = message | {"tool_calls": numbered}
    rest = {k: v for k, v in choice.items() if k != "message"}
    return {**rest, "delta": message}
