"""What an upstream of paper sends: whole answers, streams and errors, in OpenAI's form."""

from __future__ import annotations

from typing import Any

import orjson

from proxy.dialects import sse
from proxy.policytest.cases import ScriptedAnswer
from proxy.types import Json

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def pieces(says: ScriptedAnswer, url: str, question: Json) -> list[bytes]:
    """Return the body of a response, piece by piece."""
    if says.status != 200:
        error = {"message": says.text or "as the test says", "type": "server_error"}
        return [orjson.dumps({"error": error})]
    if says.fault == "garbled":
        return [b'{"choices": [']
    head: Json = {"id": "policytest", "created": 0, "model": question.get("model")}
    if url.endswith("/embeddings"):
        data = [{"object": "embedding", "index": 0, "embedding": [0.0]}]
        return [orjson.dumps({**head, "object": "list", "data": data, "usage": _usage(says)})]
    chat = url.endswith("/chat/completions")
    if question.get("stream"):
        return _events(says, head, chat=chat)
    choice = _choice("".join(says.pieces), "stop", "message" if chat else None)
    kind = "chat.completion" if chat else "text_completion"
    body = orjson.dumps({**head, "object": kind, "choices": [choice], "usage": _usage(says)})
    return [body] if says.fault != "cut" else [body[: len(body) // 2]]


def _usage(says: ScriptedAnswer) -> dict[str, int]:
    return says.usage if says.usage is not None else USAGE


def _choice(text: str, finish: str | None, place: str | None) -> Json:
    content: Any = (
        {"text": text} if place is None else {place: {"role": "assistant", "content": text}}
    )
    return {"index": 0, "finish_reason": finish, "logprobs": None, **content}


def _events(says: ScriptedAnswer, head: Json, *, chat: bool) -> list[bytes]:
    head = {**head, "object": "chat.completion.chunk" if chat else "text_completion"}
    place = "delta" if chat else None
    events = [{**head, "choices": [_choice(text, None, place)]} for text in says.pieces]
    sent = [sse.event(orjson.dumps(event)) for event in events]
    if says.fault == "cut":
        return sent
    end = {**head, "choices": [_choice("", "stop", place)]}
    usage = {**head, "choices": [], "usage": _usage(says)}
    return [*sent, *(sse.event(orjson.dumps(event)) for event in (end, usage)), sse.event(sse.DONE)]
