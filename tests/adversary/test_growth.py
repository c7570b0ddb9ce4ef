"""Searches for texts and members of which reading takes more than linear time."""

from __future__ import annotations

import asyncio
import base64
import encodings
import pkgutil
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from proxy.guards.text.base64_text import parse_encoded_data
from tests.adversary.hostile_texts import HOSTILE_TEXTS, repeat_text
from tests.conftest import Proxy
from tests.doubles import Json, Script, ScriptedUpstream, chat, chat_events, respond, stream
from tests.guards.calls import guarded
from tests.test_pipeline import BEARER

MAX_RATIO = 7.0
BOUNDS, STREAM_BOUNDS = (4_000, 4, MAX_RATIO), (10_000, 3, 5.5)
"""Size of a text, the factor to a larger one, and the maximum ratio of their costs."""
MIN_TIME_S = 0.04  # shorter times are not measurable
TRIES = 4
PIECE_SIZE = 40
DATA_BYTES = 200_000
GUARDS = """
      {guard: keywords, words: [unfindable, not here], action: ACT},
      {guard: pii, entities: [email, phone, card, iban, ssn, ip], action: ACT},
      {guard: secrets, action: ACT},
      {guard: urls, deny: [unfindable.example], action: ACT},
      {guard: code, action: flag},
      {guard: injection, action: flag},
      {guard: toxicity, action: flag},
      {guard: nsfw, action: flag},
      {guard: topic, action: flag, banned: {sport: [a match of football, the goal]}},
      {guard: sponge, action: flag},
      {guard: length, characters: 100000000, action: flag}
"""
LIMITS = """
      {name: month, usd: 100000 per month, unpriced: allow}, {name: rate, tokens: 900M per day}
"""
Build = Callable[[str], tuple[Json, Script]]
"""Returns a request and a response, one of which contains a text."""


def split(text: str) -> list[str]:
    return [text[index : index + PIECE_SIZE] for index in range(0, len(text), PIECE_SIZE)]


def request_with(content: Any, **fields: Any) -> tuple[Json, Script]:
    return {"messages": [{"role": "user", "content": content}], **fields}, respond(chat())


def response_with(script: Script, **fields: Any) -> tuple[Json, Script]:
    return {"messages": [{"role": "user", "content": "Hi"}], **fields}, script


def arguments_of_a_call(text: str) -> tuple[Json, Script]:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": text}}
    return request_with("Hi", messages=[{"role": "assistant", "tool_calls": [call]}])


def unknown_names(text: str) -> tuple[Json, Script]:
    return request_with(
        "Hi", unknown={f"{piece}{n}": piece[:9] for n, piece in enumerate(split(text))}
    )


BUILDERS: Mapping[str, Build] = {
    "content": request_with,
    "parts": lambda text: request_with([{"type": "text", "text": piece} for piece in split(text)]),
    "messages": lambda text: request_with(
        "", messages=[{"role": "user", "content": piece} for piece in split(text)]
    ),
    "arguments": arguments_of_a_call,
    "unknown names": unknown_names,
    "whole response": lambda text: response_with(respond(chat(text))),
    "stream": lambda text: response_with(stream(chat_events(*split(text))), stream=True),
    "error": lambda text: response_with(
        respond({"error": {"message": text, "type": text, "code": text}}, 400)
    ),
}


async def measure_call(proxy: Proxy, upstream: ScriptedUpstream, build: Build, text: str) -> float:
    """Return the CPU seconds of a call."""
    body, script = build(text)
    upstream.answer_with(script)
    started_at = time.process_time()
    async with asyncio.timeout(300):  # other processes may use most of the CPU
        headers = BEARER | {"cache-control": "no-cache"}
        await proxy.chat(headers, model="support-chat", **body)
    return time.process_time() - started_at


async def find_growth(
    measure: Callable[[int], Awaitable[float]], size: int, times: int, max_ratio: float
) -> str | None:
    """Return the costs of two sizes in seconds if the larger one costs too much."""
    small = large = float("inf")
    for _ in range(TRIES):
        large = min(large, await measure(size * times))
        if large < MIN_TIME_S:
            return None
        small = min(small, max(await measure(size), MIN_TIME_S / times))
        if large <= max_ratio * small:
            return None
    return f"{small:.3f} s, then {large:.3f} s"


@pytest.mark.parametrize("member", BUILDERS)
async def test_time_is_linear_in_text_length(
    member: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    guards = GUARDS.replace("ACT", "mask")
    rules = f"cache: {{ttl: 1h}}, limits: [{LIMITS}], input: [{guards}], output: [{guards}]"
    build, growth = BUILDERS[member], dict[str, str]()
    async with guarded(tmp_path, upstream, rules) as proxy:
        for name in ("prose", *HOSTILE_TEXTS):  # the first one fills caches of the process

            async def measure(size: int, name: str = name) -> float:
                return await measure_call(proxy, upstream, build, repeat_text(name, size))

            size, times, max_ratio = STREAM_BOUNDS if member == "stream" else BOUNDS
            found = await find_growth(measure, size, times, max_ratio)
            if found and member == "stream":  # windows may not have been full
                found = await find_growth(measure, size * times, times, max_ratio)
            growth |= {name: found} if found else {}
    assert growth == {}


def measure_charset(charset: str, size: int) -> float:
    """Return the CPU seconds of reading ``size`` bytes of data with a charset."""
    data = base64.b64encode(b"xn--" + b"a" * size).decode()
    started_at = time.process_time()
    parse_encoded_data(f"data:text/plain;charset={charset};base64,{data}", allow_bare_base64=False)
    return time.process_time() - started_at


def test_every_charset_is_read_in_linear_time() -> None:
    charsets = [module.name for module in pkgutil.iter_modules(encodings.__path__)]
    costs = {n: min(measure_charset(n, DATA_BYTES) for _ in range(TRIES)) for n in charsets}
    plain = max(costs["utf_8"], MIN_TIME_S)

    assert {"idna", "punycode", "unicode_escape"} <= costs.keys()
    assert {charset: cost for charset, cost in costs.items() if cost > MAX_RATIO * plain} == {}
