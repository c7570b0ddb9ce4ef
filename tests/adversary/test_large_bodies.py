"""Large bodies, slow guards and many streams of one key delay no call of another key."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientSession

from proxy.money.estimate import HiddenOutput
from tests.adversary.loops import Lag, Loop, upstream_on_own_loop
from tests.conftest import Proxy, policies_for, running_proxy
from tests.doubles import (
    PATIENCE_S,
    ReceivedRequest,
    ScriptedUpstream,
    Wire,
    answer,
    chat,
    chat_events,
    event,
    hang,
    head,
    legacy,
    response,
)
from tests.guards.growth import lines
from tests.test_pipeline import BEARER, MESSAGES

BYTES = 16 * 1024 * 1024 - 4096
VALUES = 99_000
FREE_S = 0.02  # shorter blocking is not reported
TRIES = 4
SECRET = "a secret of replicas"
POLICY = """
policies:
  default:
    match: all
    capture: {share: 100%, fields: [input, output]}
    cache: {ttl: 1h, semantic: {embeddings: support-chat}}
    limits:
      - {name: month, usd: 100000 per month, unpriced: allow}
      - {name: rate, tokens: 900M per day}
"""


def long(mark: str) -> str:
    return mark * (BYTES // (len(json.dumps(mark, ensure_ascii=False).encode()) - 2))


TEXTS = {"letters": "abcdefg ", "line ends": "\n", "many scripts": "aaa漢😀"}
SHAPES: dict[str, Any] = {
    "small values": {"a": [{}] * VALUES},
    "small texts": {"a": ["ab cd\n"] * VALUES},
    "names": {f"n{number}": 1 for number in range(VALUES)},
    "texts of 64 KiB": {f"k{number}": "ab\n " * 16_000 for number in range(190)},
}


def at_once() -> float:
    text = long("\n")
    started_at = time.thread_time()
    orjson.dumps(text)
    return time.thread_time() - started_at


def upstream_of(results: list[bytes]) -> AbstractAsyncContextManager[tuple[Loop, str]]:
    """Run an upstream that serves both APIs and stores request bodies."""

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        results.append(request.body)
        known_values: dict[str, Callable[..., Any]] = {
            **{"chat/completions": chat, "responses": response},
            "conversations": lambda: {"id": "conv_1", "object": "conversation"},
        }
        result = next(
            (make for end, make in known_values.items() if request.path.endswith(end)), legacy
        )
        await answer(result())(request, wire)

    return upstream_on_own_loop(script)


@dataclass
class RepeatedCall:
    """A call repeated until it did not block the loop. ``excess_s`` is the least excessive lag."""

    bytes: int = 0
    statuses: set[int] = field(default_factory=set)
    excess_s: float = inf


async def repeat_until_fast(
    proxy: Proxy, other_loop: Loop, path: str, body: dict[str, Any]
) -> RepeatedCall:
    """Repeat a call while it blocks the loop. BodyMemory differ so that none is cached."""
    tried = RepeatedCall()
    headers = BEARER | ({"x-headrace-deployment": body["model"]} if "items" in body else {})
    for count in range(TRIES):
        different = "turn" if path == "conversations" else "max_tokens"
        raw = orjson.dumps({**body, different: 16 + count})
        unit = max(at_once(), 3 * FREE_S)
        with Lag() as lag:
            reply = await other_loop.send(f"{proxy.url}/v1/{path}", raw, headers)
            tried.statuses.add(reply.status)
            await proxy.sink.wait()
        proxy.sink.forget()
        tried.bytes = len(raw)
        tried.excess_s = min(tried.excess_s, lag.worst - max(unit / 2, FREE_S))
        if tried.excess_s <= 0:
            break
    return tried


def bodies() -> Iterator[tuple[str, str, dict[str, Any]]]:
    user = {"role": "user"}
    for mark in TEXTS.values():
        yield "chat/completions", "support-chat", {"messages": [{**user, "content": long(mark)}]}
    for extra in SHAPES.values():
        messages = [{**user, "content": "Hi"}]
        yield "chat/completions", "support-chat", {"messages": messages, "unknown": extra}
    messages_of_values = [{**user, "content": "Hi"}] * (VALUES // 3 - 9)
    yield "chat/completions", "legacy-only", {"messages": messages_of_values}
    yield (
        "chat/completions",
        "legacy-only",
        {"messages": [{**user, "content": long(TEXTS["many scripts"])}]},
    )
    hello = {"messages": [{**user, "content": "Hi"}]}
    tool = {"name": "find", "input_schema": SHAPES["names"]}
    yield "messages/count_tokens", "support-chat", {**hello, "tools": [tool]}
    sealed = "msg_" + "A" * 1000
    items = [
        {"type": "message", **user, "content": "Hi", "id": f"{sealed}{n:04}"} for n in range(4096)
    ]
    yield "responses", "support-chat", {"input": items}
    yield "conversations", "responses-only", {"items": items}
    for dialect in ("fireworks", "scale", "multimodel", "enkrypt", "portkey"):
        yield "completions", f"via-{dialect}", {"prompt": long("\n")}


@pytest.mark.usefixtures("collected")
async def test_large_body_does_not_block_the_loop(tmp_path: Path) -> None:
    results: list[bytes] = []
    async with (
        upstream_of(results) as (other_loop, url),
        running_proxy(
            tmp_path / "policies", policies_for(url) + POLICY, id_secrets=(SECRET,)
        ) as proxy,
    ):
        for path, model, body in bodies():
            results.clear()
            tried = await repeat_until_fast(proxy, other_loop, path, {"model": model, **body})

            name = f"{model}, {tried.bytes} bytes of {[*body]}"
            assert tried.statuses == {200}, name
            assert tried.excess_s <= 0, name
            for sent_data in results:
                assert sent_data == orjson.dumps(orjson.loads(sent_data)), name


def guarded() -> Iterator[tuple[str, dict[str, Any]]]:
    data = base64.b64encode(b"hello wor" * (BYTES // 12)).decode()
    yield "data", {"messages": [{"role": "user", "content": f"data:text/plain;base64,{data}"}]}
    for name in ("small values", "small texts", "names"):
        messages = [{"role": "user", "content": "Hi"}]
        yield name, {"messages": messages, "unknown": SHAPES[name]}


@pytest.mark.usefixtures("collected")
async def test_guards_of_large_bodies_do_not_block_the_loop(tmp_path: Path) -> None:
    policy = POLICY + "    input: [{guard: keywords, words: [unfindable], action: mask}]\n"
    async with (
        upstream_of([]) as (other_loop, url),
        running_proxy(tmp_path / "policies", policies_for(url) + policy) as proxy,
    ):
        for name, body in guarded():
            sent_value = {"model": "support-chat", **body}
            tried = await repeat_until_fast(proxy, other_loop, "chat/completions", sent_value)

            assert tried.statuses <= {200, 503}, name  # a guard may exceed its deadline
            assert tried.excess_s <= 0, name


@pytest.mark.parametrize("size", [64 * 1024, 64 * 1024 + 64])
async def test_large_body_is_sent_unchanged(size: int, tmp_path: Path) -> None:
    results: list[bytes] = []
    body = {
        "model": "support-chat",
        "messages": [{"role": "user", "content": 'aé漢😀\n\x01"'}],
        "unknown": {"more": "x" * (size - 256), "numbers": [1, -2.5, 1e30, True, None]},
    }
    async with (
        upstream_of(results) as (other_loop, url),
        running_proxy(tmp_path / "policies", policies_for(url)) as proxy,
    ):
        raw = json.dumps(body).encode()
        assert (await other_loop.send(f"{proxy.url}/v1/chat/completions", raw)).status == 200

    [sent_data] = results
    assert sent_data == orjson.dumps({**body, "model": "gpt-4o-mini"})


async def test_large_call_is_estimated_quickly(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    """The estimate runs on the event loop and must not normalize many names again."""
    upstream.answer_with(hang())
    body = {
        **{"model": "support-chat", "messages": [{"role": "user", "content": "Hi"}]},
        **{"max_tokens": 7, "reasoning_effort": "low", "inference_timeout": 1},
        **{f"{'ẍ' * 50}{number}": 1 for number in range(5_000)},
    }
    async with running_proxy(tmp_path / "policies", policies_for(upstream.url)) as proxy:
        assert (await proxy.send("/v1/chat/completions", body)).status == 408
        [record] = await proxy.sink.wait()

    hidden: list[HiddenOutput] = []
    assert lines(lambda: hidden.extend(map(record.hidden_output, record.attempts))) < 500
    assert [(output.responses, output.max_tokens) for output in hidden] == [(1, 7)]
    assert [bill.usage.tokens.output for bill in record.billing.bills] == [7]


EMAIL = "jane@example.com"
LINE = "The river rüns through the town, and on 12 market days 4 people cross it, key-12 a@b. "
PROMPT = [{"role": "user", "content": f"{LINE * 2000} Write to {EMAIL}."}]
ADDRESSES = [f"é@{n % 1000:03d}{'.' if n % 4 else ','}de" for n in range(12_000)]
PARTS = [{"type": "text", "text": text} for text in [*ADDRESSES, *("é@a,de",) * 8_000]]
ATTACK = [{"role": "user", "content": PARTS}]


def policies(upstream: str, on_error: str) -> str:
    digests = {key: hashlib.sha256(f"hr-{key}".encode()).hexdigest() for key in ("large", "small")}
    keys = ", ".join(
        f"{key}: {{sha256: {digest}, deployments: [{key}]}}" for key, digest in digests.items()
    )
    deadlines = {"large": "60s", "small": "300ms"}
    rules = {
        key: f"[{{guard: pii, action: mask, deadline: {deadline}, on_error: {on_error}}}]"
        for key, deadline in deadlines.items()
    }
    return f"""
