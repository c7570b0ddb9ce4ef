"""What an upstream of paper sends: whole answers, streams and errors, in OpenAI's form, or as
Messages or Responses to whom asks for those."""

from __future__ import annotations

from typing import Any

import orjson

from proxy.dialects import sse
from proxy.dialects.anthropic import PATHS
from proxy.dialects.messages import writing
from proxy.dialects.responses import conversations
from proxy.dialects.responses import writing as responses
from proxy.dialects.responses.events import ResponseEvents
from proxy.policytest.cases import ScriptedAnswer
from proxy.types import Chunk, Json

CONVERSATION = {"id": "conv_policytest", "object": "conversation", "created_at": 0}
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def pieces(says: ScriptedAnswer, url: str, question: Json) -> list[bytes]:
    """Return the body of a response, piece by piece."""
    if says.status != 200:
        error = {
            "message": says.text or "simulated error of the policy test",
            "type": "server_error",
        }
        return [orjson.dumps({"error": error})]
    url = url.partition("?")[0]
    if says.fault == "garbled":
        return [b'{"choices": [']
    if (short := _without_text(says, url, question)) is not None:
        return [orjson.dumps(short)]
    if url.endswith(PATHS["chat"]):
        return _messages(says, question)
    head: Json = {"id": "policytest", "created": 0, "model": question.get("model")}
    responds = url.endswith("/responses")
    chat = responds or url.endswith("/chat/completions")
    if responds and question.get("stream"):
        return _response_events(says, head)
    if question.get("stream"):
        return _events(says, head, chat=chat)
    choice = _choice("".join(says.pieces), "stop", "message" if chat else None)
    kind = "chat.completion" if chat else "text_completion"
    document: Json = {**head, "object": kind, "choices": [choice], "usage": _usage(says)}
    body = orjson.dumps(responses.whole(None, {0: document}) if responds else document)
    return [body] if says.fault != "cut" else [body[: len(body) // 2]]


def _without_text(says: ScriptedAnswer, url: str, question: Json) -> Json | None:
    """Return an answer in which nobody says a text; None where somebody does."""
    if url.endswith(PATHS["count_tokens"]):
        return {"input_tokens": _own_usage(says)["input_tokens"]}
    if url.endswith("/embeddings"):
        data = [{"object": "embedding", "index": 0, "embedding": [0.0]}]
        head = {"model": question.get("model"), "object": "list"}
        return {**head, "data": data, "usage": _usage(says)}
    if url.endswith(conversations.PATH):
        return {**CONVERSATION, "metadata": question.get("metadata")}
    return None


def _usage(says: ScriptedAnswer) -> dict[str, int]:
    return says.usage if says.usage is not None else USAGE


def _own_usage(says: ScriptedAnswer) -> Json:
    return writing.own_usage(_usage(says))


def _messages(says: ScriptedAnswer, question: Json) -> list[bytes]:
    """Return an answer of Messages, piece by piece."""
    head: Json = {"id": "policytest", "type": "message", "role": "assistant"}
    head |= {"model": question.get("model"), "stop_sequence": None}
    if not question.get("stream"):
        blocks = [{"type": "text", "text": "".join(says.pieces)}]
        head |= {"content": blocks, "stop_reason": "end_turn", "usage": _own_usage(says)}
        body = orjson.dumps(head)
        return [body] if says.fault != "cut" else [body[: len(body) // 2]]
    begun = head | {"content": [], "stop_reason": None, "usage": _own_usage(says)}
    events: list[Json] = [{"type": "message_start", "message": begun}]
    block = {"type": "text", "text": ""}
    events.append({"type": "content_block_start", "index": 0, "content_block": block})
    for text in says.pieces:
        delta = {"type": "text_delta", "text": text}
        events.append({"type": "content_block_delta", "index": 0, "delta": delta})
    if says.fault != "cut":
        ended = {"stop_reason": "end_turn", "stop_sequence": None}
        events.append({"type": "content_block_stop", "index": 0})
        events.append({"type": "message_delta", "delta": ended, "usage": _own_usage(says)})
        events.append({"type": "message_stop"})
    return [sse.event(orjson.dumps(event)) for event in events]


def _response_events(says: ScriptedAnswer, head: Json) -> list[bytes]:
    """Return the events of a response, each text with those around it."""
    writer = ResponseEvents()
    sent = [writer.feed(Chunk(event)) for event in _documents(says, head, chat=True)]
    return sent if says.fault == "cut" else [*sent, writer.feed(Chunk(None, last=True))]


def _choice(text: str, finish: str | None, place: str | None) -> Json:
    content: Any = (
        {"text": text} if place is None else {place: {"role": "assistant", "content": text}}
    )
    return {"index": 0, "finish_reason": finish, "logprobs": None, **content}


def _events(says: ScriptedAnswer, head: Json, *, chat: bool) -> list[bytes]:
    sent = [sse.event(orjson.dumps(event)) for event in _documents(says, head, chat=chat)]
    return sent if says.fault == "cut" else [*sent, sse.event(sse.DONE)]


def _documents(says: ScriptedAnswer, head: Json, *, chat: bool) -> list[Json]:
    """Return the chunks of a stream; those before it is cut."""
    head = {**head, "object": "chat.completion.chunk" if chat else "text_completion"}
    place = "delta" if chat else None
    events = [{**head, "choices": [_choice(text, None, place)]} for text in says.pieces]
    if says.fault == "cut":
        return events
    end = {**head, "choices": [_choice("", "stop", place)]}
    usage = {**head, "choices": [], "usage": _usage(says)}
    return [*events, end, usage]
