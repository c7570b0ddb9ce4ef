"""Streams of any size never hold the event loop, and held responses share one bound."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientSession

from proxy.call.summary import summarize
from proxy.guards.stream.filter import StreamFilter
from proxy.guards.stream.placeholders import Masks
from proxy.types.events import Frame
from tests.adversary.loops import LAG_S, Lag, Loop, upstream_on_own_loop
from tests.adversary.test_growth import GUARDS
from tests.conftest import Proxy, metric_total, policies_for, running_proxy
from tests.doubles import (
    Json,
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    Wire,
    chat_events,
    event,
    head,
    item_events,
    response_events,
    text_item,
)
from tests.guards.doubles import rule, short_digests, tallies
from tests.guards.growth import TIMES, lines
from tests.guards.stream import frames as made
from tests.test_pipeline import MESSAGES as HI
from tests.test_pipeline import ROUTES

pytestmark = pytest.mark.usefixtures("collected")

TRIES = 4
DIALECTS = ("fireworks", "scale", "portkey", "multimodel", "enkrypt")
POLICIES = {
    "no guards": "cache: {ttl: 1h}",
    "guards that mask": f"output: {GUARDS.replace('ACT', 'mask')}",
    "guards that flag": f"output: {GUARDS.replace('ACT', 'flag')}",
    "a guard of whole texts": "output: [{guard: length, characters: 1000000, action: block}]",
    "a guard that asks again": (
        "output: [{guard: keywords, words: [unfindable], action: retry}]\n    cache: {ttl: 1h}"
    ),
    "values that are put back": (
        "input: [{guard: pii, entities: [email], action: mask, restore: true}]"
    ),
}


def delta(text: str, finish: str | None = None) -> Json:
    """Return an event that is valid as a chat chunk and as a completion chunk."""
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


def legacy_delta(text: str, finish: str | None = None) -> Json:
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish}]}


def call(arguments: str) -> Json:
    function = {"name": "f", "arguments": arguments}
    calls = [{"index": 0, "id": "1", "type": "function", "function": function}]
    return {"choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": None}]}


def several(count: int) -> Json:
    return {"choices": [{"index": place, "delta": {"content": "a"}} for place in range(count)]}


STREAMS: dict[str, list[Json]] = {
    "many short events": [delta("a")] * 4_000,
    "letters apart": [delta("a b c d e f " * 150)] * 150,
    "letters apart, in short events": [delta("a b c d e f " * 5)] * 1500,
    "full width": [delta("\uff46\uff55\uff4c\uff4c\u3000\uff57" * 100)] * 100,
    "entities": [delta("&amp;&#97;")] * 1500,
    "prose": [delta("The quick brown fox jumps over the lazy dog. " * 20)] * 150,
    "one long event": [delta("a b c d " * 20_000)],
    "many choices": [several(300)] * 10,
    "many values": [{**delta("a"), "unknown": [{}] * 99_000}],
    "many names": [{**delta("a"), **{f"n{number}": 1 for number in range(10_000)}}] * 3,
    "arguments": [call('["\\u0048",')] * 1500,
    "arguments at once": [call('["\\u0048",' + "1,2," * 500)] * 2,
}


@dataclass
class Stage:
    """A proxy and the next stream of its upstream. ``call_count`` counts the calls."""

    events: bytes = b""
    call_count: int = 0
    proxy: Proxy = field(init=False)
    other_loop: Loop = field(init=False)

    async def script(self, request: ReceivedRequest, wire: Wire) -> None:
        wire.keep = False
        await wire.send(head(200, "text/event-stream", "connection: close"), self.events)

    def stream(self, events: Sequence[Json], end: Json) -> None:
        single = {id(document): event(orjson.dumps(document)) for document in (*events, end)}
        values = [single[id(document)] for document in (*events, end)]
        self.events = b"".join([*values, event(b"[DONE]")])

    async def lag(self, path: str, headers: dict[str, str], body: Json) -> float:
        """Send a call and return the longest uninterrupted work of the loop in seconds."""
        self.call_count += 1  # bodies differ so that none is cached
        sent_body = {**body, "stream": True, "max_tokens": 16 + self.call_count}
        with Lag() as lag:
            status, fields = await self.other_loop.run(self._ask(path, headers, sent_body))
        await self.proxy.sink.wait()
        self.proxy.sink.forget()
        assert status in (200, 400, 503), fields  # a late guard may block
        return lag.worst

    async def _ask(self, path: str, headers: dict[str, str], body: Json) -> tuple[int, bytes]:
        async with (
            ClientSession() as client,
            client.post(f"{self.proxy.url}{path}", headers=headers, json=body) as response,
        ):
            fields = await response.content.read(300)
            async for _ in response.content.iter_any():
                pass
            return response.status, fields

    async def least_lag(self, *call: Any) -> float:
        """Return the least lag of several repetitions, ending with the first short one."""
        minimum = await self.lag(*call)
        for _ in range(TRIES - 1):
            if minimum < LAG_S:
                break
            minimum = min(minimum, await self.lag(*call))
        return minimum


@asynccontextmanager
async def stage(folder: Path, policy: str) -> AsyncIterator[Stage]:
    stage = Stage()
    async with upstream_on_own_loop(stage.script) as (stage.other_loop, url):
        text = f"{policies_for(url)}policies:\n  default:\n    match: all\n    {policy}\n"
        async with running_proxy(folder / "policies", text) as stage.proxy:
            yield stage


CHAT = {"messages": [{"role": "user", "content": "Hi, I am a@example.com."}]}


@pytest.mark.parametrize("policy", POLICIES)
async def test_no_stream_blocks_the_loop(policy: str, tmp_path: Path) -> None:
    route = ROUTES["openai-chat"]
    lags = {}
    async with stage(tmp_path, POLICIES[policy]) as local_value:
        for name, events in STREAMS.items():
            local_value.stream(events, delta("", "stop"))
            body = {"model": "support-chat", **CHAT}
            lags[name] = await local_value.least_lag(route.path, route.credential, body)

    assert {name: lag for name, lag in lags.items() if lag >= LAG_S} == {}


STREAMED = {name: route for name, route in ROUTES.items() if route.streams}


PAIRS = {
    **{name: (route, route.body(streamed=True)) for name, route in STREAMED.items()},
    **{
        f"via-{dialect}": (ROUTES["openai"], {"model": f"via-{dialect}", "prompt": "Hi"})
        for dialect in DIALECTS
    },
}


async def test_no_dialect_blocks_the_loop(tmp_path: Path) -> None:
    lags = {}
    async with stage(tmp_path, POLICIES["guards that mask"]) as local_value:
        for name, (route, body) in PAIRS.items():
            result = delta if route.chat else legacy_delta
            local_value.stream(
                [result("a b c d e f " * 150)] * 20 + [result("a")] * 600, result("", "stop")
            )
            lags[name] = await local_value.least_lag(route.path, route.credential, body)

    assert {name: lag for name, lag in lags.items() if lag >= LAG_S} == {}


MASKED = "output: [{guard: keywords, words: [unfindable], action: mask, deadline: 60s}]"


async def test_memory_of_a_long_event_is_bounded(tmp_path: Path) -> None:
    route, peaks = ROUTES["openai-chat"], []
    async with stage(tmp_path, MASKED) as local_value:
        for size in (20_000, 75_000, 150_000, 300_000):  # the first size fills caches
            local_value.stream([delta("a b " * (size // 4))], delta("", "stop"))
            gc.collect()
            tracemalloc.start()
            await local_value.lag(route.path, route.credential, {"model": "support-chat", **CHAT})
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    _, short, longer, longest = peaks
    assert longer - short < 32 * 75_000
    assert longest - longer < 32 * 150_000


SMALL_COUNT = 40
MAXIMUM = TIMES * 1.5
OPEN = "[EMAIL_x"  # may continue as a placeholder
Make = Callable[[], StreamFilter]


def chunk(delta: Json) -> Json:
    return {**made.HEAD, "choices": [{"index": 0, "delta": delta}]}


CHUNKS: dict[str, Callable[[int], list[Json]]] = {
    "a list": lambda n: [chunk({"x": ["ab"] * n})],
    "members": lambda n: [chunk({f"m{number}": "ab" for number in range(n)})],
}


def restoring() -> StreamFilter:
    masks = Masks(short_digests())
    masks.make_placeholder("EMAIL", "a@b.example")
    return StreamFilter(masks)


def flagging() -> StreamFilter:
    return StreamFilter.for_rules(tallies(rule("secret", action="flag")))


def fed(frames: Sequence[Frame], make: Make) -> list[Frame]:
    stream = make()
    return [safe for frame in frames for safe in stream.feed(frame)]


@pytest.mark.parametrize("make", [flagging, restoring])
@pytest.mark.parametrize("name", CHUNKS)
def test_work_grows_with_the_number_of_texts(name: str, make: Make) -> None:
    frames, items = (
        made.read(*CHUNKS[name](number)) for number in (SMALL_COUNT, SMALL_COUNT * TIMES)
    )

    assert made.documents(fed(frames, make)) == made.documents(frames)
    assert lines(lambda: fed(items, make)) < MAXIMUM * lines(lambda: fed(frames, make))


def test_thousands_of_waiting_chunks_take_linear_work() -> None:
    first_document, later = chunk({"y": "ab", "z": "ab", "x": OPEN}), chunk({"y": "ab", "z": "ab"})
    frames = made.read(first_document, *[later] * 3_000)

    assert fed(frames, restoring) == frames


SIZE = 100_000
EVENTS = chat_events("x" * SIZE)


def policy_with(guard: str) -> str:
    return f"\npolicies: {{default: {{match: all, output: [{{guard: {guard}}}]}}}}\n"


RETRY = policy_with("keywords, words: [zqforbidden], action: retry")
DOCUMENT = {
    "a judged one": policy_with("length, characters: 1000000, action: block"),
    "a counted one": policy_with("sponge, action: flag"),
    "a pattern without end": policy_with("keywords, patterns: ['zq.*forbidden'], action: mask"),
    "a context": policy_with("grounded, action: block"),
}
PASSING = policy_with("keywords, words: [zqforbidden], action: block")


async def held_bytes(proxy: Proxy) -> Decimal:
    return metric_total(await proxy.metrics(), "headrace_answer_body_bytes")


CHAT_PATH = "/v1/chat/completions"


async def status_of(proxy: Proxy, path: str, body: Json) -> int:
    reply = await proxy.send(path, body)
    assert reply.status != 503 or reply.error["code"] == "overloaded"
    return reply.status


def unfinished(go_on: asyncio.Event, *, stream: bool, events: Sequence[Json] = EVENTS) -> Script:
    """Send most of a response, and its end once the event is set."""

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        if stream:
            first_data, last_data = (
                b"".join(map(event, events[:-1])),
                event(events[-1]) + event(b"[DONE]"),
            )
            kind = "text/event-stream"
        else:
            first_data = b'{"choices":[{"index":0,"message":{"content":"' + b"x" * SIZE
            last_data, kind = b'"},"finish_reason":"stop"}]}', "application/json"
        length = f"content-length: {len(first_data) + len(last_data)}"
        await wire.send(head(200, kind, length) + first_data)
        await go_on.wait()
        await wire.send(last_data)

    return script


@pytest.mark.parametrize(
    ("policies", "stream", "bounded"),
    [
        *(("", False, True), (RETRY, False, True), (RETRY, True, True), ("", True, False)),
        *((PASSING, True, False), *((policies, True, True) for policies in DOCUMENT.values())),
    ],
    ids=[
        *("whole", "whole under a guard", "a stream that is kept", "a stream"),
        *("a stream that a guard follows", *DOCUMENT),
    ],
)
async def test_held_responses_share_one_bound(
    policies: str, stream: bool, bounded: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    go_on = asyncio.Event()
    upstream.answer_with(unfinished(go_on, stream=stream))
    async with running_proxy(
        tmp_path / "p", policies_for(upstream.url) + policies, answers_bytes=5 * SIZE
    ) as proxy:
        body = {"model": "support-chat", **HI, "stream": stream}
        calls = [asyncio.ensure_future(status_of(proxy, CHAT_PATH, body)) for _ in range(4)]
        if bounded:
            await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            assert 0 < await held_bytes(proxy) <= 5 * SIZE // 2
        go_on.set()
        statuses = sorted(await asyncio.gather(*calls))
        records = await proxy.sink.wait(4)
        assert await held_bytes(proxy) == 0

        assert await status_of(proxy, CHAT_PATH, body) == 200
    assert statuses == ([200, 200, 503, 503] if bounded else [200] * 4)
    refused = [record for record in records if record.status == 503]
    assert all(
        record.outcome == "proxy_error" and not record.is_internal_error for record in refused
    )
    attempts = [attempt for record in refused for attempt in summarize(record).attempts]
    assert all(attempt.result.loss for attempt in attempts if attempt.bill)


FIELDS = response_events(item_events(0, text_item("x"), "x" * SIZE))


@pytest.mark.parametrize(
    ("model", "events"), [("support-chat", FIELDS), ("search-answers", EVENTS)], ids=["own", "chat"]
)
async def test_repeating_stream_is_held_to_its_end(
    model: str, events: Sequence[Json], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    go_on = asyncio.Event()
    upstream.answer_with(unfinished(go_on, stream=True, events=events))
    policies = tmp_path / "p", policies_for(upstream.url)
    async with running_proxy(*policies, answers_bytes=6 * SIZE) as proxy:
        body = {"model": model, "input": "Hi", "stream": True}
        calls = [asyncio.ensure_future(status_of(proxy, "/v1/responses", body)) for _ in range(4)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert 0 < await held_bytes(proxy) <= 3 * SIZE
        go_on.set()
        statuses = sorted(await asyncio.gather(*calls))
        await proxy.sink.wait(4)

        assert await held_bytes(proxy) == 0
    assert statuses[0] == 200
    assert statuses[-1] == 503
