"""The cost of reading a text grows linearly, wherever the text is."""

from __future__ import annotations

import asyncio
import base64
import encodings
import json
import pkgutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp import ClientSession

from proxy.guards.text.base64_text import data_of
from tests.adversary.shapes import SHAPES, text
from tests.conftest import running_proxy, world
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    answer,
    chat,
    chat_events,
    scripted_upstream,
    stream,
)
from tests.test_pipeline import BEARER

SMALL, TIMES, MOST = 4_000, 4, 7.0
BEYOND_WINDOWS, THRICE, MOST_THRICE = 10_000, 3, 5.5  # of streams, whose windows have to fill first
FREE_S = 0.04  # what costs less is not worth a word, and cannot be measured
TRIES = 4
PIECE = 40
DATA = 200_000  # bytes
GUARDS = """
      - {guard: keywords, words: [unfindable, not here], action: ACT}
      - {guard: pii, entities: [email, phone, card, iban, ssn, ip], action: ACT}
      - {guard: secrets, action: ACT}
      - {guard: urls, deny: [unfindable.example], action: ACT}
      - {guard: code, action: flag}
      - {guard: injection, action: flag}
      - {guard: toxicity, action: flag}
      - {guard: nsfw, action: flag}
      - {guard: topic, action: flag, banned: {sport: [a match of football, the goal]}}
      - {guard: sponge, action: flag}
      - {guard: length, characters: 100000000, action: flag}
"""


def policies(upstream: str) -> str:
    act = GUARDS.replace("ACT", "mask")
    return f"""{world(upstream)}
policies:
  default:
    match: all
    input: {act}
    output: {act}
    cache: {{ttl: 1h}}
    limits:
      - {{name: month, usd: 100000 per month, unpriced: allow}}
      - {{name: rate, tokens: 900M per day}}
"""


@dataclass
class Place:
    """A proxy with guards on, and what a text is put into."""

    client: ClientSession
    upstream: ScriptedUpstream

    async def post(self, body: Json | bytes, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {**BEARER, "content-type": "application/json", "cache-control": "no-cache"}
        with suppress(aiohttp.ClientError):
            async with self.client.post(
                "/v1/chat/completions", data=data, headers={**sent, **headers}
            ) as response:
                await response.read()


Put = Callable[[str], tuple[Json, Script]]


def question(said: str) -> tuple[Json, Script]:
    return {"messages": [{"role": "user", "content": said}]}, answer(chat())


def parts(said: str) -> tuple[Json, Script]:
    cut = [{"type": "text", "text": said[at : at + PIECE]} for at in range(0, len(said), PIECE)]
    return {"messages": [{"role": "user", "content": cut}]}, answer(chat())


def messages(said: str) -> tuple[Json, Script]:
    cut = [{"role": "user", "content": said[at : at + PIECE]} for at in range(0, len(said), PIECE)]
    return {"messages": cut}, answer(chat())


def arguments(said: str) -> tuple[Json, Script]:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": said}}
    return {"messages": [{"role": "assistant", "tool_calls": [call]}]}, answer(chat())


def unknown(said: str) -> tuple[Json, Script]:
    cut = {said[at : at + PIECE] + str(at): said[at : at + 9] for at in range(0, len(said), PIECE)}
    return {**question("Hi")[0], "unknown": cut}, answer(chat())


def whole(said: str) -> tuple[Json, Script]:
    return question("Hi")[0], answer(chat(said))


def streamed(said: str) -> tuple[Json, Script]:
    cut = [said[at : at + PIECE] for at in range(0, len(said), PIECE)]
    return {**question("Hi")[0], "stream": True}, stream(chat_events(*cut))


def failing(said: str) -> tuple[Json, Script]:
    return question("Hi")[0], answer({"error": {"message": said, "type": said, "code": said}}, 400)


PLACES: tuple[Put, ...] = (
    question, parts, messages, arguments, unknown, whole, streamed, failing
)  # fmt: skip


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    async with (
        scripted_upstream() as upstream,
        running_proxy(folder / "policies", policies(upstream.url)) as proxy,
    ):
        yield Place(proxy.client, upstream)


async def cost(here: Place, put: Put, shape: str, size: int) -> float:
    """Return the processor seconds of a call with so much of a shape."""
    body, script = put(text(shape, size))
    here.upstream.answer_with(script)
    started = time.process_time()
    async with asyncio.timeout(300):  # other programs may have the processor for most of it
        await here.post({"model": "support-chat", **body})
    return time.process_time() - started


def reading(charset: str, size: int) -> float:
    """Return the processor seconds of reading so much data that names a charset."""
    raw = b"xn--" + b"a" * size
    said = f"data:text/plain;charset={charset};base64,{base64.b64encode(raw).decode()}"
    started = time.process_time()
    data_of(said, bare=False)
    return time.process_time() - started


async def grown(here: Place, put: Put, shape: str) -> str | None:
    """Return by how much a larger text costs too much, or None. Measures twice before it fails."""
    if put is not streamed:
        return await measured(here, put, shape, SMALL, TIMES, MOST)
    found = None
    for size in (BEYOND_WINDOWS, BEYOND_WINDOWS * THRICE):
        found = await measured(here, put, shape, size, THRICE, MOST_THRICE)
        if found is None:
            return None
    return found


async def measured(
    here: Place, put: Put, shape: str, size: int, times: int, most: float
) -> str | None:
    """Return the least of several measured costs of two sizes, if the larger costs too much."""
    large = small = float("inf")
    for _ in range(TRIES):
        large = min(large, await cost(here, put, shape, size * times))
        if large < FREE_S:
            return None
        small = min(small, max(await cost(here, put, shape, size), FREE_S / times))
        if large <= most * small:
            return None
    return f"{shape}: {small:.3f} s, then {large:.3f} s"


@pytest.mark.parametrize("put", PLACES, ids=lambda put: put.__name__)
async def test_twice_the_text_takes_twice_the_time(put: Put, tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        await cost(here, put, "prose", 100)  # what is done once is done
        found = [await grown(here, put, shape) for shape in SHAPES]
    assert [each for each in found if each is not None] == []


def test_no_charset_that_a_client_may_name_makes_data_slow_to_read() -> None:
    charsets = [each.name for each in pkgutil.iter_modules(encodings.__path__)]
    costs = {each: min(reading(each, DATA) for _ in range(TRIES)) for each in charsets}
    plain = max(costs["utf_8"], FREE_S)

    assert {"idna", "punycode", "unicode_escape"} <= costs.keys()
    assert {each: cost for each, cost in costs.items() if cost > MOST * plain} == {}
