"""Between OpenAI's two forms: legacy completions and chat, requests and answers, both ways.

A client of one can be served by a target that speaks only the other. What has no counterpart is
refused by ``crossing``, never guessed.
"""

from __future__ import annotations

from typing import Any

from proxy.errors import BadField
from proxy.types import Json


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
        raise BadField("prompt", "this model is reached by chat, which takes one text as prompt")
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
        raise BadField("messages", "this model takes text only, without tool calls or other parts")
    return content


def legacy_request(body: Json) -> Json:
    """Put a chat request as one prompt: ``role: text`` paragraphs, open at the assistant's turn."""
    turns = [f"{message['role']}: {_text(message)}" for message in body["messages"]]
    prompt = "\n\n".join([*turns, "assistant:"])
    rest = {k: v for k, v in body.items() if k not in ("messages", "max_completion_tokens")}
    if body.get("max_completion_tokens") is not None:
        rest["max_tokens"] = body["max_completion_tokens"]
    return logprobs_as_count({**rest, "prompt": prompt})


def _legacy_logprobs(logprobs: Any) -> Any:
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list):
        return None
    offsets, at = [], 0
    for each in content:
        offsets.append(at)
        at += len(each.get("token", ""))
    return {
        "tokens": [each.get("token") for each in content],
        "token_logprobs": [each.get("logprob") for each in content],
        "top_logprobs": [
            {top.get("token"): top.get("logprob") for top in each.get("top_logprobs") or ()}
            for each in content
        ],
        "text_offset": offsets,
    }


def _spelled(token: Any, logprob: Any) -> Json:
    spelling = list(token.encode()) if isinstance(token, str) else None
    return {"token": token, "logprob": logprob, "bytes": spelling}


def _chat_logprobs(logprobs: Any) -> Any:
    if not isinstance(logprobs, dict) or "content" in logprobs:
        return logprobs
    tokens = logprobs.get("tokens") or []
    chosen = logprobs.get("token_logprobs") or [None] * len(tokens)
    tops = logprobs.get("top_logprobs") or [None] * len(tokens)
    return {
        "content": [
            _spelled(token, logprob) | {"top_logprobs": [_spelled(*t) for t in (top or {}).items()]}
            for token, logprob, top in zip(tokens, chosen, tops, strict=False)
        ]
    }


def _choices(data: Json) -> list[Json]:
    choices = data.get("choices")
    return [c for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []


class ChatToLegacy:
    """Reword chat answers, whole or chunk by chunk, as legacy completions.

    What a message holds beside its text (tool calls, refusal, reasoning) stays on the choice.
    """

    __slots__ = ()

    def feed(self, data: Json) -> Json | None:
        """Give the reworded answer, or None for a chunk that says nothing in the other form."""
        choices = [self._choice(choice) for choice in _choices(data)]
        empty = all(not c["text"] and c["finish_reason"] is None and len(c) == 4 for c in choices)
        if choices and empty and not data.get("usage"):
            return None
        return {**data, "object": "text_completion", "choices": choices}

    def _choice(self, choice: Json) -> Json:
        message = choice.get("message") or choice.get("delta") or {}
        beside = {k: v for k, v in message.items() if k not in ("role", "content") and v}
        return {
            "index": choice.get("index", 0),
            "text": message.get("content") or "",
            "logprobs": _legacy_logprobs(choice.get("logprobs")),
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
        said: Json = {"content": choice.get("text") or ""}
        if not self._streamed or index not in self._opened:
            self._opened.add(index)
            said = {"role": "assistant", **said}
        return {
            "index": index,
            ("delta" if self._streamed else "message"): said,
            "logprobs": _chat_logprobs(choice.get("logprobs")),
            "finish_reason": choice.get("finish_reason"),
        }


def as_stream(data: Json) -> list[Json]:
    """Cut a whole answer into the events of a stream, for an upstream that cannot stream."""
    chat = data.get("object") == "chat.completion"
    choices = [_delta(choice) if chat else choice for choice in _choices(data)]
    kind = "chat.completion.chunk" if chat else "text_completion"
    head = {k: v for k, v in data.items() if k not in ("choices", "usage", "object")}
    events: list[Json] = [{**head, "object": kind, "choices": choices}]
    if data.get("usage") is not None:
        events.append({**head, "object": kind, "choices": [], "usage": data["usage"]})
    return events


def _delta(choice: Json) -> Json:
    message = choice.get("message") or {}
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        message = message | {"tool_calls": [{"index": i, **call} for i, call in enumerate(calls)]}
    rest = {k: v for k, v in choice.items() if k != "message"}
    return {**rest, "delta": message}
