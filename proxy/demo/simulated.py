"""Simulated upstream with OpenAI's API.

It always answers with the same text, which says so. One word counts as one token.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from aiohttp import web

from proxy.settings import Address

TEXT = "I am a simulated model: no model runs here, and these words are always the same."
WORDS = [f"{word} " for word in TEXT.split()]
PROMPTS = ("prompt", "messages", "instructions", "input")
MAX_TOKENS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


@asynccontextmanager
async def running_simulation(at: Address) -> AsyncIterator[Address]:
    """Serve completions, chat completions and responses, whole and streamed, in the block."""
    app = web.Application()
    app.router.add_post("/v1/completions", _complete)
    app.router.add_post("/v1/chat/completions", _complete)
    app.router.add_post("/v1/responses", _respond)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, at.host, at.port).start()
        host, port, *_ = runner.addresses[0]
        yield Address(host, port)
    finally:
        await runner.cleanup()


async def _complete(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    chat = request.path.endswith("/chat/completions")
    if not body.get("stream"):
        return web.json_response(_completion(body, chat))
    chunks = (f"data: {json.dumps(chunk)}\n\n" for chunk in _chunks(body, chat))
    return await _stream(request, (*chunks, "data: [DONE]\n\n"))


async def _respond(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    response = _response(body)
    if not body.get("stream"):
        return web.json_response(response)
    events = (
        f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"
        for number, event in enumerate(_response_events(response))
    )
    return await _stream(request, events)


async def _stream(request: web.Request, events: Iterable[str]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for event in events:
        await response.write(event.encode())
    return response


def _head(body: dict[str, Any], kind: str) -> dict[str, Any]:
    created = _now_s()
    return {"id": "simulated", "object": kind, "created": created, "model": body.get("model")}


def _words(body: dict[str, Any]) -> list[str]:
    """Return the words of the response: all, or as many as the request allows."""
    limits = (limit for name in MAX_TOKENS if (limit := body.get(name)) is not None)
    return list(islice(WORDS, next(limits, None)))


def _tokens(body: dict[str, Any]) -> tuple[int, int]:
    """Return the tokens of the prompt and of the response."""
    return _count([body.get(name) for name in PROMPTS]), len(_words(body))


def _count(content: Any) -> int:
    """Count the words in a text, in messages, or in parts of content."""
    if isinstance(content, dict):
        content = [content.get("content"), content.get("text")]
    if isinstance(content, list):
        return sum(map(_count, content))
    return len(content.split()) if isinstance(content, str) else 0


def _usage(body: dict[str, Any]) -> dict[str, int]:
    prompt, completion = _tokens(body)
    total = prompt + completion
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total}


def _finish(words: list[str]) -> str:
    return "stop" if len(words) == len(WORDS) else "length"


def _choice(chat: bool, stream: bool, text: str, finish: str | None) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    content = {("delta" if stream else "message"): message} if chat else {"text": text}
    return {"index": 0, "finish_reason": finish, "logprobs": None, **content}


def _completion(body: dict[str, Any], chat: bool) -> dict[str, Any]:
    head = _head(body, "chat.completion" if chat else "text_completion")
    words = _words(body)
    choice = _choice(chat, False, "".join(words).rstrip(), _finish(words))
    return {**head, "choices": [choice], "usage": _usage(body)}


def _chunks(body: dict[str, Any], chat: bool) -> Iterator[dict[str, Any]]:
    head = _head(body, "chat.completion.chunk" if chat else "text_completion")
    words = _words(body)
    for word in words:
        yield {**head, "choices": [_choice(chat, True, word, None)]}
    yield {**head, "choices": [_choice(chat, True, "", _finish(words))]}
    yield {**head, "choices": [], "usage": _usage(body)}


def _response(body: dict[str, Any]) -> dict[str, Any]:
    words = _words(body)
    part = {"type": "output_text", "text": "".join(words).rstrip(), "annotations": []}
    item = {"id": "msg_simulated", "type": "message", "role": "assistant", "content": [part]}
    status: dict[str, Any] = {"status": "completed"}
    if _finish(words) == "length":
        status = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    prompt, output = _tokens(body)
    usage = {"input_tokens": prompt, "output_tokens": output, "total_tokens": prompt + output}
    return {
        "id": "resp_simulated",
        "object": "response",
        "created_at": _now_s(),
        "model": body.get("model"),
        **status,
        "output": [{**item, "status": status["status"]}],
        "usage": usage,
    }


def _response_events(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    [item] = response["output"]
    [part] = item["content"]
    started = {**response, "status": "in_progress", "output": [], "usage": None}
    empty = {**item, "status": "in_progress", "content": []}
    text = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    yield {"type": "response.created", "response": started}
    yield {"type": "response.output_item.added", "output_index": 0, "item": empty}
    yield {"type": "response.content_part.added", **text, "part": {**part, "text": ""}}
    for word in part["text"].split():
        yield {"type": "response.output_text.delta", **text, "delta": f"{word} "}
    yield {"type": "response.output_text.done", **text, "text": part["text"]}
    yield {"type": "response.content_part.done", **text, "part": part}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": f"response.{response['status']}", "response": response}


def _now_s() -> int:
    return int(datetime.now(UTC).timestamp())
