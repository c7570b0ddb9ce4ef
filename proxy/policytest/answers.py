"""Writes the bodies of simulated upstream responses: documents, streams and errors."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from proxy.dialects.families import FAMILIES
from proxy.dialects.family import WriteOptions
from proxy.dialects.responses.stored import CONVERSATIONS_PATH
from proxy.dialects.vendors import anthropic, openai
from proxy.money.usage import read_chat_usage
from proxy.policytest.cases import ScriptedAnswer
from proxy.types import Call, Endpoint, Json, RequestHead, events

CONVERSATION_OBJECT = {"id": "conv_policytest", "object": "conversation", "created_at": 0}
DEFAULT_USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def encode_response_chunks(answer: ScriptedAnswer, url: str, request: Json) -> list[bytes]:
    """Return the body of a simulated upstream response, in the chunks that a stream sends."""
    if answer.status != 200:
        message = answer.text or "simulated error of the policy test"
        return [orjson.dumps({"error": {"message": message, "type": "server_error"}})]
    url = url.partition("?")[0]
    if answer.fault == "garbled":
        return [b"{"]
    if (document := _build_textless_document(answer, url, request)) is not None:
        return [orjson.dumps(document)]
    frames = make_frames(answer.text_chunks, _get_usage(answer), request)
    if answer.fault == "cut" and request.get("stream"):
        frames = [
            frame for frame in frames if any(type(event) is events.Delta for event in frame.events)
        ]
    written = encode_frames(frames, url, request)
    if request.get("stream"):
        return [frame for frame in written if frame]
    body = b"".join(written)
    return [body] if answer.fault != "cut" else [body[: len(body) // 2]]


def _build_textless_document(answer: ScriptedAnswer, url: str, request: Json) -> Json | None:
    """Return a response without text, or None for an endpoint with text."""
    if url.endswith(anthropic.PATHS["count_tokens"]):
        return {"input_tokens": _get_usage(answer)["prompt_tokens"]}
    if url.endswith("/embeddings"):
        data = [{"object": "embedding", "index": 0, "embedding": [0.0]}]
        head = {"model": request.get("model"), "object": "list"}
        return {**head, "data": data, "usage": _get_usage(answer)}
    if url.endswith(CONVERSATIONS_PATH):
        return {**CONVERSATION_OBJECT, "metadata": request.get("metadata")}
    return None


def _get_usage(answer: ScriptedAnswer) -> dict[str, int]:
    return answer.usage if answer.usage is not None else DEFAULT_USAGE


def encode_frames(frames: Sequence[events.Frame], url: str, request: Json) -> list[bytes]:
    """Encode a response in the API of a path. Return the bytes of each frame."""
    dialect, endpoint, family = _get_api(url)
    head = RequestHead(dialect=dialect, endpoint=endpoint, route=url, request_id="simulated")
    call = Call(head, request, wants_usage=True)
    options = WriteOptions(call, whole=not request.get("stream"))
    writer = FAMILIES[family].writer(options)
    return [writer.feed(frame) for frame in frames]


def _get_api(url: str) -> tuple[str, Endpoint, events.FamilyName]:
    if url.endswith(anthropic.PATHS["chat"]):
        return "anthropic", "chat", "messages"
    if url.endswith(openai.PATHS["responses"]):
        return "openai", "responses", "responses"
    if url.endswith(openai.PATHS["chat"]):
        return "openai", "chat", "chat"
    return "openai", "completions", "completions"


def make_frames(
    texts: Sequence[str], usage: dict[str, int], request: Json, finish: events.FinishReason = "stop"
) -> list[events.Frame]:
    """Return the frames of a response with a text in pieces, and its usage in OpenAI's format."""
    part, report = events.Part("text", 0), events.UsageReport(read_chat_usage(usage), dict(usage))
    opening = (
        events.ResponseStart("simulated", request.get("model"), 0),
        report,
        events.PartStart(part),
    )
    frames = [events.Frame((events.Delta(part, text),)) for text in texts or [""]]
    frames[0] = events.Frame((*opening, *frames[0].events))
    return [
        *frames,
        events.Frame(
            (events.PartEnd(part), events.Finish(0, finish), report, events.RESPONSE_END), last=True
        ),
    ]