upstreams: {{u: {{dialect: openai, base_url: '{upstream}/v1'}}}}
keys: {{{keys}}}
deployments:
  large: {{targets: [{{upstream: u, model: large}}], policy: large}}
  small: {{targets: [{{upstream: u, model: small}}], policy: small}}
policies:
  large: {{match: all, input: {rules["large"]}}}
  small: {{match: all, input: {rules["small"]}}}
"""


@pytest.mark.parametrize("on_error", ["closed", "open"])
async def test_guards_stay_enabled_under_load(
    on_error: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    """Two bodies of 20,000 parts occupy the guard threads for many deadlines."""
    upstream.answer_with(answer(chat()))

    async with (
        running_proxy(tmp_path / "policies", policies(upstream.url, on_error)) as proxy,
        asyncio.TaskGroup() as group,
    ):

        async def ask(key: str, messages: object) -> int:
            headers = {"authorization": f"Bearer hr-{key}"}
            return (await proxy.chat(headers, model=key, messages=messages)).status

        await ask("large", PROMPT)  # load the guard's data
        attacks = [group.create_task(ask("large", ATTACK)) for _ in range(2)]
        statuses = [await ask("small", PROMPT) for _ in range(4)]
        assert {await attack for attack in attacks} == {200}

    sent_items = [
        json.dumps(request.json)
        for request in upstream.requests
        if request.json["model"] == "small"
    ]
    assert statuses == [200] * 4
    assert len(sent_items) == 4
    assert not [body for body in sent_items if EMAIL in body]


OTHER_KEY = {"authorization": "Bearer hr-search-key"}
BODY = {"model": "search-answers", **MESSAGES}
STREAMS = 80
MOST_S = 0.5  # 1.3 s and more if each stream ran in each loop iteration
FLOODS = {
    "words": b"".join(map(event, chat_events(*["word "] * 2000)[1:-2])),
    "events that say nothing": event({"choices": []}) * 2000,
    "comments": b": still here\n\n" * 4000,
}


async def flooded(url: str) -> None:
    request = {"model": "support-chat", **MESSAGES, "stream": True}
    async with (
        ClientSession(headers=BEARER) as client,
        client.post(f"{url}/v1/chat/completions", json=request) as response,
    ):
        async for _ in response.content.iter_any():
            pass


@pytest.mark.parametrize("kind", FLOODS)
async def test_streams_of_one_key_delay_no_other_key(kind: str, tmp_path: Path) -> None:
    streaming, all_stream = 0, threading.Event()

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        nonlocal streaming
        if not request.json.get("stream"):
            await answer(chat())(request, wire)
            return
        streaming += 1
        if streaming == STREAMS:
            all_stream.set()
        await wire.send(head(200, "text/event-stream", "connection: close"))
        while not request.closed.is_set():
            await wire.send(FLOODS[kind])

    took: list[float] = []
    async with (
        upstream_on_own_loop(script) as (other_loop, url),
        running_proxy(tmp_path / "policies", policies_for(url)) as proxy,
    ):
        reading = [
            asyncio.ensure_future(other_loop.run(flooded(proxy.url))) for _ in range(STREAMS)
        ]
        try:
            assert await asyncio.to_thread(all_stream.wait, PATIENCE_S)
            while not took or (took[-1] >= MOST_S and len(took) < TRIES):
                started_at = time.thread_time()
                reply = await other_loop.send(f"{proxy.url}/v1/chat/completions", BODY, OTHER_KEY)
                assert reply.status == 200
                took.append(time.thread_time() - started_at)
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

    assert took[-1] < MOST_S, took
