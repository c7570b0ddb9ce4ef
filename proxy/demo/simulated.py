"""Simulated upstream with OpenAI's API. It always answers with the same text, which says so."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from proxy.settings import Address

TEXT = "I am a simulated model: no model runs here, and these words are always the same."
WORDS = [f"{word} " for word in TEXT.split()]
USAGE = {"total_tokens": 1 + len(WORDS)}


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


def _usage() -> dict[str, int]:
    return {"prompt_tokens": 1, "completion_tokens": len(WORDS), **USAGE}


def _choice(chat: bool, stream: bool, text: str, finish: str | None) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    content = {("delta" if stream else "message"): message} if chat else {"text": text}
    return {"index": 0, "finish_reason": finish, "logprobs": None, **content}


def _completion(body: dict[str, Any], chat: bool) -> dict[str, Any]:
    head = _head(body, "chat.completion" if chat else "text_completion")
    return {**head, "choices": [_choice(chat, False, TEXT, "stop")], "usage": _usage()}


def _chunks(body: dict[str, Any], chat: bool) -> Iterator[dict[str, Any]]:
    head = _head(body, "chat.completion.chunk" if chat else "text_completion")
    for word in WORDS:
        yield {**head, "choices": [_choice(chat, True, word, None)]}
    yield {**head, "choices": [_choice(chat, True, "", "stop")]}
    yield {**head, "choices": [], "usage": _usage()}


def _response(body: dict[str, Any]) -> dict[str, Any]:
    part = {"type": "output_text", "text": TEXT, "annotations": []}
    item = {"id": "msg_simulated", "type": "message", "role": "assistant", "content": [part]}
    usage = {"input_tokens": 1, "output_tokens": len(WORDS), **USAGE}
    head = {"id": "resp_simulated", "object": "response", "status": "completed"}
    model = {"created_at": _now_s(), "model": body.get("model")}
    return {**head, **model, "output": [{**item, "status": "completed"}], "usage": usage}


def _response_events(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    [item] = response["output"]
    [part] = item["content"]
    began = {**response, "status": "in_progress", "output": [], "usage": None}
    empty = {**item, "status": "in_progress", "content": []}
    text = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    yield {"type": "response.created", "response": began}
    yield {"type": "response.output_item.added", "output_index": 0, "item": empty}
    yield {"type": "response.content_part.added", **text, "part": {**part, "text": ""}}
    for word in WORDS:
        yield {"type": "response.output_text.delta", **text, "delta": word}
    yield {"type": "response.output_text.done", **text, "text": TEXT}
    yield {"type": "response.content_part.done", **text, "part": part}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": response}


def _now_s() -> int:
    return int(datetime.now(UTC).timestamp())
