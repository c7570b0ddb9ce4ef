"""Searches for streams that hold the event loop, take quadratic work or escape the memory bound."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import pytest

from proxy.call.summary import summarize
from proxy.guards.stream.filter import StreamFilter
from proxy.guards.stream.placeholders import Masks
from proxy.types.events import Frame
from tests.adversary.event_loops import LAG_S, MeasuredProxy, measured_proxy, stream_bytes
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
from tests.guards.stream import frames as chat_frames
from tests.test_pipeline import MESSAGES, ROUTES, Route

pytestmark = pytest.mark.usefixtures("collected")

DIALECTS = ("fireworks", "scale", "portkey", "multimodel", "enkrypt")
POLICIES = {
    "no guards": "cache: {ttl: 1h}",
    "guards that mask": f"output: [{GUARDS.replace('ACT', 'mask')}]",
    "guards that flag": f"output: [{GUARDS.replace('ACT', 'flag')}]",
    "a guard of whole texts": "output: [{guard: length, characters: 1000000, action: block}]",
    "a guard that asks again": (
        "output: [{guard: keywords, words: [unfindable], action: retry}]\n    cache: {ttl: 1h}"
    ),
    "values that are put back": (
        "input: [{guard: pii, entities: [email], action: mask, restore: true}]"
    ),
}


MASKING = POLICIES["guards that mask"]


def build_policy(policy: str) -> str:
    return f"policies:\n  default:\n    match: all\n    {policy}\n"


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
    return {"choices": [{"index": number, "delta": {"content": "a"}} for number in range(count)]}


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


async def measure_lag(measured: MeasuredProxy, route: Route, body: Json, *events: Json) -> float:
    """Return the least time in seconds that a stream of these events holds the loop."""
    measured.response = stream_bytes(*events)
    body = {**body, "stream": True}
    result = await measured.measure(route.path, body, route.credential, allowed_s=LAG_S)
    assert result.statuses <= {200, 400, 503}, result.reply.raw  # a late guard may block
    return result.lag_s


CHAT = {"model": "support-chat", "messages": [{"role": "user", "content": "I am a@example.com."}]}


@pytest.mark.parametrize("policy", POLICIES)
async def test_no_stream_blocks_the_loop(policy: str, tmp_path: Path) -> None:
    route = ROUTES["openai-chat"]
    async with measured_proxy(tmp_path, build_policy(POLICIES[policy])) as measured:
        lags = {
            name: await measure_lag(measured, route, CHAT, *events, delta("", "stop"))
            for name, events in STREAMS.items()
        }

    assert {name: lag for name, lag in lags.items() if lag >= LAG_S} == {}


CALLS = {
    **{name: (route, route.body(streamed=True)) for name, route in ROUTES.items() if route.streams},
    **{
        f"via-{dialect}": (ROUTES["openai"], {"model": f"via-{dialect}", "prompt": "Hi"})
        for dialect in DIALECTS
    },
}


async def test_no_dialect_blocks_the_loop(tmp_path: Path) -> None:
    lags = {}
    async with measured_proxy(tmp_path, build_policy(MASKING)) as measured:
        for name, (route, body) in CALLS.items():
            build = delta if route.chat else legacy_delta
            events = [build("a b c d e f " * 150)] * 20 + [build("a")] * 600
            lags[name] = await measure_lag(measured, route, body, *events, build("", "stop"))

    assert {name: lag for name, lag in lags.items() if lag >= LAG_S} == {}


MASKED_WORDS = "output: [{guard: keywords, words: [unfindable], action: mask, deadline: 60s}]"


async def test_memory_of_a_long_event_is_bounded(tmp_path: Path) -> None:
    route, peaks = ROUTES["openai-chat"], []
    async with measured_proxy(tmp_path, build_policy(MASKED_WORDS)) as measured:
        for size in (20_000, 75_000, 150_000, 300_000):  # the first size fills caches
            measured.response = stream_bytes(delta("a b " * (size // 4)), delta("", "stop"))
            gc.collect()
            tracemalloc.start()
            await measured.send(route.path, {**CHAT, "stream": True}, route.credential)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()

    _, short, longer, longest = peaks
    assert longer - short < 32 * 75_000
    assert longest - longer < 32 * 150_000


SMALL_COUNT = 40
MAX_GROWTH = TIMES * 1.5
OPEN = "[EMAIL_x"  # may continue as a placeholder
BuildFilter = Callable[[], StreamFilter]


def chunk(delta: Json) -> Json:
    return {**chat_frames.HEAD, "choices": [{"index": 0, "delta": delta}]}


CHUNKS: dict[str, Callable[[int], list[Json]]] = {
    "a list": lambda n: [chunk({"x": ["ab"] * n})],
    "members": lambda n: [chunk({f"m{number}": "ab" for number in range(n)})],
}


def restoring_filter() -> StreamFilter:
    masks = Masks(short_digests())
    masks.make_placeholder("EMAIL", "a@b.example")
    return StreamFilter(masks)


def flagging_filter() -> StreamFilter:
    return StreamFilter.for_rules(tallies(rule("secret", action="flag")))


def feed_filter(frames: Sequence[Frame], build: BuildFilter) -> list[Frame]:
    stream = build()
    return [safe for frame in frames for safe in stream.feed(frame)]


@pytest.mark.parametrize("build", [flagging_filter, restoring_filter])
@pytest.mark.parametrize("name", CHUNKS)
def test_work_grows_with_the_number_of_texts(name: str, build: BuildFilter) -> None:
    frames, items = (
        chat_frames.read(*CHUNKS[name](number)) for number in (SMALL_COUNT, SMALL_COUNT * TIMES)
    )

    assert chat_frames.documents(feed_filter(frames, build)) == chat_frames.documents(frames)
    assert lines(lambda: feed_filter(items, build)) < MAX_GROWTH * lines(
        lambda: feed_filter(frames, build)
    )


def test_thousands_of_waiting_chunks_take_linear_work() -> None:
    first_document, later = chunk({"y": "ab", "z": "ab", "x": OPEN}), chunk({"y": "ab", "z": "ab"})
    frames = chat_frames.read(first_document, *[later] * 3_000)

    assert feed_filter(frames, restoring_filter) == frames


SIZE = 100_000
EVENTS = chat_events("x" * SIZE)


def build_output_guards(guard: str) -> str:
    return build_policy(f"output: [{{guard: {guard}}}]")


RETRY = build_output_guards("keywords, words: [zqforbidden], action: retry")
WHOLE_TEXT_GUARDS = {
    "a guard of whole texts": build_output_guards("length, characters: 1000000, action: block"),
    "a guard that counts": build_output_guards("sponge, action: flag"),
    "a pattern without end": build_output_guards(
        "keywords, patterns: ['zq.*forbidden'], action: mask"
    ),
    "a guard with context": build_output_guards("grounded, action: block"),
}
FOLLOWING = build_output_guards("keywords, words: [zqforbidden], action: block")


async def get_held_bytes(proxy: Proxy) -> Decimal:
    return metric_total(await proxy.metrics(), "headrace_answer_body_bytes")


CHAT_PATH = "/v1/chat/completions"


async def get_status(proxy: Proxy, path: str, body: Json) -> int:
    reply = await proxy.send(path, body)
    assert reply.status != 503 or reply.error["code"] == "overloaded"
    return reply.status


def unfinished(finish: asyncio.Event, *, stream: bool, events: Sequence[Json] = EVENTS) -> Script:
    """Send most of a response, and its end once ``finish`` is set."""
    if stream:
        begin, end = b"".join(map(event, events[:-1])), event(events[-1]) + event(b"[DONE]")
    else:
        begin = b'{"choices":[{"index":0,"message":{"content":"' + b"x" * SIZE
        end = b'"},"finish_reason":"stop"}]}'
    media_type = "text/event-stream" if stream else "application/json"

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        length = f"content-length: {len(begin) + len(end)}"
        await wire.send(head(200, media_type, length) + begin)
        await finish.wait()
        await wire.send(end)

    return script


async def send_unfinished(
    proxy: Proxy, finish: asyncio.Event, path: str, body: Json, max_bytes: int
) -> list[int]:
    """Send four calls and finish their responses. Return the statuses.

    If ``max_bytes`` is not 0, the responses hold at most so many bytes after the first refusal.
    """
    calls = [asyncio.ensure_future(get_status(proxy, path, body)) for _ in range(4)]
    if max_bytes:
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert 0 < await get_held_bytes(proxy) <= max_bytes
    finish.set()
    statuses = sorted(await asyncio.gather(*calls))
    await proxy.sink.wait(4)
    assert await get_held_bytes(proxy) == 0
    return statuses


@pytest.mark.parametrize(
    ("policies", "stream", "is_bounded"),
    [
        pytest.param("", False, True, id="whole"),
        pytest.param(RETRY, False, True, id="whole under a guard"),
        pytest.param(RETRY, True, True, id="a stream that may be retried"),
        pytest.param("", True, False, id="a stream"),
        pytest.param(FOLLOWING, True, False, id="a stream that a guard follows"),
        *(pytest.param(text, True, True, id=name) for name, text in WHOLE_TEXT_GUARDS.items()),
    ],
)
async def test_held_responses_share_one_bound(
    policies: str, stream: bool, is_bounded: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    finish = asyncio.Event()
    upstream.answer_with(unfinished(finish, stream=stream))
    text = policies_for(upstream.url) + policies
    async with running_proxy(tmp_path / "p", text, answers_bytes=5 * SIZE) as proxy:
        body = {"model": "support-chat", **MESSAGES, "stream": stream}
        max_bytes = 5 * SIZE // 2 if is_bounded else 0
        statuses = await send_unfinished(proxy, finish, CHAT_PATH, body, max_bytes)
        refused = [record for record in proxy.records if record.status == 503]

        assert await get_status(proxy, CHAT_PATH, body) == 200
    assert statuses == ([200, 200, 503, 503] if is_bounded else [200] * 4)
    for record in refused:
        assert (record.outcome, record.is_internal_error) == ("proxy_error", False)
        attempts = summarize(record).attempts
        assert all(attempt.result.loss for attempt in attempts if attempt.bill)


RESPONSES_EVENTS = response_events(item_events(0, text_item("x"), "x" * SIZE))


@pytest.mark.parametrize(
    ("model", "events"),
    [("support-chat", RESPONSES_EVENTS), ("search-answers", EVENTS)],
    ids=["own", "chat"],
)
async def test_repeating_stream_is_held_to_its_end(
    model: str, events: Sequence[Json], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    finish = asyncio.Event()
    upstream.answer_with(unfinished(finish, stream=True, events=events))
    policies = policies_for(upstream.url)
    async with running_proxy(tmp_path / "p", policies, answers_bytes=6 * SIZE) as proxy:
        body = {"model": model, "input": "Hi", "stream": True}
        statuses = await send_unfinished(proxy, finish, "/v1/responses", body, 3 * SIZE)

    assert statuses[0] == 200
    assert statuses[-1] == 503
