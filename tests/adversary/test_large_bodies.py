"""Searches for bodies, guards, streams and pages of one key that delay the calls of another key."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.money.estimate import HiddenOutput
from tests.adversary.event_loops import (
    LAG_S,
    TRIES,
    LoopLag,
    MeasuredProxy,
    Measurement,
    measured_proxy,
)
from tests.conftest import policies_for, running_proxy
from tests.console.test_pages import get_call
from tests.doubles import (
    PATIENCE_S,
    Json,
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    Wire,
    chat,
    chat_events,
    event,
    hang,
    head,
    legacy_completion,
    respond,
    response,
)
from tests.guards.calls import ask, guarded
from tests.guards.growth import lines
from tests.test_pipeline import BEARER, MESSAGES

BODY_BYTES = 16 * 1024 * 1024 - 4096
VALUES = 99_000
MIN_LAG_S = 0.03  # shorter blocking is not reported
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


def fill(text: str) -> str:
    """Repeat a text until it fills a body."""
    return text * (BODY_BYTES // (len(json.dumps(text, ensure_ascii=False).encode()) - 2))


TEXTS = {"letters": "abcdefg ", "line ends": "\n", "many scripts": "aaa漢😀"}
VALUES_BY_KIND: dict[str, Any] = {
    "small values": {"a": [{}] * VALUES},
    "small texts": {"a": ["ab cd\n"] * VALUES},
    "names": {f"n{number}": 1 for number in range(VALUES)},
    "texts of 64 KiB": {f"k{number}": "ab\n " * 16_000 for number in range(190)},
}
RESPONSES: dict[str, Callable[[], Json]] = {
    "chat/completions": chat,
    "responses": response,
    "conversations": lambda: {"id": "conv_1", "object": "conversation"},
}


def respond_by_path(measured: MeasuredProxy) -> Script:
    """Respond in the API of the request, and record its body."""

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        measured.requests.append(request.body)
        ends = [end for end in RESPONSES if request.path.endswith(end)]
        await respond(RESPONSES[ends[0]]() if ends else legacy_completion())(request, wire)

    return script


def measure_serialization() -> float:
    """Return half the time that a serialization of the largest body takes, in seconds."""
    text = fill("\n")
    started_at = time.thread_time()
    orjson.dumps(text)
    return max((time.thread_time() - started_at) / 2, MIN_LAG_S)


async def measure_body(measured: MeasuredProxy, path: str, body: Json) -> Measurement:
    """Send a body. The loop may be held half as long as a serialization of it takes."""
    before_s = measure_serialization()
    headers = BEARER | ({"x-headrace-deployment": body["model"]} if "items" in body else {})
    counter = "turn" if path == "conversations" else "max_tokens"
    url = f"/v1/{path}"
    result = await measured.measure(url, body, headers, allowed_s=before_s, counter=counter)
    allowed_s = max(before_s, measure_serialization())  # other programs slow both down
    assert result.lag_s <= allowed_s, f"{body['model']}, {[*body]}"
    return result


def iter_large_bodies() -> Iterator[tuple[str, Json]]:
    hello = {"role": "user", "content": "Hi"}
    for text in TEXTS.values():
        yield "chat/completions", {"messages": [{**hello, "content": fill(text)}]}
    for values in VALUES_BY_KIND.values():
        yield "chat/completions", {"messages": [hello], "unknown": values}
    for messages in (
        [hello] * (VALUES // 3 - 9),
        [{**hello, "content": fill(TEXTS["many scripts"])}],
    ):
        yield "chat/completions", {"model": "legacy-only", "messages": messages}
    tool = {"name": "find", "input_schema": VALUES_BY_KIND["names"]}
    yield "messages/count_tokens", {"messages": [hello], "tools": [tool]}
    sealed = "msg_" + "A" * 1000
    items = [{"type": "message", **hello, "id": f"{sealed}{n:04}"} for n in range(4096)]
    yield "responses", {"input": items}
    yield "conversations", {"model": "responses-only", "items": items}
    for dialect in ("fireworks", "scale", "multimodel", "enkrypt", "portkey"):
        yield "completions", {"model": f"via-{dialect}", "prompt": fill("\n")}


@pytest.mark.usefixtures("collected")
async def test_large_body_does_not_block_the_loop(tmp_path: Path) -> None:
    secrets = {"id_secrets": ("a secret of replicas",)}
    async with measured_proxy(tmp_path, POLICY, respond_by_path, **secrets) as measured:
        for path, body in iter_large_bodies():
            measured.requests.clear()
            result = await measure_body(measured, path, {"model": "support-chat", **body})

            assert result.statuses == {200}, path
            for raw in measured.requests:
                assert raw == orjson.dumps(orjson.loads(raw)), path


@pytest.mark.usefixtures("collected")
async def test_guards_of_large_bodies_do_not_block_the_loop(tmp_path: Path) -> None:
    data = base64.b64encode(b"hello wor" * (BODY_BYTES // 12)).decode()
    bodies = [{"messages": [{"role": "user", "content": f"data:text/plain;base64,{data}"}]}]
    kinds = ("small values", "small texts", "names")
    bodies += [{**MESSAGES, "unknown": VALUES_BY_KIND[kind]} for kind in kinds]
    policy = POLICY + "    input: [{guard: keywords, words: [unfindable], action: mask}]\n"
    async with measured_proxy(tmp_path, policy, respond_by_path) as measured:
        for body in bodies:
            call = {"model": "support-chat", **body}
            result = await measure_body(measured, "chat/completions", call)

            assert result.statuses <= {200, 503}  # a guard may exceed its deadline


@pytest.mark.parametrize("size", [64 * 1024, 64 * 1024 + 64])
async def test_large_body_is_sent_unchanged(size: int, tmp_path: Path) -> None:
    body = {
        "model": "support-chat",
        "messages": [{"role": "user", "content": 'aé漢😀\n\x01"'}],
        "unknown": {"more": "x" * (size - 256), "numbers": [1, -2.5, 1e30, True, None]},
    }
    async with measured_proxy(tmp_path, "", respond_by_path) as measured:
        reply = await measured.send("/v1/chat/completions", body)

    assert reply.status == 200
    assert measured.requests == [orjson.dumps({**body, "model": "gpt-4o-mini"})]


async def test_large_call_is_estimated_quickly(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    """The estimate runs on the event loop and must not normalize many names again."""
    upstream.answer_with(hang())
    names = {f"{'ẍ' * 50}{number}": 1 for number in range(5_000)}
    body: Json = {"max_tokens": 7, "reasoning_effort": "low", "inference_timeout": 1, **names}
    async with running_proxy(tmp_path / "policies", policies_for(upstream.url)) as proxy:
        assert (await proxy.chat(model="support-chat", **body)).status == 408
        [record] = await proxy.sink.wait()

    hidden: list[HiddenOutput] = []
    assert lines(lambda: hidden.extend(map(record.hidden_output, record.attempts))) < 500
    assert [(output.responses, output.max_tokens) for output in hidden] == [(1, 7)]
    assert [bill.usage.tokens.output for bill in record.billing.bills] == [7]


async def test_redacting_captured_texts_leaves_the_event_loop_free(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(chat("+1 555-0199 " * 8000)))
    capture = "capture: {share: 100%, max_chars: 100000}"
    async with guarded(tmp_path, upstream, capture) as proxy:
        assert (await ask(proxy, "Hi")).status == 200
        await proxy.sink.wait()
        with LoopLag() as lag:
            call = await get_call(proxy, 1)

    assert call["captured"]["response"][0]["text"]
    assert lag.worst_s < LAG_S


EMAIL = "jane@example.com"
LINE = "The river rüns through the town, and on 12 market days 4 people cross it, key-12 a@b. "
PROMPT = [{"role": "user", "content": f"{LINE * 2000} Write to {EMAIL}."}]
ADDRESSES = [f"é@{n % 1000:03d}{'.' if n % 4 else ','}de" for n in range(12_000)]
PARTS = [{"type": "text", "text": text} for text in [*ADDRESSES, *("é@a,de",) * 8_000]]
ATTACK = [{"role": "user", "content": PARTS}]


def build_policies(upstream: str, on_error: str) -> str:
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
    upstream.answer_with(respond(chat()))

    async with (
        running_proxy(tmp_path / "policies", build_policies(upstream.url, on_error)) as proxy,
        asyncio.TaskGroup() as group,
    ):

        async def send(key: str, messages: object) -> int:
            headers = {"authorization": f"Bearer hr-{key}"}
            return (await proxy.chat(headers, model=key, messages=messages)).status

        await send("large", PROMPT)  # load the guard's data
        attacks = [group.create_task(send("large", ATTACK)) for _ in range(2)]
        statuses = [await send("small", PROMPT) for _ in range(4)]
        assert {await attack for attack in attacks} == {200}

    sent_items = [
        json.dumps(request.json)
        for request in upstream.requests
        if request.json["model"] == "small"
    ]
    assert statuses == [200] * 4
    assert len(sent_items) == 4
    assert not [body for body in sent_items if EMAIL in body]


STREAMS = 80
MAX_WAIT_S = 0.5  # 1.3 s and more if each stream ran in each loop iteration
FLOODS = {
    "words": b"".join(map(event, chat_events(*["word "] * 2000)[1:-2])),
    "events without text": event({"choices": []}) * 2000,
    "comments": b": still here\n\n" * 4000,
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_streams_of_one_key_delay_no_other_key(kind: str, tmp_path: Path) -> None:
    streaming, all_stream = 0, threading.Event()

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        nonlocal streaming
        if not request.json.get("stream"):
            await respond(chat())(request, wire)
            return
        streaming += 1
        if streaming == STREAMS:
            all_stream.set()
        await wire.send(head(200, "text/event-stream", "connection: close"))
        while not request.closed.is_set():
            await wire.send(FLOODS[kind])

    path, waits_s = "/v1/chat/completions", list[float]()
    flood = {"model": "support-chat", **MESSAGES, "stream": True}
    async with measured_proxy(tmp_path, "", lambda _: script) as measured:
        floods = [asyncio.ensure_future(measured.send(path, flood)) for _ in range(STREAMS)]
        try:
            assert await asyncio.to_thread(all_stream.wait, PATIENCE_S)
            while not waits_s or (waits_s[-1] >= MAX_WAIT_S and len(waits_s) < TRIES):
                started_at = time.thread_time()
                other_key = {"authorization": "Bearer hr-search-key"}
                body = {"model": "search-answers", **MESSAGES}
                assert (await measured.send(path, body, other_key)).status == 200
                waits_s.append(time.thread_time() - started_at)
        finally:
            for task in floods:
                task.cancel()
            await asyncio.gather(*floods, return_exceptions=True)

    assert waits_s[-1] < MAX_WAIT_S, waits_s
