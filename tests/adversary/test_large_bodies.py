"""One body of 16 MiB, or of 100,000 values, keeps nobody else waiting: the event loop never works
on one for long, from the first byte to the last word of the log, in each dialect that is crossed.

The measure is the processor time of the loop's own thread between two beats of it. It is compared
with what a single call into C takes that writes such a body at once, as that is what the loop must
never wait for. To touch memory for the first time may take longer than all else on a machine that
is short of it, so that a call is sent again which held the loop: its own work is the same.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from io import BytesIO
from math import inf
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientSession

from proxy.money.estimate import HiddenOutput
from tests.adversary.loops import Lag, Loop, upstream_aside
from tests.conftest import Proxy, running_proxy, world
from tests.doubles import Asked, ScriptedUpstream, Wire, answer, chat, hang, legacy, response
from tests.guards.growth import lines
from tests.test_pipeline import BEARER

BYTES = 16 * 1024 * 1024 - 4096
VALUES = 99_000
FREE_S = 0.02  # what costs less is not worth a word
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
    """Run an upstream that answers in either form, and keeps bodies as they came."""

    async def script(request: Asked, wire: Wire) -> None:
        results.append(request.body)
        known_values: dict[str, Callable[..., Any]] = {
            **{"chat/completions": chat, "responses": response},
            "conversations": lambda: {"id": "conv_1", "object": "conversation"},
        }
        result = next(
            (make for end, make in known_values.items() if request.path.endswith(end)), legacy
        )
        await answer(result())(request, wire)

    return upstream_aside(script)


async def ask(url: str, body: bytes) -> int:
    headers = {**BEARER, "content-type": "application/json"}
    if url.endswith("/conversations"):
        headers["x-headrace-deployment"] = "responses-only"
    async with (
        ClientSession() as client,
        client.post(url, data=BytesIO(body), headers=headers) as response,
    ):
        await response.read()
        return response.status


@dataclass
class Tried:
    """A call sent until it did not hold the loop. ``held`` is the least lag beyond what is free."""

    bytes: int = 0
    statuses: set[int] = field(default_factory=set)
    held: float = inf


async def tries(proxy: Proxy, other_loop: Loop, path: str, body: dict[str, Any]) -> Tried:
    """Send a body, and again while it holds the loop; never twice the same, which may be kept."""
    tried = Tried()
    for count in range(TRIES):
        different = "turn" if path == "conversations" else "max_tokens"
        raw = orjson.dumps({**body, different: 16 + count})
        unit = max(at_once(), 3 * FREE_S)
        with Lag() as lag:
            tried.statuses.add(await other_loop.run(ask(f"{proxy.url}/v1/{path}", raw)))
            await proxy.sink.wait()
        proxy.sink.forget()
        tried.bytes = len(raw)
        tried.held = min(tried.held, lag.worst - max(unit / 2, FREE_S))
        if tried.held <= 0:
            break
    return tried


def bodies() -> Iterator[tuple[str, str, dict[str, Any]]]:
    user = {"role": "user"}
    for mark in TEXTS.values():
        yield "chat/completions", "support-chat", {"messages": [{**user, "content": long(mark)}]}
    for extra in SHAPES.values():
        messages = [{**user, "content": "Hi"}]
        yield "chat/completions", "support-chat", {"messages": messages, "unknown": extra}
    many = [{**user, "content": "Hi"}] * (VALUES // 3 - 9)
    yield "chat/completions", "legacy-only", {"messages": many}
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
async def test_nobody_waits_for_a_large_body(tmp_path: Path) -> None:
    results: list[bytes] = []
    async with (
        upstream_of(results) as (other_loop, url),
        running_proxy(tmp_path / "policies", world(url) + POLICY, id_secrets=(SECRET,)) as proxy,
    ):
        for path, model, body in bodies():
            results.clear()
            tried = await tries(proxy, other_loop, path, {"model": model, **body})

            name = f"{model}, {tried.bytes} bytes of {[*body]}"
            assert tried.statuses == {200}, name
            assert tried.held <= 0, name
            for sent_data in results:
                assert sent_data == orjson.dumps(orjson.loads(sent_data)), name


def guarded() -> Iterator[tuple[str, dict[str, Any]]]:
    data = base64.b64encode(b"hello wor" * (BYTES // 12)).decode()
    yield "data", {"messages": [{"role": "user", "content": f"data:text/plain;base64,{data}"}]}
    for name in ("small values", "small texts", "names"):
        messages = [{"role": "user", "content": "Hi"}]
        yield name, {"messages": messages, "unknown": SHAPES[name]}


@pytest.mark.usefixtures("collected")
async def test_nobody_waits_while_guards_gather_what_they_look_at(tmp_path: Path) -> None:
    policy = POLICY + "    input: [{guard: keywords, words: [unfindable], action: mask}]\n"
    async with (
        upstream_of([]) as (other_loop, url),
        running_proxy(tmp_path / "policies", world(url) + policy) as proxy,
    ):
        for name, body in guarded():
            sent_value = {"model": "support-chat", **body}
            tried = await tries(proxy, other_loop, "chat/completions", sent_value)

            assert tried.statuses <= {200, 503}, name  # a guard looks no longer than its deadline
            assert tried.held <= 0, name


@pytest.mark.parametrize("size", [64 * 1024, 64 * 1024 + 64])
async def test_what_is_sent_is_the_same_whatever_the_size(size: int, tmp_path: Path) -> None:
    results: list[bytes] = []
    body = {
        "model": "support-chat",
        "messages": [{"role": "user", "content": 'aé漢😀\n\x01"'}],
        "unknown": {"more": "x" * (size - 256), "numbers": [1, -2.5, 1e30, True, None]},
    }
    async with (
        upstream_of(results) as (other_loop, url),
        running_proxy(tmp_path / "policies", world(url)) as proxy,
    ):
        raw = json.dumps(body).encode()
        assert await other_loop.run(ask(f"{proxy.url}/v1/chat/completions", raw)) == 200

    [sent_data] = results
    assert sent_data == orjson.dumps({**body, "model": "gpt-4o-mini"})


async def test_estimates_large_call_in_time(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    """It is asked for on the event loop, where a body of many names would be folded anew."""
    upstream.answer_with(hang())
    body = {
        **{"model": "support-chat", "messages": [{"role": "user", "content": "Hi"}]},
        **{"max_tokens": 7, "reasoning_effort": "low", "inference_timeout": 1},
        **{f"{'ẍ' * 50}{number}": 1 for number in range(5_000)},
    }
    async with running_proxy(tmp_path / "policies", world(upstream.url)) as proxy:
        raw = json.dumps(body).encode()
        assert await ask(f"{proxy.url}/v1/chat/completions", raw) == 408
        [record] = await proxy.sink.wait()

    hidden: list[HiddenOutput] = []
    assert lines(lambda: hidden.extend(map(record.hidden_output, record.attempts))) < 500
    assert [(output.answers, output.most) for output in hidden] == [(1, 7)]
    assert [bill.usage.tokens.output for bill in record.billing.bills] == [7]
