"""The cost of reading a text grows linearly, wherever the text is."""

from __future__ import annotations

import asyncio
import base64
import encodings
import pkgutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from proxy.guards.text.base64_text import parse_data
from tests.adversary.shapes import SHAPES, text
from tests.conftest import Proxy, policies_for, running_proxy
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

SMALL, TIMES, MAX_RATIO = 4_000, 4, 7.0
BEYOND_WINDOWS, THRICE, MOST_THRICE = 10_000, 3, 5.5  # for streams, whose windows must fill first
FREE_S = 0.04  # shorter times are not measurable
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
    return f"""{policies_for(upstream)}
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
    """A guarded proxy, and the place that contains a text."""

    proxy: Proxy
    upstream: ScriptedUpstream


PutText = Callable[[str], tuple[Json, Script]]


def question(text: str) -> tuple[Json, Script]:
    return {"messages": [{"role": "user", "content": text}]}, answer(chat())


def parts(text: str) -> tuple[Json, Script]:
    cut = [
        {"type": "text", "text": text[index : index + PIECE]}
        for index in range(0, len(text), PIECE)
    ]
    return {"messages": [{"role": "user", "content": cut}]}, answer(chat())


def messages(text: str) -> tuple[Json, Script]:
    cut = [
        {"role": "user", "content": text[index : index + PIECE]}
        for index in range(0, len(text), PIECE)
    ]
    return {"messages": cut}, answer(chat())


def arguments(text: str) -> tuple[Json, Script]:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": text}}
    return {"messages": [{"role": "assistant", "tool_calls": [call]}]}, answer(chat())


def unknown(text: str) -> tuple[Json, Script]:
    cut = {
        text[index : index + PIECE] + str(index): text[index : index + 9]
        for index in range(0, len(text), PIECE)
    }
    return {**question("Hi")[0], "unknown": cut}, answer(chat())


def whole_answer(text: str) -> tuple[Json, Script]:
    return question("Hi")[0], answer(chat(text))


def streamed(text: str) -> tuple[Json, Script]:
    cut = [text[index : index + PIECE] for index in range(0, len(text), PIECE)]
    return {**question("Hi")[0], "stream": True}, stream(chat_events(*cut))


def failing(text: str) -> tuple[Json, Script]:
    return question("Hi")[0], answer({"error": {"message": text, "type": text, "code": text}}, 400)


PLACES: tuple[PutText, ...] = (
    question, parts, messages, arguments, unknown, whole_answer, streamed, failing
)  # fmt: skip


@asynccontextmanager
async def place(folder: Path) -> AsyncIterator[Place]:
    async with (
        scripted_upstream() as upstream,
        running_proxy(folder / "policies", policies(upstream.url)) as proxy,
    ):
        yield Place(proxy, upstream)


async def cost(place: Place, stored: PutText, shape: str, size: int) -> float:
    """Return the CPU seconds of a call with ``size`` characters of a shape."""
    body, script = stored(text(shape, size))
    place.upstream.answer_with(script)
    started = time.process_time()
    async with asyncio.timeout(300):  # other processes may use most of the CPU
        headers = BEARER | {"cache-control": "no-cache"}
        with suppress(aiohttp.ClientError):
            await place.proxy.chat(headers, model="support-chat", **body)
    return time.process_time() - started


def reading(charset: str, size: int) -> float:
    """Return the CPU seconds of reading ``size`` bytes of data with a charset."""
    raw = b"xn--" + b"a" * size
    text = f"data:text/plain;charset={charset};base64,{base64.b64encode(raw).decode()}"
    started = time.process_time()
    parse_data(text, bare=False)
    return time.process_time() - started


async def grown(place: Place, stored: PutText, shape: str) -> str | None:
    """Return the excessive ratio of a larger text, or None. A failure is measured twice."""
    if stored is not streamed:
        return await measured(place, stored, shape, SMALL, TIMES, MAX_RATIO)
    result = None
    for size in (BEYOND_WINDOWS, BEYOND_WINDOWS * THRICE):
        result = await measured(place, stored, shape, size, THRICE, MOST_THRICE)
        if result is None:
            return None
    return result


async def measured(
    place: Place, stored: PutText, shape: str, size: int, times: int, maximum: float
) -> str | None:
    """Return the lowest measured costs of two sizes, if the larger one costs too much."""
    large = small = float("inf")
    for _ in range(TRIES):
        large = min(large, await cost(place, stored, shape, size * times))
        if large < FREE_S:
            return None
        small = min(small, max(await cost(place, stored, shape, size), FREE_S / times))
        if large <= maximum * small:
            return None
    return f"{shape}: {small:.3f} s, then {large:.3f} s"


@pytest.mark.parametrize("stored", PLACES, ids=lambda put_in: put_in.__name__)
async def test_time_is_linear_in_text_length(stored: PutText, tmp_path: Path) -> None:
    async with place(tmp_path) as local_value:
        await cost(local_value, stored, "prose", 100)  # fills caches of the process
        matches = [await grown(local_value, stored, shape) for shape in SHAPES]
    assert [name for name in matches if name is not None] == []


def test_every_charset_is_read_in_linear_time() -> None:
    charsets = [module.name for module in pkgutil.iter_modules(encodings.__path__)]
    costs = {charset: min(reading(charset, DATA) for _ in range(TRIES)) for charset in charsets}
    plain = max(costs["utf_8"], FREE_S)

    assert {"idna", "punycode", "unicode_escape"} <= costs.keys()
    assert {charset: cost for charset, cost in costs.items() if cost > MAX_RATIO * plain} == {}
