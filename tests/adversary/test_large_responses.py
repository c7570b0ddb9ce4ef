"""Large responses never hold the event loop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.call.summary import summarize
from proxy.ledger.audit import audit
from proxy.settings import LedgerLocation
from tests.adversary.loops import LAG_S, Lag, Loop, upstream_on_own_loop
from tests.adversary.test_large_bodies import TRIES
from tests.conftest import Proxy, Reply, policies_for, running_proxy
from tests.doubles import Json, ReceivedRequest, Wire, chat, event, head, legacy, usage
from tests.ledger.records import stored_rows
from tests.test_pipeline import BEARER, ENKRYPT, PORTKEY

MOST_S = LAG_S / 2
VALUES = 40_000
MIB = 1024 * 1024
POLICY = """
policies:
  default:
    match: all
    input: [{guard: pii, entities: [email], action: mask, restore: true}]
    output:
      - {guard: keywords, words: [zqforbidden], action: flag, on_error: open, deadline: 300ms}
      - {guard: secrets, action: mask, on_error: open, deadline: 300ms}
    cache: {ttl: 1h, max_bytes: 64MiB}
    capture: {share: 100%, fields: [input, output]}
"""


def choice(message: Json, **options: Any) -> Json:
    full_value = {"role": "assistant", "content": "Hi", **message}
    return {"index": 0, "message": full_value, "finish_reason": "stop", **options}


def call_message(count: int, arguments: str = '{"a": 1}') -> Json:
    function = {"name": "f", "arguments": arguments}
    calls = [{"index": n, "id": "c", "function": function} for n in range(count)]
    return {"content": None, "tool_calls": calls}


def spelled(tokens: int) -> Json:
    other_values = [{"token": f"t{n}", "logprob": -1.5, "bytes": [97, 98]} for n in range(20)]
    item = {"token": "abc", "logprob": -0.125, "bytes": [97, 98, 99], "top_logprobs": other_values}
    return {"content": [item] * tokens}


def named_members(count: int, value: Any) -> Json:
    return {f"n{number}": value for number in range(count)}


def hooks(count: int) -> Json:
    return {"before_request_hooks": [{"id": f"h{n}", "verdict": False} for n in range(count)]}


def detections(count: int) -> Json:
    return {
        "input_guardrails": {
            "summary": named_members(count, 1),
            "details": named_members(count, {}),
        }
    }


def shapes() -> Iterator[tuple[str, Json]]:
    """Return responses that are each large in one way, mostly by number of values."""
    yield "values", chat(x=[{}] * VALUES)
    yield "texts", chat(x=["ab cd\n"] * VALUES)
    yield "numbers", chat(x=[1.5] * VALUES)
    yield "names", chat(x=named_members(VALUES, 1))
    yield "usage", chat(usage={**usage(), **named_members(VALUES, 1)})
    yield "choices", chat(choices=[{**choice({}), "index": n} for n in range(VALUES // 8)])
    yield "calls", chat(choices=[choice(call_message(VALUES // 8))])
    yield "arguments", chat(choices=[choice(call_message(1, json.dumps(["x y"] * VALUES)))])
    yield "logprobs", chat(choices=[choice({}, logprobs=spelled(5 * VALUES // 130))])
    yield "hooks", chat(hook_results=hooks(VALUES // 4))
    yield "detections", chat(enkrypt_policy_detections=detections(VALUES // 3))
    yield "a long id", chat(id="x y" * MIB, model="z")
    yield "a text", chat("abcdefg " * (7 * MIB // 8))
    yield "a text of line ends", chat("\n" * (3 * MIB))
    yield "a text of many scripts", chat("aaa漢😀" * (3 * MIB // 10))


def as_event(document: Json) -> Json:
    choices = [
        {("delta" if name == "message" else name): value for name, value in item.items()}
        for item in document["choices"]
    ]
    return {**document, "object": "chat.completion.chunk", "choices": choices}


def whole_script(document: Any) -> list[bytes]:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return [head(200, "application/json", f"content-length: {len(data)}"), data]


def streamed(*events: Any) -> list[bytes]:
    data = b"".join(map(event, (*events, b"[DONE]")))
    return [head(200, "text/event-stream", f"content-length: {len(data)}"), data]


@dataclass
class LoopTest:
    """A proxy whose upstream and client run on another loop. ``answers`` is streamed."""

    proxy: Proxy
    other_loop: Loop
    pieces: list[bytes]
    ledger: Path
    reply: Reply = field(init=False)
    """What ``measure`` was answered last."""

    async def post(self, path: str, body: Json, headers: Mapping[str, str] = BEARER) -> Reply:
        return await self.other_loop.send(self.proxy.url + path, body, headers)

    async def measure(self, path: str, body: Json, **how: Any) -> tuple[float, set[int], Any]:
        """Send a body until it does not hold the loop; return for how many seconds it was held at
        the least, every status, and the last record. No body is sent twice: it may be kept."""
        minimum, statuses, record = inf, set[int](), None
        for number in range(16, 16 + TRIES):
            sent_body = body if "input" in body else {**body, "max_tokens": number}
            with Lag() as lag:
                self.reply = await self.post(path, sent_body, **how)
                statuses.add(self.reply.status)
                [record] = await self.proxy.sink.wait()
            minimum = min(minimum, lag.worst)
            self.proxy.sink.forget()
            if minimum <= MOST_S:
                break
        return minimum, statuses, record

    async def measure_cached(self, path: str, body: Json) -> tuple[float, set[str]]:
        """Repeat one body until it does not block the loop. Return lag and cache statuses."""
        minimum, results = inf, set()
        for _ in range(TRIES):
            self.proxy.sink.forget()
            with Lag() as lag:
                status = (await self.post(path, body)).status
                [record] = await self.proxy.sink.wait()
            minimum = min(minimum, lag.worst)
            assert (status, record.is_internal_error) == (200, False)
            results.add(record.cache)
            if minimum <= MOST_S:
                break
        self.proxy.sink.forget()
        return minimum, results


@asynccontextmanager
async def world_of(
    folder: Path, policies: str = POLICY, **settings: Any
) -> AsyncIterator[LoopTest]:
    sent_items: list[bytes] = []

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(*sent_items)

    ledger = folder / "ledger.db"
    async with (
        upstream_on_own_loop(script) as (other_loop, url),
        running_proxy(
            folder / "policies",
            policies_for(url) + policies,
            ledger=LedgerLocation("sqlite", ledger),
            **settings,
        ) as proxy,
    ):
        yield LoopTest(proxy, other_loop, sent_items, ledger)


CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hi, a@b.example"}]
WAYS: dict[str, tuple[str, Json]] = {
    "whole": (CHAT, {"model": "support-chat", "messages": MESSAGES}),
    "stream": (CHAT, {"model": "support-chat", "messages": MESSAGES, "stream": True}),
    "made a stream": (CHAT, {"model": "support-chat", "messages": MESSAGES, "stream": True}),
    "turned": ("/v1/completions", {"model": "search-answers", "prompt": "Hi, a@b.example"}),
    "turned stream": ("/v1/completions",
        {"model": "search-answers", "prompt": "Hi, a@b.example", "stream": True}),
}  # fmt: skip


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("way", WAYS)
async def test_large_response_does_not_block_the_loop(way: str, tmp_path: Path) -> None:
    path, body = WAYS[way]
    async with world_of(tmp_path) as place:
        for name, document in shapes():
            events = way.endswith("stream") and not way.startswith("made")
            place.pieces[:] = streamed(as_event(document)) if events else whole_script(document)

            pending, statuses, record = await place.measure(path, body)

            assert statuses == {200}, name
            assert (record.outcome, record.is_internal_error) == ("success", False), name
            assert pending <= MOST_S, name


CLIENTS: dict[str, tuple[str, dict[str, str], Json]] = {
    "portkey": (CHAT, PORTKEY, {"messages": MESSAGES}),
    "enkrypt": ("/ai-proxy/chat/completions", ENKRYPT, {"messages": MESSAGES}),
    "multimodel": ("/v1/completion", BEARER, {"prompt": "Hi"}),
    "fireworks": ("/inference/v1/completions", BEARER, {"prompt": "Hi"}),
}


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("client", CLIENTS)
async def test_large_response_of_other_dialects_does_not_block(client: str, tmp_path: Path) -> None:
    path, headers, fields = CLIENTS[client]
    model = ["third", "second"] if client == "multimodel" else "search-answers"
    async with world_of(tmp_path) as place:
        for name, document in shapes():
            if name not in ("names", "choices", "hooks", "detections", "a text of line ends"):
                continue
            place.pieces[:] = whole_script(document)

            pending, statuses, record = await place.measure(
                path, {"model": model, **fields}, headers=headers
            )

            # A model call of legacy text may have no choices.
            assert statuses <= {200, 246, 502}, name
            assert not record.is_internal_error, name
            assert pending <= MOST_S, name


@pytest.mark.usefixtures("collected")
async def test_large_cached_response_does_not_block_the_loop(tmp_path: Path) -> None:
    path, body = WAYS["whole"]
    async with world_of(tmp_path) as place:
        never = ("calls", "arguments", "hooks", "detections")
        kinds = [shape for shape in shapes() if shape[0] not in never]
        for number, (name, document) in enumerate(kinds):
            came_streamed = number % 2 == 1
            place.pieces[:] = (
                streamed(as_event(document)) if came_streamed else whole_script(document)
            )
            request = {**body, "stop": name, "stream": came_streamed}
            await place.post(path, request)
            await place.proxy.sink.wait()
            for stream in (False, True):
                pending, results = await place.measure_cached(path, {**request, "stream": stream})

                assert results == {"hit"}, name
                assert pending <= MOST_S, (name, came_streamed, stream)


@pytest.mark.usefixtures("collected")
async def test_many_events_at_once_do_not_block_the_loop(tmp_path: Path) -> None:
    path, body = WAYS["stream"]
    small = as_event(chat("Hi"))
    small["choices"][0]["finish_reason"] = None
    last_document = as_event(chat(""))
    bursts = {
        "words": [small] * 5000,
        "nothing": [{"choices": []}] * 20_000,
        "choices": [
            {**small, "choices": [{**last_document["choices"][0], "index": n}]} for n in range(3000)
        ],
    }
    async with world_of(tmp_path) as place:
        for name, events in bursts.items():
            place.pieces[:] = streamed(*events, last_document)

            pending, statuses, record = await place.measure(path, body)

            assert statuses == {200}, name
            assert (record.outcome, record.is_internal_error) == ("success", False), name
            assert pending <= MOST_S, name


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("client", ["openai", "portkey"])
async def test_largest_embeddings_pass(client: str, tmp_path: Path) -> None:
    """2,048 vectors of 3,072 numbers, which a guard rewrites for Portkey clients."""
    numbers = b"[" + b",".join(b"-0.0%08d" % (n * 31) for n in range(3072)) + b"]"
    data = b'{"object":"embedding","index":7,"embedding":' + numbers + b"}"
    sent_data = b'{"object":"list","data":[' + b",".join([data] * 2048) + b"],"
    sent_data += orjson.dumps({"model": "m", "usage": {"prompt_tokens": 9, "total_tokens": 9}})[1:]
    headers = BEARER if client == "openai" else PORTKEY
    async with world_of(tmp_path) as place:
        place.pieces[:] = whole_script(sent_data)

        body = {"model": "gpt-4o-mini", "input": ["Hi"] * 2048}
        pending, statuses, record = await place.measure("/v1/embeddings", body, headers=headers)
        fields = (await place.post("/v1/embeddings", body, headers)).raw

    assert statuses == {200}
    assert record.billing.tokens.total == 9
    assert pending <= MOST_S
    assert fields == sent_data if client == "openai" else fields.startswith(sent_data[:-1])
    assert (b'"hook_results"' in fields) == (client == "portkey")


def deep(depth: int) -> Json:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return chat(x=value)


TOO_MUCH = {
    "values": (chat(x=[{}] * 500_000), "upstream_answer_too_large"),
    "values in log-probabilities": (chat(choices=[choice({}, logprobs=spelled(8000))]),
        "upstream_answer_too_large"),
    "bytes": (chat("x" * (65 * MIB)), "upstream_answer_too_large"),
    "depth": (deep(300), "upstream_invalid_response"),
    "depth of a large one": ({**deep(300), "y": "x" * MIB}, "upstream_invalid_response"),
}  # fmt: skip


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("way", WAYS)
async def test_oversized_response_is_a_recorded_error(way: str, tmp_path: Path) -> None:
    path, body = WAYS[way]
    async with world_of(tmp_path) as place:
        for name, (document, code) in TOO_MUCH.items():
            events = way.endswith("stream") and not way.startswith("made")
            place.pieces[:] = streamed(as_event(document)) if events else whole_script(document)

            pending, statuses, record = await place.measure(path, body)

            assert statuses == {502}, name
            assert place.reply.headers["x-headrace-error"] == place.reply.error["code"] == code, (
                name
            )
            [(attempt, fate, bill)] = summarize(record).attempts
            assert (attempt.error, record.outcome, record.is_internal_error) == (
                code,
                "upstream_error",
                False,
            )
            assert bill is not None
            assert bill.usage.source == "partial_estimate"
            assert bill.usage.tokens.input > 0
            assert (fate.use, fate.loss) == ("abandoned", "upstream_broke")
            assert pending <= MOST_S, name
    assert audit(place.ledger).violations == ()
    assert {row["error"] for row in stored_rows(place.ledger, "attempts")} == {
        code for _, code in TOO_MUCH.values()
    }


async def test_bounds_are_set_by_policy(tmp_path: Path) -> None:
    path, body = WAYS["whole"]
    async with world_of(tmp_path) as place:
        policies = place.proxy.policies / "policies.yaml"
        text = policies.read_text()
        bound = "{max_answer_values: 1000, max_answer_bytes: 10kB, dialect: openai,"
        policies.write_text(text.replace("{dialect: openai,", bound, 1))
        fresh = BEARER | {"x-headrace-refresh-cache": "true"}
        for document, status in (
            (chat(x=[1] * 900), 200),
            (chat(x=[1] * 1000), 502),
            (legacy("x" * 9000), 200),
            (legacy("x" * 10_000), 502),
        ):
            place.pieces[:] = whole_script(document)
            request = {**body, "max_tokens": len(str(document))}
            assert (await place.post(path, request, fresh)).status == status
