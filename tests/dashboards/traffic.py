"""Traffic of two teams: all dialects, streams, blocks, limits, faults and cache hits."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

from tests.conftest import KEY
from tests.doubles import (
    ReceivedRequest,
    Script,
    Wire,
    chat,
    chat_events,
    hang,
    legacy_completion,
    legacy_events,
    respond,
    stream,
    usage,
)
from tests.test_pipeline import BEARER, ROUTES, SCALE

SEARCH_KEY = "hr-search-key"
SEARCH = {"Authorization": f"Bearer {SEARCH_KEY}"}
HEADROOM = ("x-ratelimit-remaining-requests: 900", "x-ratelimit-remaining-tokens: 41000")
RICH = {
    **usage(40, 30),
    "prompt_tokens_details": {"cached_tokens": 16},
    "completion_tokens_details": {"reasoning_tokens": 12},
}


def policies(upstream: str) -> str:
    text = (Path(__file__).parent / "world.yaml").read_text()
    digests = {
        "{support}": hashlib.sha256(KEY.encode()).hexdigest(),
        "{search}": hashlib.sha256(SEARCH_KEY.encode()).hexdigest(),
    }
    for name, digest in digests.items():
        text = text.replace(name, digest)
    return text.replace("{upstream}", upstream)


class Models:
    """Models that answer, or are flaky, down, slow or abort streams."""

    def __init__(self) -> None:
        self._requests = count()

    async def __call__(self, request: ReceivedRequest, wire: Wire) -> None:
        await self._script(request)(request, wire)

    def _script(self, request: ReceivedRequest) -> Script:
        body = request.json
        text = str(body.get("messages") or body.get("prompt"))
        if body["model"] == "down" or (body["model"] == "flaky" and next(self._requests) % 3):
            return respond({"error": {"message": "overloaded"}}, 503)
        if body["model"] == "slow":
            return hang()
        if "refuse this" in text:
            return respond({"error": {"message": "no"}}, 400)
        reply = " It is classified." if "secret" in text else " Paris is the capital."
        if body.get("stream"):
            return self._stream_script(request, reply, is_aborted="break off" in text)
        return self._response_script(request, reply)

    def _stream_script(self, request: ReceivedRequest, text: str, *, is_aborted: bool) -> Script:
        events = chat_events if request.path.endswith("chat/completions") else legacy_events
        words = [f" {word}" for word in text.split()]
        return stream(events(*words), cut_after=2 if is_aborted else None)

    def _response_script(self, request: ReceivedRequest, text: str) -> Script:
        if request.path.endswith("chat/completions"):
            return respond(chat(text, usage=RICH), 200, *HEADROOM)
        return respond(legacy_completion(text, usage=RICH), 200, *HEADROOM)


def wave(number: int) -> Iterator[tuple[str, dict[str, str], dict[str, Any]]]:
    """Yield path, headers and body of each call of a wave."""
    for name, route in ROUTES.items():
        for streamed in (False, True) if route.streams else (False,):
            fields = route.body(streamed=streamed, user=f"{name}-{number}")
            yield route.path, {**route.credential, "x-headrace-tags": "cost_center=CC-1001"}, fields
    chats = "/v1/chat/completions"

    def chat_request(text: str, **options: Any) -> dict[str, Any]:
        messages = [{"role": "user", "content": text}]
        return {"model": "support-chat", "messages": messages, **options}

    for _ in range(3):
        yield chats, BEARER, chat_request("What is the capital of France?")
    for text in (
        "Is Hydropolis better?",
        "Have you heard the rumour?",
        f"Tell me a secret {number}",
        f"Write to a@example.com {number}",
        f"refuse this {number}",
    ):
        yield chats, BEARER, chat_request(text)
    yield chats, BEARER, chat_request(f"break off {number}", stream=True)
    yield chats, BEARER, chat_request(f"leave {number}", stream=True)
    yield chats, BEARER, chat_request(f"none {number}", model="no-such-model")
    yield chats, {"Authorization": "Bearer hr-wrong"}, chat_request("stranger")
    for model in ("resilient", "resilient", "hedged"):
        yield chats, BEARER, chat_request(f"again {number}", model=model)
    for _ in range(4):
        yield chats, SEARCH, chat_request(f"found {number}", model="search-answers")
    yield chats, {**SEARCH, "x-headrace-tags": "wrong=1"}, chat_request(f"tagged {number}")
    several = {"model": ["first", "second"], "prompt": f"compare {number}"}
    yield "/v1/completion", {**BEARER, "x-headrace-deployment": "compare"}, several
    yield "/v4/beta/chat/completions", SCALE, chat_request(f"scale {number}", stream=False)


async def drive(client: aiohttp.ClientSession, number: int) -> int:
    """Send a wave with at most 8 concurrent calls. Return the number of calls."""
    calls = list(wave(number))
    semaphore = asyncio.Semaphore(8)

    async def send(path: str, headers: dict[str, str], body: dict[str, Any]) -> None:
        async with semaphore:
            with suppress(aiohttp.ClientError):
                async with client.post(path, headers=headers, json=body) as response:
                    if "leave" in str(body):
                        await response.content.readany()
                        return  # disconnect within the stream
                    await response.read()

    await asyncio.gather(*(send(*call) for call in calls))
    return len(calls)
