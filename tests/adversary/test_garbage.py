"""Nothing of a call survives it: however it ends, no cycle keeps its body for a collector."""

from __future__ import annotations

import asyncio
import gc
import time
import types
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession

from proxy.upstream.forwarded import Forwarded
from tests.conftest import Proxy, running_proxy, world
from tests.doubles import (
    PATIENCE_S,
    ScriptedUpstream,
    answer,
    chat,
    chat_events,
    cut_before_head,
    hang,
    stream,
)
from tests.test_pipeline import BEARER, MESSAGES

PATH = "/v1/chat/completions"
GUARDED = """
policies:
  guarded:
    input: [{guard: keywords, name: asked, words: [forbidden], action: block}]
    output: [{guard: keywords, name: told, words: [forbidden], action: block}]
    limits: [{name: small, tokens: 500000 per minute, per: key}]
  shared:
    cache: {ttl: 1h}
  asking:
    output: [{guard: keywords, name: once-more, words: [forbidden], action: retry}]
    input: [{guard: webhook, url: 'http://127.0.0.1:9/', secret: '${UPSTREAM_KEY}', action: block}]
  repeating:
    output: [{guard: keywords, name: repeated, words: [forbidden], action: retry}]
  often:
    limits: [{name: rare, requests: 1 per day, per: key}]
"""


def policies(upstream: str) -> str:
    """The small world, with guards, limits, a small bound for answers, and a try once more."""
    said = world(upstream, hasty=True).replace(
        "  resilient:\n",
        "  guarded: {policy: guarded, targets: [{upstream: openai, model: gpt-4o-mini}]}\n"
        "  often: {policy: often, targets: [{upstream: openai, model: gpt-4o-mini}]}\n"
        "  again: {retry: {times: 1, wait: 1ms}, targets: [{upstream: openai, model: m}]}\n"
        "  hedged: {hedge: {after: 1ms}, targets: [{upstream: openai, model: m}]}\n"
        "  shared: {policy: shared, targets: [{upstream: openai, model: gpt-4o-mini}]}\n"
        "  repeating: {policy: repeating, targets: [{upstream: openai, model: gpt-4o-mini}]}\n"
        "  asking: {policy: asking, targets: [{upstream: openai, model: gpt-4o-mini}]}\n"
        "  resilient:\n",
    )
    more = "shared, repeating, asking, guarded, often, again, hedged"
    said = said.replace("resilient, compare,", f"resilient, compare, {more},")
    said = said.replace("  openai: {dialect", "  openai: {max_answer_bytes: 100KiB, dialect")
    return said + GUARDED


class World:
    """A proxy, its upstream, and a client of it."""

    def __init__(
        self, proxy: Proxy, upstream: ScriptedUpstream, client: ClientSession, words: str
    ) -> None:
        self.proxy, self.upstream, self.client = proxy, upstream, client
        self.words = words

    async def ask(self, model: str = "support-chat", **more: Any) -> int:
        headers = more.pop("headers", BEARER)
        body = {**MESSAGES, "model": model, "context": self.words, **more}
        try:
            async with self.client.post(PATH, headers=headers, json=body) as response:
                await response.read()
                return response.status
        except aiohttp.ClientError:
            return 0

    async def leave(self, **more: Any) -> None:
        """Ask, and leave as soon as the upstream has been asked."""
        asked = len(self.upstream.requests)
        asking = asyncio.ensure_future(self.ask(**more))
        while len(self.upstream.requests) == asked:
            self.upstream.came.clear()
            await self.upstream.came.wait()
        asking.cancel()
        await asyncio.wait([asking])


async def answered(world: World) -> None:
    world.upstream.answer_with(answer(chat()))
    assert await world.ask() == 200


async def streamed(world: World) -> None:
    world.upstream.answer_with(stream(chat_events("Par", "is")))
    assert await world.ask(stream=True) == 200


async def stranger(world: World) -> None:
    assert await world.ask(headers={"Authorization": "Bearer hr-wrong"}) == 401


async def unknown_model(world: World) -> None:
    assert await world.ask("no-such-model") == 404


async def wrong_field(world: World) -> None:
    assert await world.ask(temperature="hot") == 400


async def refused_by_upstream(world: World) -> None:
    world.upstream.answer_with(answer({"error": {"message": "no"}}, 400))
    assert await world.ask() == 400


async def unavailable(world: World) -> None:
    world.upstream.answer_with(answer({"error": {"message": "no"}}, 502))
    assert await world.ask() == 502


async def tried_again(world: World) -> None:
    world.upstream.answer_with(answer({"error": {"message": "no"}}, 502))
    assert await world.ask("again") == 502


async def fallen_back(world: World) -> None:
    world.upstream.answer_with(cut_before_head())
    assert await world.ask("resilient") == 502


async def hedged(world: World) -> None:
    world.upstream.answer_with(answer({"error": {"message": "no"}}, 502))
    assert await world.ask("hedged") == 502


async def several(world: World) -> None:
    """A list of models, whose upstream fails for all."""
    world.upstream.answer_with(answer({"error": {"message": "no"}}, 502))
    body = {"model": ["first", "second"], "prompt": "x"}
    async with world.client.post("/v1/completion", headers=BEARER, json=body) as response:
        await response.read()


async def oversized(world: World) -> None:
    world.upstream.answer_with(answer(chat("x" * 200_000)))
    assert await world.ask() == 502


async def no_answer(world: World) -> None:
    world.upstream.answer_with(answer(b"<html>", media_type="text/html"))
    assert await world.ask() == 502


async def silent(world: World) -> None:
    world.upstream.answer_with(hang())
    assert await world.ask(stream=True) == 504


