"""Writes the bodies of simulated upstream responses: documents, streams and errors."""

from __future__ import annotations

import orjson

from proxy.dialects.families import FAMILIES
from proxy.dialects.family import WriteOptions
from proxy.dialects.responses.stored import CONVERSATIONS_PATH
from proxy.dialects.vendors import anthropic, openai
from proxy.dialects.writing import nobody
from proxy.money.usage import read_usage
from proxy.policytest.cases import ScriptedAnswer
from proxy.types import Call, Endpoint, Json, RequestHead
from proxy.types.events import (
    STOP,
    Begin,
    Delta,
    End,
    FamilyName,
    Finish,
    Frame,
    Part,
    Start,
    UsageReport,
)

CONVERSATION = {"id": "conv_policytest", "object": "conversation", "created_at": 0}
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def response_pieces(answer: ScriptedAnswer, url: str, request: Json) -> list[bytes]:
    """Return the body of a response in pieces."""
    if answer.status != 200:
        error = {
            "message": answer.text or "simulated error of the policy test",
            "type": "server_error",
        }
        return [orjson.dumps({"error": error})]
    url = url.partition("?")[0]
    if answer.fault == "garbled":
        return [b"{"]
    if (document := _without_text(answer, url, request)) is not None:
        return [orjson.dumps(document)]
    frames = _write_frames(answer, url, request)
    if request.get("stream"):
        return [frame for frame in frames if frame]
    body = b"".join(frames)
    return [body] if answer.fault != "cut" else [body[: len(body) // 2]]


def _without_text(answer: ScriptedAnswer, url: str, request: Json) -> Json | None:
    """Return a response without text, or None for an endpoint with text."""
    if url.endswith(anthropic.PATHS["count_tokens"]):
        return {"input_tokens": _usage(answer)["prompt_tokens"]}
    if url.endswith("/embeddings"):
        data = [{"object": "embedding", "index": 0, "embedding": [0.0]}]
        head = {"model": request.get("model"), "object": "list"}
        return {**head, "data": data, "usage": _usage(answer)}
    if url.endswith(CONVERSATIONS_PATH):
        return {**CONVERSATION, "metadata": request.get("metadata")}
    return None


def _usage(answer: ScriptedAnswer) -> dict[str, int]:
    return answer.usage if answer.usage is not None else USAGE


def _write_frames(answer: ScriptedAnswer, url: str, request: Json) -> list[bytes]:
    """Return a response with text in the API of a path, frame by frame."""
    dialect, endpoint, family = _api_of(url)
    head = RequestHead(dialect=dialect, endpoint=endpoint, route=url, request_id="policytest")
    call = Call(head, request, wants_usage=True)
    streams = bool(request.get("stream"))
    writer = FAMILIES[family].writer(WriteOptions(call, whole=not streams, verdicts=nobody))
    frames = _frames(answer, request)
    if answer.fault == "cut" and streams:
        frames = [frame for frame in frames if any(type(event) is Delta for event in frame.events)]
    return [writer.feed(frame) for frame in frames]


def _api_of(url: str) -> tuple[str, Endpoint, FamilyName]:
    if url.endswith(anthropic.PATHS["chat"]):
        return "anthropic", "chat", "messages"
    if url.endswith(openai.PATHS["responses"]):
        return "openai", "responses", "responses"
    if url.endswith(openai.PATHS["chat"]):
        return "openai", "chat", "chat"
    return "openai", "completions", "completions"


def _frames(answer: ScriptedAnswer, request: Json) -> list[Frame]:
    part = Part("text", 0)
    native = _usage(answer)
    usage = UsageReport(read_usage(native), dict(native))
    opening = (Start("policytest", request.get("model"), 0), usage, Begin(part))
    frames = [Frame((Delta(part, text),)) for text in answer.pieces or [""]]
    frames[0] = Frame((*opening, *frames[0].events))
    return [*frames, Frame((End(part), Finish(0, "stop"), usage, STOP), last=True)]
