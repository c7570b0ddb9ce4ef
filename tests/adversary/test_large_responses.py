"""Searches for large responses that hold the event loop, and for a bound that none enforces.

Each response is large in one way, mostly by its number of values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.call.summary import summarize
from proxy.ledger.audit import audit
from proxy.settings import LedgerLocation
from tests.adversary.event_loops import (
    LAG_S,
    MeasuredProxy,
    Measurement,
    measured_proxy,
    stream_bytes,
    whole_bytes,
)
from tests.doubles import Json, chat, legacy_completion, usage
from tests.ledger.records import stored_rows
from tests.test_pipeline import BEARER, ENKRYPT, PORTKEY

MAX_LAG_S = LAG_S / 2
LOGPROBS_LAG_S = 0.3
"""Log probabilities of 1.7 MB are read in one step, twice if the policy captures texts."""
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


def choice(message: Json, **members: Any) -> Json:
    message = {"role": "assistant", "content": "Hi", **message}
    return {"index": 0, "message": message, "finish_reason": "stop", **members}


def call_message(count: int, arguments: str = '{"a": 1}') -> Json:
    function = {"name": "f", "arguments": arguments}
    calls = [{"index": n, "id": "c", "function": function} for n in range(count)]
    return {"content": None, "tool_calls": calls}


def logprobs(tokens: int) -> Json:
    others = [{"token": f"t{n}", "logprob": -1.5, "bytes": [97, 98]} for n in range(20)]
    item = {"token": "abc", "logprob": -0.125, "bytes": [97, 98, 99], "top_logprobs": others}
    return {"content": [item] * tokens}


def members(count: int, value: Any) -> Json:
    return {f"n{number}": value for number in range(count)}


def iter_large_responses() -> Iterator[tuple[str, Json]]:
    hooks = [{"id": f"h{n}", "verdict": False} for n in range(VALUES // 4)]
    count = VALUES // 3
    detections = {"summary": members(count, 1), "details": members(count, {})}
    yield "values", chat(x=[{}] * VALUES)
    yield "texts", chat(x=["ab cd\n"] * VALUES)
    yield "numbers", chat(x=[1.5] * VALUES)
    yield "names", chat(x=members(VALUES, 1))
    yield "usage", chat(usage={**usage(), **members(VALUES, 1)})
    yield "choices", chat(choices=[{**choice({}), "index": n} for n in range(VALUES // 8)])
    yield "calls", chat(choices=[choice(call_message(VALUES // 8))])
    yield "arguments", chat(choices=[choice(call_message(1, json.dumps(["x y"] * VALUES)))])
    yield "logprobs", chat(choices=[choice({}, logprobs=logprobs(5 * VALUES // 130))])
    yield "hooks", chat(hook_results={"before_request_hooks": hooks})
    yield "detections", chat(enkrypt_policy_detections={"input_guardrails": detections})
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


CHAT = "/v1/chat/completions"
MESSAGES = {"messages": [{"role": "user", "content": "Hi, a@b.example"}]}
PROMPT = {"prompt": "Hi, a@b.example"}
CALLS: dict[str, tuple[str, Json, bool]] = {
    "whole": (CHAT, {"model": "support-chat", **MESSAGES}, False),
    "streamed": (CHAT, {"model": "support-chat", **MESSAGES, "stream": True}, True),
    "streamed by the proxy": (CHAT, {"model": "support-chat", **MESSAGES, "stream": True}, False),
    "translated": ("/v1/completions", {"model": "search-answers", **PROMPT}, False),
    "translated stream": (
        "/v1/completions",
        {"model": "search-answers", **PROMPT, "stream": True},
        True,
    ),
}
"""The path and the body of a call, and whether its upstream streams."""


async def measure_call(measured: MeasuredProxy, call: str, document: Json) -> Measurement:
    path, body, is_stream = CALLS[call]
    measured.response = stream_bytes(as_event(document)) if is_stream else whole_bytes(document)
    return await measured.measure(path, body)


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("call", CALLS)
async def test_large_response_does_not_block_the_loop(call: str, tmp_path: Path) -> None:
    async with measured_proxy(tmp_path, POLICY) as measured:
        for name, document in iter_large_responses():
            result = await measure_call(measured, call, document)

            assert result.statuses == {200}, name
            assert (result.record.outcome, result.record.is_internal_error) == ("success", False)
            assert result.lag_s <= (LOGPROBS_LAG_S if name == "logprobs" else MAX_LAG_S), name


CLIENTS: dict[str, tuple[str, dict[str, str], Json]] = {
    "portkey": (CHAT, PORTKEY, MESSAGES),
    "enkrypt": ("/ai-proxy/chat/completions", ENKRYPT, MESSAGES),
    "multimodel": ("/v1/completion", BEARER, {"prompt": "Hi"}),
    "fireworks": ("/inference/v1/completions", BEARER, {"prompt": "Hi"}),
}


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("client", CLIENTS)
async def test_large_response_of_other_dialects_does_not_block(client: str, tmp_path: Path) -> None:
    path, headers, fields = CLIENTS[client]
    model = ["third", "second"] if client == "multimodel" else "search-answers"
    names = ("names", "choices", "hooks", "detections", "a text of line ends")
    async with measured_proxy(tmp_path, POLICY) as measured:
        for name, document in iter_large_responses():
            if name not in names:
                continue
            measured.response = whole_bytes(document)
            result = await measured.measure(path, {"model": model, **fields}, headers)

            # A model call of legacy text may have no choices.
            assert result.statuses <= {200, 246, 502}, name
            assert not result.record.is_internal_error, name
            assert result.lag_s <= MAX_LAG_S, name


@pytest.mark.usefixtures("collected")
async def test_large_cached_response_does_not_block_the_loop(tmp_path: Path) -> None:
    path, body, _ = CALLS["whole"]
    never_cached = ("calls", "arguments", "hooks", "detections")
    responses = [item for item in iter_large_responses() if item[0] not in never_cached]
    async with measured_proxy(tmp_path, POLICY) as measured:
        for number, (name, document) in enumerate(responses):
            is_stream = number % 2 == 1
            event = as_event(document)
            measured.response = stream_bytes(event) if is_stream else whole_bytes(document)
            request = {**body, "stop": name}
            await measured.measure(path, {**request, "stream": is_stream}, counter="")
            for stream in (False, True):
                result = await measured.measure(path, {**request, "stream": stream}, counter="")

                assert (result.record.cache, result.statuses) == ("hit", {200}), name
                assert not result.record.is_internal_error
                assert result.lag_s <= MAX_LAG_S, (name, is_stream, stream)


@pytest.mark.usefixtures("collected")
async def test_many_events_at_once_do_not_block_the_loop(tmp_path: Path) -> None:
    path, body, _ = CALLS["streamed"]
    small, last_event = as_event(chat("Hi")), as_event(chat(""))
    small["choices"][0]["finish_reason"] = None
    last_choice = last_event["choices"][0]
    bursts = {
        "words": [small] * 5000,
        "events without text": [{"choices": []}] * 20_000,
        "choices": [{**small, "choices": [{**last_choice, "index": n}]} for n in range(3000)],
    }
    async with measured_proxy(tmp_path, POLICY) as measured:
        for name, events in bursts.items():
            measured.response = stream_bytes(*events, last_event)
            result = await measured.measure(path, body)

            assert result.statuses == {200}, name
            assert (result.record.outcome, result.record.is_internal_error) == ("success", False)
            assert result.lag_s <= (LOGPROBS_LAG_S if name == "logprobs" else MAX_LAG_S), name


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("client", ["openai", "portkey"])
async def test_largest_embeddings_pass(client: str, tmp_path: Path) -> None:
    """2,048 vectors of 3,072 numbers, which a guard rewrites for Portkey clients."""
    numbers = b"[" + b",".join(b"-0.0%08d" % (n * 31) for n in range(3072)) + b"]"
    vector = b'{"object":"embedding","index":7,"embedding":' + numbers + b"}"
    raw = b'{"object":"list","data":[' + b",".join([vector] * 2048) + b"],"
    raw += orjson.dumps({"model": "m", "usage": {"prompt_tokens": 9, "total_tokens": 9}})[1:]
    headers = BEARER if client == "openai" else PORTKEY
    body = {"model": "gpt-4o-mini", "input": ["Hi"] * 2048}
    async with measured_proxy(tmp_path, POLICY) as measured:
        measured.response = whole_bytes(raw)
        result = await measured.measure("/v1/embeddings", body, headers, counter="")

    assert result.statuses == {200}
    assert result.record.billing.tokens.total == 9
    assert result.lag_s <= MAX_LAG_S
    reply = result.reply.raw
    assert reply == raw if client == "openai" else reply.startswith(raw[:-1])
    assert (b'"hook_results"' in reply) == (client == "portkey")


def nest(depth: int) -> Json:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return chat(x=value)


EXCESSIVE = {
    "values": (chat(x=[{}] * 500_000), "upstream_answer_too_large"),
    "values in log-probabilities": (
        chat(choices=[choice({}, logprobs=logprobs(8000))]),
        "upstream_answer_too_large",
    ),
    "bytes": (chat("x" * (65 * MIB)), "upstream_answer_too_large"),
    "depth": (nest(300), "upstream_invalid_response"),
    "depth of a large one": ({**nest(300), "y": "x" * MIB}, "upstream_invalid_response"),
}


@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("call", CALLS)
async def test_oversized_response_is_a_recorded_error(call: str, tmp_path: Path) -> None:
    location = LedgerLocation("sqlite", tmp_path / "ledger.db")
    async with measured_proxy(tmp_path, POLICY, ledger=location) as measured:
        for name, (document, code) in EXCESSIVE.items():
            result = await measure_call(measured, call, document)

            assert result.statuses == {502}, name
            assert result.reply.headers["x-headrace-error"] == result.reply.error["code"] == code
            [(attempt, attempt_result, bill)] = summarize(result.record).attempts
            assert (attempt.error, result.record.outcome) == (code, "upstream_error"), name
            assert not result.record.is_internal_error
            assert bill is not None
            assert bill.usage.source == "partial_estimate"
            assert bill.usage.tokens.input > 0
            assert (attempt_result.use, attempt_result.loss) == ("abandoned", "upstream_broke")
            assert result.lag_s <= MAX_LAG_S, name
    assert audit(location.path).violations == ()
    errors = {row["error"] for row in stored_rows(location.path, "attempts")}
    assert errors == {code for _, code in EXCESSIVE.values()}


async def test_bounds_are_set_by_policy(tmp_path: Path) -> None:
    path, body, _ = CALLS["whole"]
    bounds = "{max_answer_values: 1000, max_answer_bytes: 10kB, dialect: openai,"
    cases = (
        *((chat(x=[1] * 900), 200), (chat(x=[1] * 1000), 502)),
        *((legacy_completion("x" * 9000), 200), (legacy_completion("x" * 10_000), 502)),
    )
    async with measured_proxy(tmp_path, POLICY) as measured:
        policies = measured.proxy.policies / "policies.yaml"
        policies.write_text(policies.read_text().replace("{dialect: openai,", bounds, 1))
        for number, (document, status) in enumerate(cases):
            measured.response = whole_bytes(document)
            headers = BEARER | {"x-headrace-refresh-cache": "true"}
            reply = await measured.send(path, {**body, "max_tokens": 1 + number}, headers)

            assert reply.status == status
