"""Simulated upstream with OpenAI's API.

Every response has the same text, which states that it is simulated. A word counts as a token.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from proxy.dialects.vendors import openai
from proxy.policytest.answers import encode_frames, make_frames
from proxy.settings import Address
from proxy.types.events import FinishReason

RESPONSE_TEXT = "I am a simulated model: no model runs here, and these words are always the same."
RESPONSE_WORDS = RESPONSE_TEXT.split()
PROMPT_FIELDS = ("prompt", "messages", "instructions", "input")
MAX_TOKENS_FIELDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


@asynccontextmanager
async def run_simulated_model(address: Address) -> AsyncIterator[Address]:
    """Serve completions, chat completions and responses, whole and streamed, in the block."""
    app = web.Application()
    for endpoint, path in openai.PATHS.items():
        if endpoint != "embeddings":
            app.router.add_post(f"/v1{path}", _respond)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, address.host, address.port).start()
        host, port, *_ = runner.addresses[0]
        yield Address(host, port)
    finally:
        await runner.cleanup()


async def _respond(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    limits = (limit for name in MAX_TOKENS_FIELDS if (limit := body.get(name)) is not None)
    words = RESPONSE_WORDS[: next(limits, None)]
    prompt = _count_words([body.get(name) for name in PROMPT_FIELDS])
    usage = {"prompt_tokens": prompt, "completion_tokens": len(words)}
    usage["total_tokens"] = sum(usage.values())
    texts = [word if number == 0 else f" {word}" for number, word in enumerate(words)]
    finish: FinishReason = "stop" if len(words) == len(RESPONSE_WORDS) else "length"
    frames = encode_frames(make_frames(texts, usage, body, finish), request.path, body)
    kind = "text/event-stream" if body.get("stream") else "application/json"
    response = web.StreamResponse(headers={"content-type": kind})
    await response.prepare(request)
    for frame in frames:
        await response.write(frame)
    return response


def _count_words(content: Any) -> int:
    """Count the words in a text, in messages, or in parts of content."""
    if isinstance(content, dict):
        content = [content.get("content"), content.get("text")]
    if isinstance(content, list):
        return sum(map(_count_words, content))
    return len(content.split()) if isinstance(content, str) else 0
