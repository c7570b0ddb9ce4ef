"""One body of 16 MiB, or of 100,000 values, keeps nobody else waiting: the event loop never works
on one for long, from the first byte to the last word of the log, in each dialect that is crossed.

The measure is the processor time of the loop's own thread between two beats of it, which other
programs and other threads change little. It is compared with what a single call into C takes that
writes such a body at once, as that is what the loop must never wait for.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import threading
import time
from collections.abc import Awaitable, Coroutine, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import orjson
import pytest

from tests.conftest import running_proxy, world
from tests.doubles import Asked, ScriptedUpstream, Wire, answer, chat, legacy
from tests.test_pipeline import BEARER

BYTES = 16 * 1024 * 1024 - 4096
VALUES = 99_000
BEAT_S = 0.001
FREE_S = 0.02  # what costs less is not worth a word
POLICY = """
policies:
  default:
    match: all
    capture: {share: 100%, fields: [input, output]}
    cache: {ttl: 1h, semantic: {threshold: 0.9}}
    limits:
      - {name: month, usd: 100000 per month, unpriced: allow}
      - {name: rate, tokens: 900M per day}
"""


def long(mark: str) -> str:
    """Return as much of a text as a body may hold."""
    return mark * (BYTES // (len(json.dumps(mark, ensure_ascii=False).encode()) - 2))


TEXTS = {"letters": "abcdefg ", "line ends": "\n", "many scripts": "aaa漢😀"}
SHAPES: dict[str, Any] = {
    "small values": {"a": [{}] * VALUES},
    "small texts": {"a": ["ab cd\n"] * VALUES},
    "names": {f"n{number}": 1 for number in range(VALUES)},
    "texts of 64 KiB": {f"k{number}": "ab\n " * 16_000 for number in range(190)},
}


class Loop:
    """An event loop of its own, for a client and an upstream whose work is not the proxy's."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)

    T = TypeVar("T")

    def run(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))


@contextmanager
def loop_of_others() -> Iterator[Loop]:
    others = Loop()
    others.thread.start()
    try:
        yield others
    finally:
        others.loop.call_soon_threadsafe(others.loop.stop)
        others.thread.join()
        others.loop.close()