async def cut(world: World) -> None:
    world.upstream.answer_with(stream(chat_events("Par", "is"), cut_after=2))
    assert await world.ask(stream=True) == 200


async def garbled(world: World) -> None:
    world.upstream.answer_with(stream([*chat_events("Par")[:2], b"no json"]))
    assert await world.ask(stream=True) == 200


async def client_gone(world: World) -> None:
    world.upstream.answer_with(hang())
    await world.leave()


async def client_gone_midway(world: World) -> None:
    gate = asyncio.Event()
    world.upstream.answer_with(stream(chat_events("Par", "is"), gate=gate))
    await world.leave(stream=True)
    gate.set()


async def blocked_question(world: World) -> None:
    assert await world.ask("guarded", messages=[{"role": "user", "content": "forbidden"}]) == 400


async def blocked_answer(world: World) -> None:
    world.upstream.answer_with(answer(chat("forbidden")))
    assert await world.ask("guarded") == 400


async def blocked_stream(world: World) -> None:
    world.upstream.answer_with(stream(chat_events("Well, ", "this is ", "forbidden", " here")))
    await world.ask("guarded", stream=True)


async def asked_again(world: World) -> None:
    world.upstream.answer_with(answer(chat("forbidden")))
    assert await world.ask("repeating") == 400


async def limited(world: World) -> None:
    world.upstream.answer_with(answer(chat()))
    await world.ask("often")
    assert await world.ask("often") == 429


async def too_dear(world: World) -> None:
    assert await world.ask("guarded", max_tokens=1_000_000) == 429


async def shared_failure(world: World) -> None:
    world.upstream.answer_with(answer({"error": {"message": "no"}}, 400))
    assert await asyncio.gather(*(world.ask("shared") for _ in range(3))) == [400] * 3


async def shared_and_left(world: World) -> None:
    world.upstream.answer_with(hang())
    await world.leave(model="shared", stream=True)


async def shared_stream(world: World) -> None:
    world.upstream.answer_with(stream(chat_events("Par", "is"), cut_after=2))
    await asyncio.gather(*(world.ask("shared", stream=True) for _ in range(3)))


async def guard_service_away(world: World) -> None:
    assert await world.ask("asking") in (400, 503)


async def broken_body(world: World) -> None:
    headers = {**BEARER, "content-type": "application/json"}
    async with world.client.post(PATH, headers=headers, data=b'{"model": ') as response:
        assert response.status == 400


ENDS: list[Callable[[World], Awaitable[None]]] = [
    answered,
    streamed,
    stranger,
    unknown_model,
    wrong_field,
    refused_by_upstream,
    unavailable,
    tried_again,
    fallen_back,
    hedged,
    several,
    oversized,
    no_answer,
    silent,
    cut,
    garbled,
    client_gone,
    client_gone_midway,
    blocked_question,
    blocked_answer,
    blocked_stream,
    asked_again,
    limited,
    too_dear,
    broken_body,
    shared_failure,
    shared_and_left,
    shared_stream,
    guard_service_away,
]


@contextmanager
def uncollected() -> Iterator[list[Any]]:
    """Let no collector run, and give what one finds at the end."""
    found: list[Any] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def ours(thing: Any) -> bool:
    """True for what a call is made of: values of the product, its frames, and the body itself."""
    if isinstance(thing, types.FrameType):
        return "/proxy/" in thing.f_code.co_filename
    return is_body(thing) or type(thing).__module__.startswith("proxy.")


def is_body(thing: Any) -> bool:
    """True for a body; a table of fields has the same names, and checks in the place of values."""
    return isinstance(thing, dict) and isinstance(thing.get("messages"), list) and "model" in thing


def kept(others: list[Any]) -> list[Any]:
    """Return what is alive of calls, but for what others have: their bodies, and answers. No
    collector finds these where a generator that was not read to its end holds them, as it calls
    what ends that first."""
    not_ours = {id(each) for each in others}
    alive = [each for each in gc.get_objects() if isinstance(each, Forwarded) or is_body(each)]
    return [each for each in alive if id(each) not in not_ours]


@pytest.mark.parametrize("words", ["", "where is it " * 20_000], ids=["small", "large"])
@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
async def test_nothing_is_left_of_a_call(
    end: Callable[[World], Awaitable[None]], words: str, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    others = kept([MESSAGES])  # what tests before this one left in this process
    async with running_proxy(tmp_path / "p", policies(upstream.url)) as proxy:
        scene = World(proxy, upstream, proxy.client, words)
        await end(scene)  # what is made once for all calls
        await proxy.sink.wait()
        began = len(proxy.records)
        with uncollected() as found:
            await end(scene)
            await proxy.sink.wait(began + 1)
            await settled(scene)
            alive = await still(scene, [MESSAGES, *others])

    assert alive == []
    left = [thing for thing in found if ours(thing)]
    assert [f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in left] == []


async def settled(scene: World) -> None:
    """Let what ended be let go: by the upstream, by the client, by the loop."""
    await scene.client.connector.close() if scene.client.connector else None
    for _ in range(20):
        await asyncio.sleep(0.005)


async def still(scene: World, others: list[Any]) -> list[str]:
    """Return what stays alive of calls, however long one waits. Those that were made beside the
    last one may end later than it, on a busy machine much later."""
    until = time.monotonic() + PATIENCE_S
    while True:
        scene.proxy.records.clear()
        scene.upstream.requests.clear()
        alive = kept(others)
        if not alive or time.monotonic() > until:
            return [type(each).__qualname__ for each in alive]
        del alive
        await asyncio.sleep(0.005)
