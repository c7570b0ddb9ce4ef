"""Nothing of a call survives it: however it ends, no cycle keeps its body for a collector."""

from __future__ import annotations

import asyncio
import gc
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from proxy.upstream.response import HttpUpstreamResponse
from tests.conftest import Proxy, running_proxy, world
from tests.doubles import (
    PATIENCE_S,
    Script,
    ScriptedUpstream,
    answer,
    chat,
    chat_events,
    cut_before_head,
    hang,
    stream,
)
from tests.test_pipeline import BEARER, MESSAGES

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
    text = world(upstream, hasty=True).replace(
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
    extra = "shared, repeating, asking, guarded, often, again, hedged"
    text = text.replace("resilient, compare,", f"resilient, compare, {extra},")
    text = text.replace("  openai: {dialect", "  openai: {max_answer_bytes: 100KiB, dialect")
    return text + GUARDED


class World:
    def __init__(self, proxy: Proxy, upstream: ScriptedUpstream, words: str) -> None:
        self.proxy, self.upstream, self.words = proxy, upstream, words

    async def ask(self, end: End) -> int:
        body: Any = {**MESSAGES, "model": end.model, "context": self.words, **end.body}
        sent_body = {"data": end.raw} if end.raw else {"json": body}
        headers = {**BEARER, "content-type": "application/json", **end.headers}
        try:
            async with self.proxy.client.post(end.path, headers=headers, **sent_body) as response:
                await response.read()
                return response.status
        except aiohttp.ClientError:
            return 0

    async def run(self, end: End) -> None:
        """Make the calls of an end. A client that leaves does so once the upstream was asked."""
        gate = asyncio.Event()
        self.upstream.answer_with(stream(TWO, gate=gate) if end.script is None else end.script)
        request_count = len(self.upstream.requests)
        tasks = [asyncio.ensure_future(self.ask(end)) for _ in range(end.times)]
        if end.leaves:
            while len(self.upstream.requests) == request_count:
                self.upstream.came.clear()
                await self.upstream.came.wait()
            tasks[0].cancel()
        result = await asyncio.gather(*tasks, return_exceptions=True)
        gate.set()
        assert end.leaves or set(result) <= {*end.statuses}


@dataclass(frozen=True)
class End:
    """One way for calls to end. Without a script the stream waits after its first event."""

    script: Script | None
    statuses: Sequence[int] = (200,)
    model: str | list[str] = "support-chat"
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    path: str = "/v1/chat/completions"
    raw: bytes = b""
    times: int = 1
    leaves: bool = False


TWO = chat_events("Par", "is")
PARIS, STREAM, CUT = answer(chat()), stream(TWO), stream(TWO, cut_after=2)
NO, UNAVAILABLE = (answer({"error": {"message": "no"}}, status) for status in (400, 502))
SAYS_IT, LIVE = answer(chat("forbidden")), {"stream": True}
ENDS = {
    "answered": End(PARIS),
    "streamed": End(STREAM, body=LIVE),
    "stranger": End(PARIS, [401], headers={"Authorization": "Bearer hr-wrong"}),
    "unknown model": End(PARIS, [404], "no-such-model"),
    "wrong field": End(PARIS, [400], body={"temperature": "hot"}),
    "broken body": End(PARIS, [400], raw=b'{"model": '),
    "refused by the upstream": End(NO, [400]),
    "unavailable": End(UNAVAILABLE, [502]),
    "retried": End(UNAVAILABLE, [502], "again"),
    "fallback": End(cut_before_head(), [502], "resilient"),
    "hedged": End(UNAVAILABLE, [502], "hedged"),
    "several": End(UNAVAILABLE, [502], ["first", "second"], {"prompt": "x"}, path="/v1/completion"),
    "oversized": End(answer(chat("x" * 200_000)), [502]),
    "no JSON": End(answer(b"<html>", media_type="text/html"), [502]),
    "silent": End(hang(), [504], body=LIVE),
    "cut": End(CUT, [0, 200], body=LIVE),
    "garbled": End(stream([*chat_events("Par")[:2], b"no json"]), [0, 200], body=LIVE),
    "client left": End(hang(), leaves=True),
    "client left midway": End(None, body=LIVE, leaves=True),
    "blocked question": End(
        PARIS, [400], "guarded", {"messages": [{"role": "user", "content": "forbidden"}]}
    ),
    "blocked answer": End(SAYS_IT, [400], "guarded"),
    "blocked stream": End(
        stream(chat_events("Well, ", "this is ", "forbidden", " here")), [0, 200], "guarded", LIVE
    ),
    "guard retry": End(SAYS_IT, [400], "repeating"),
    "rate limited": End(PARIS, [200, 429], "often"),
    "too large for a limit": End(PARIS, [429], "guarded", {"max_tokens": 1_000_000}),
    "shared failure": End(NO, [400], "shared", times=3),
    "shared and left": End(hang(), model="shared", body=LIVE, leaves=True),
    "shared stream": End(CUT, [0, 200], "shared", LIVE, times=3),
    "guard service is away": End(PARIS, [400, 503], "asking"),
}


@contextmanager
def uncollected() -> Iterator[list[Any]]:
    """Let no collector run, and give what one finds at the end."""
    matches: list[Any] = []
    gc.collect()
    gc.disable()
    try:
        yield matches
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        matches += gc.garbage
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


def alive_bodies(other_items: list[Any]) -> list[Any]:
    """Return what is alive of calls, but for what others have: their bodies, and answers. No
    collector finds these where a generator that was not read to its end holds them, as it calls
    what ends that first."""
    not_ours = {id(item) for item in other_items}
    alive = [
        item for item in gc.get_objects() if isinstance(item, HttpUpstreamResponse) or is_body(item)
    ]
    return [item for item in alive if id(item) not in not_ours]


@pytest.mark.parametrize("words", ["", "where is it " * 20_000], ids=["small", "large"])
@pytest.mark.parametrize("name", ENDS)
async def test_nothing_is_left_of_a_call(
    name: str, words: str, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    other_items = alive_bodies([MESSAGES])  # what tests before this one left in this process
    async with running_proxy(tmp_path / "p", policies(upstream.url)) as proxy:
        scene, end = World(proxy, upstream, words), ENDS[name]
        await scene.run(end)  # makes what all calls share
        await proxy.sink.wait()
        started = len(proxy.records)
        with uncollected() as matches:
            await scene.run(end)
            await proxy.sink.wait(started + 1)
            await proxy.client.connector.close() if proxy.client.connector else None
            for _ in range(20):  # the upstream, the client and the loop let go of what ended
                await asyncio.sleep(0.005)
            alive = await wait_for_release(scene, [MESSAGES, *other_items])

    assert alive == []
    remaining = [thing for thing in matches if ours(thing)]
    assert [f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in remaining] == []


async def wait_for_release(scene: World, other_items: list[Any]) -> list[str]:
    """Return what stays alive of calls after ``PATIENCE_S``."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        scene.proxy.records.clear()
        scene.upstream.requests.clear()
        alive = alive_bodies(other_items)
        if not alive or time.monotonic() > deadline:
            return [type(item).__qualname__ for item in alive]
        del alive
        await asyncio.sleep(0.005)