class Heart:
    """Beats on the loop. ``longest`` is the processor time that the loop's thread used between two
    beats."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._last = time.thread_time()
        self._beat()

    def _beat(self) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - self._last)
        self._last = now
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def stop(self) -> float:
        self._timer.cancel()
        return self.longest


def at_once() -> float:
    """Return the time of one call that writes a large body, in seconds of this thread."""
    text = long("\n")
    began = time.thread_time()
    orjson.dumps(text)
    return time.thread_time() - began


async def upstream_of(got: list[bytes]) -> tuple[asyncio.Server, str]:
    """Start an upstream that answers in either form, and keeps bodies as they came."""

    async def script(asked: Asked, wire: Wire) -> None:
        got.append(asked.body)
        said = chat() if "chat" in asked.path else legacy()
        await answer(said)(asked, wire)

    upstream = ScriptedUpstream()
    upstream.answer_with(script)
    loop = asyncio.get_running_loop()
    server: Any = await loop.create_server(upstream.protocol, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def stopped(server: asyncio.Server) -> None:
    """End an upstream; to be run on its own loop."""
    server.close()


async def ask(url: str, body: bytes) -> int:
    """Send a body; return the status."""
    headers = {**BEARER, "content-type": "application/json"}
    async with (
        aiohttp.ClientSession() as client,
        client.post(url, data=BytesIO(body), headers=headers) as response,
    ):
        await response.read()
        return response.status


def bodies() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Give what to send where: each shape straight through, the hardest text across dialects."""
    user = {"role": "user"}
    for mark in TEXTS.values():
        yield "chat/completions", "support-chat", {"messages": [{**user, "content": long(mark)}]}
    for more in SHAPES.values():
        messages = [{**user, "content": "Hi"}]
        yield "chat/completions", "support-chat", {"messages": messages, "unknown": more}
    many = [{**user, "content": "Hi"}] * (VALUES // 3 - 9)
    yield "chat/completions", "legacy-only", {"messages": many}
    yield (
        "chat/completions",
        "legacy-only",
        {"messages": [{**user, "content": long(TEXTS["many scripts"])}]},
    )
    for dialect in ("fireworks", "scale", "multimodel", "enkrypt", "portkey"):
        yield "completions", f"via-{dialect}", {"prompt": long("\n")}


@pytest.fixture
def collected() -> Iterator[None]:
    """Have garbage collected as where the proxy is served: what a test run has gathered in memory
    is not gone through while the loop is measured."""
    usual = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    yield
    gc.set_threshold(*usual)
    gc.unfreeze()


@pytest.mark.usefixtures("collected")
async def test_nobody_waits_for_a_large_body(tmp_path: Path) -> None:
    got: list[bytes] = []
    unit = max(at_once(), 3 * FREE_S)
    with loop_of_others() as others:
        server, url = await others.run(upstream_of(got))
        async with running_proxy(tmp_path / "policies", world(url) + POLICY) as proxy:
            for path, model, body in bodies():
                raw = orjson.dumps({"model": model, **body})
                got.clear()
                heart = Heart()
                status = await others.run(ask(f"{proxy.url}/v1/{path}", raw))
                await proxy.sink.wait()
                longest = heart.stop()
                proxy.sink.forget()

                name = f"{model}, {len(raw)} bytes of {[*body]}"
                assert status == 200, name
                assert longest < max(unit / 2, FREE_S), name
                [sent] = got
                assert sent == orjson.dumps(orjson.loads(sent)), name
        await others.run(stopped(server))


def guarded() -> Iterator[tuple[str, dict[str, Any]]]:
    """Give what is hard to gather for guards: a text that is decoded, many that are short."""
    data = base64.b64encode(b"hello wor" * (BYTES // 12)).decode()
    yield "data", {"messages": [{"role": "user", "content": f"data:text/plain;base64,{data}"}]}
    for name in ("small values", "small texts", "names"):
        messages = [{"role": "user", "content": "Hi"}]
        yield name, {"messages": messages, "unknown": SHAPES[name]}


@pytest.mark.usefixtures("collected")
async def test_nobody_waits_while_guards_gather_what_they_look_at(tmp_path: Path) -> None:
    unit = max(at_once(), 3 * FREE_S)
    policy = POLICY + "    input: [{guard: keywords, words: [unfindable], action: mask}]\n"
    with loop_of_others() as others:
        server, url = await others.run(upstream_of([]))
        async with running_proxy(tmp_path / "policies", world(url) + policy) as proxy:
            for name, body in guarded():
                raw = orjson.dumps({"model": "support-chat", **body})
                heart = Heart()
                status = await others.run(ask(f"{proxy.url}/v1/chat/completions", raw))
                await proxy.sink.wait()
                longest = heart.stop()
                proxy.sink.forget()

                assert status in (200, 503), name  # a guard looks no longer than its deadline
                assert longest < max(unit / 2, FREE_S), name
        await others.run(stopped(server))


@pytest.mark.parametrize("size", [64 * 1024, 64 * 1024 + 64])
async def test_what_is_sent_is_the_same_whatever_the_size(size: int, tmp_path: Path) -> None:
    got: list[bytes] = []
    body = {
        "model": "support-chat",
        "messages": [{"role": "user", "content": 'aé漢😀\n\x01"'}],
        "unknown": {"more": "x" * (size - 256), "numbers": [1, -2.5, 1e30, True, None]},
    }
    with loop_of_others() as others:
        server, url = await others.run(upstream_of(got))
        async with running_proxy(tmp_path / "policies", world(url)) as proxy:
            raw = json.dumps(body).encode()
            assert await others.run(ask(f"{proxy.url}/v1/chat/completions", raw)) == 200
        await others.run(stopped(server))

    [sent] = got
    assert sent == orjson.dumps({**body, "model": "gpt-4o-mini"})
