"""An upstream that is no model and says so: for platforms without the model's package."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from proxy.settings import Address

TEXT = "I am a simulated model: no model runs here, and these words are always the same."


@asynccontextmanager
async def running_simulation(at: Address) -> AsyncIterator[Address]:
    """Answer legacy and chat completions, whole and streamed, while the block runs."""
    app = web.Application()
    app.router.add_post("/v1/completions", _answer)
    app.router.add_post("/v1/chat/completions", _answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, at.host, at.port).start()
        host, port, *_ = runner.addresses[0]
        yield Address(host, port)
    finally:
        await runner.cleanup()


async def _answer(request: web.Request) -> web.StreamResponse:
    asked = await request.json()
    chat = request.path.endswith("/chat/completions")
    if not asked.get("stream"):
        return web.json_response(_whole(asked, chat))
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    for event in _events(asked, chat):
        await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
    await response.write(b"data: [DONE]\n\n")
    return response


def _head(asked: dict[str, Any], kind: str) -> dict[str, Any]:
    created = int(time.monotonic())
    return {"id": "simulated", "object": kind, "created": created, "model": asked.get("model")}


def _usage() -> dict[str, int]:
    words = len(TEXT.split())
    return {"prompt_tokens": 1, "completion_tokens": words, "total_tokens": words + 1}


def _choice(chat: bool, stream: bool, text: str, finish: str | None) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    content = {("delta" if stream else "message"): message} if chat else {"text": text}
    return {"index": 0, "finish_reason": finish, "logprobs": None, **content}


def _whole(asked: dict[str, Any], chat: bool) -> dict[str, Any]:
    head = _head(asked, "chat.completion" if chat else "text_completion")
    return {**head, "choices": [_choice(chat, False, TEXT, "stop")], "usage": _usage()}


def _events(asked: dict[str, Any], chat: bool) -> list[dict[str, Any]]:
    head = _head(asked, "chat.completion.chunk" if chat else "text_completion")
    words = [f"{word} " for word in TEXT.split()]
    events = [{**head, "choices": [_choice(chat, True, word, None)]} for word in words]
    events.append({**head, "choices": [_choice(chat, True, "", "stop")]})
    events.append({**head, "choices": [], "usage": _usage()})
    return events
