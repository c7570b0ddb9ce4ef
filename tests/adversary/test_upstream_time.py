"""Searches for slow, silent or dying upstreams that are billed, retried or blamed wrongly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from proxy.call.summary import summarize
from tests.conftest import KEY, Proxy, policies_for, running_proxy
from tests.doubles import (
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    Wire,
    chat,
    chat_events,
    closes,
    event,
    hang,
    head,
    http_chunk,
    legacy_completion,
    legacy_events,
    respond,
    stream,
)
from tests.test_pipeline import BEARER, MESSAGES, PORTKEY

STREAM = head(200, "text/event-stream", "transfer-encoding: chunked")
EVENTS = [http_chunk(event(legacy_event)) for legacy_event in legacy_events(" Par", "is.")]
END = http_chunk(event(b"[DONE]")) + b"0\r\n\r\n"
WORDS = "x" * 40
PROMPT_COST = 10 * 150  # one token per four characters
TOKEN_COST = 600


Start = Callable[..., Awaitable[Proxy]]


@pytest.fixture
async def start(tmp_path: Path, upstream: ScriptedUpstream) -> AsyncIterator[Start]:
    """Start a proxy with these upstream timeouts."""
    async with AsyncExitStack() as proxies:

        async def start_proxy(timeouts: str, extra: str = "") -> Proxy:
            policies = policies_for(upstream.url)
            text_before, _, text_after = policies.partition("timeouts: {")
            policies = f"{text_before}timeouts: {{{timeouts}}}{text_after.partition('}')[2]}"
            policies = policies.replace("  resilient:\n", f"  resilient:\n    {extra}\n")
            running = running_proxy(tmp_path / "policies", policies)
            return await proxies.enter_async_context(running)

        yield start_proxy


def delayed(seconds: float, *pieces: bytes, begin: bytes = b"") -> Script:
    """Send the start at once and the rest after a delay."""

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(begin)
        await asyncio.sleep(seconds)
        await wire.send(*pieces)

    return script


DOCUMENT = b'{"choices": [{"index": 0, "text": " Paris.", "finish_reason": "stop"}]}'
SLOW = {
    "before its head": delayed(
        0.3, head(200, "application/json", f"content-length: {len(DOCUMENT)}") + DOCUMENT
    ),
    "in its body": delayed(
        0.3,
        DOCUMENT[1:],
        begin=head(200, "application/json", f"content-length: {len(DOCUMENT)}") + DOCUMENT[:1],
    ),
}


@pytest.mark.parametrize("script", SLOW.values(), ids=SLOW.keys())
async def test_response_timeout_bounds_the_response(
    script: Script, start: Start, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(script)
    proxy = await start("first_byte: 50ms, idle: 50ms")
    reply = await proxy.complete()

    assert (reply.status, reply.json["choices"][0]["text"]) == (200, " Paris.")


async def test_first_byte_timeout_applies_to_streams(
    start: Start, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(hang())
    proxy = await start("first_byte: 50ms")
    reply = await proxy.complete(prompt=WORDS, stream=True)
    [record] = await proxy.sink.wait()

    assert (reply.status, reply.error["code"]) == (504, "upstream_first_byte_timeout")
    assert record.billing.cost == PROMPT_COST


@pytest.mark.parametrize("model", ["gpt-4o-mini", "resilient"])
async def test_timeout_after_sending_is_billed(
    model: str, start: Start, upstream: ScriptedUpstream
) -> None:
    """The fallback of the second deployment has its own time."""
    upstream.by_model = {"gpt-4o-mini": hang(), "primary": hang()}
    proxy = await start("total: 200ms")
    reply = await proxy.complete(model=model, prompt=WORDS, max_tokens=1)
    [record] = await proxy.sink.wait()

    has_fallback = model == "resilient"
    assert reply.status == (200 if has_fallback else 504)
    errors = [attempt.error for attempt in record.attempts]
    assert errors == ["upstream_total_timeout", None][: 1 + has_fallback]
    assert summarize(record).lost_cost == PROMPT_COST + TOKEN_COST
    if not has_fallback:
        assert reply.error["code"] == "upstream_total_timeout"
        assert record.billing.cost == PROMPT_COST + TOKEN_COST
        assert record.billing.usage_source == "partial_estimate"


def send_comments(comments: int, every: float) -> Script:
    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(STREAM, EVENTS[0])
        for _ in range(comments):
            await asyncio.sleep(every)  # the test measures a delay
            await wire.send(http_chunk(b": secret of the upstream\n\n"))
        await wire.send(*EVENTS[1:], END)

    return script


async def test_comments_reset_idle_timeout(start: Start, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(send_comments(6, 0.25))
    proxy = await start("idle: 1s")
    reply = await proxy.complete(stream=True)
    [record] = await proxy.sink.wait()

    assert (reply.status, record.outcome) == (200, "success")
    assert b"secret" not in reply.raw
    assert reply.raw.count(b"data: ") == len(EVENTS)  # without the bare usage chunk, with [DONE]


async def test_comments_allow_clean_error(start: Start, upstream: ScriptedUpstream) -> None:
    failing = closes(
        STREAM, http_chunk(b": thinking\n\n"), http_chunk(event({"error": {"code": 503}}))
    )
    upstream.by_model = {"primary": failing, "spare": stream(legacy_events("ok"))}
    proxy = await start("idle: 1s")
    reply = await proxy.complete(model="resilient", stream=True)

    assert (reply.status, b"keep-alive" in reply.raw) == (200, False)


async def test_lost_attempt_needs_policy_retry(start: Start, upstream: ScriptedUpstream) -> None:
    async def work_and_die(request: ReceivedRequest, wire: Wire) -> None:
        await asyncio.sleep(0.3)  # the test measures a delay
        wire.cut()

    upstream.then(respond(legacy_completion()), work_and_die)
    proxy = await start("total: 3s")
    await proxy.complete()
    reply = await proxy.complete()
    _, record = await proxy.sink.wait(2)

    assert (reply.status, reply.error["code"]) == (502, "upstream_unavailable")
    assert (len(upstream.requests), len(record.attempts)) == (2, 1)


@pytest.mark.parametrize("remainder", [b"", b"content-length: 900\r\n"], ids=["to the end", "cut"])
async def test_truncated_refusal_is_an_error(
    remainder: bytes, start: Start, upstream: ScriptedUpstream
) -> None:
    async def refuse(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(
            b"HTTP/1.1 413 X\r\n" + remainder + b"\r\n" + b'{"error": {"message": "large"}}'
        )
        wire.cut()

    upstream.then(*[refuse] * 6)
    proxy = await start("total: 3s")
    statuses = [(await proxy.complete()).status for _ in range(7)]

    assert statuses == [413] * 6 + [200]


STARTED = head(200, "application/json", "content-length: 900")
CLIENT_TIMEOUTS = {
    "before its head": (hang(), False),
    "after its head": (hang(STARTED), False),
    "in its body": (hang(STARTED + b"{"), False),
    "before the first event": (hang(STREAM), True),
    "in the stream": (hang(STREAM + EVENTS[0]), True),
}


@pytest.mark.parametrize("case", CLIENT_TIMEOUTS.values(), ids=CLIENT_TIMEOUTS.keys())
async def test_client_deadline_blames_no_target(
    case: tuple[Script, bool], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    script, streamed = case
    upstream.then(respond({}, 500), script, respond({}, 500))
    policies = policies_for(upstream.url).replace(
        "base_url: '", "breaker: {failures: 2, rest: 1m}, base_url: '"
    )
    async with running_proxy(tmp_path / "policies", policies) as proxy:
        for allowed in ("5000", "100", "5000", "5000"):
            headers = PORTKEY | {"x-portkey-request-timeout": allowed}
            await proxy.complete(headers, prompt=WORDS, stream=streamed)
        _, delayed, *_, last_value = await proxy.sink.wait(4)

    assert delayed.error.code == "request_timeout"
    assert [(attempt.error, attempt.has_upstream_worked) for attempt in delayed.attempts] == [
        ("request_timeout", True)
    ]
    assert (delayed.outcome, [result.loss for _, result, _ in summarize(delayed).attempts]) == (
        "client_error",
        ["client_left"],
    )
    assert delayed.billing.cost >= PROMPT_COST
    assert last_value.error.code == "upstream_circuit_open"  # opened by the second failure in a row


FIRST_KEY, OTHER_KEY = KEY, "hr-search-key"
TOO_LARGE = "Request too large for m on tokens per min (TPM): Limit 30000, Requested 50000."
OUTAGES: dict[str, tuple[Script, int]] = {
    "an error": (respond({}, 500), 502),
    "a rate limit": (respond({}, 429), 429),
    "more than a limit": (respond({"error": {"message": TOO_LARGE}}, 429), 429),
    "a timeout": (hang(), 504),
}

JUDGED = """
  judge-smol: {targets: [{upstream: openai, model: smol-judge}], policy: judging}
policies:
  judging: {limits: [{name: calls, requests: 900 per minute}]}
  default: {match: all, input: [{guard: judge, deployment: judge-smol, criteria: No hippos.}]}
"""


def policies(upstream: ScriptedUpstream, extra: str) -> str:
    return policies_for(upstream.url).replace("dialect: openai,", f"dialect: openai, {extra},", 1)


async def ask(proxy: Proxy, key: str, text: str = "Hi") -> int:
    messages = [{"role": "user", "content": text}]
    return (await proxy.chat({"authorization": f"Bearer {key}"}, messages=messages)).status


@pytest.mark.parametrize("name", OUTAGES)
async def test_outage_is_per_key(name: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    script, status = OUTAGES[name]
    text = policies(upstream, "breaker: {failures: 3, rest: 60s}")
    text = text.replace("total: 60s", "total: 200ms", 1) if status == 504 else text
    async with running_proxy(tmp_path / "policies", text) as proxy:
        upstream.answer_with(script)
        refused = [await ask(proxy, FIRST_KEY) for _ in range(8)]
        upstream.answer_with(respond(chat()))
        served = [await ask(proxy, OTHER_KEY) for _ in range(3)]
        last_count = await ask(proxy, FIRST_KEY)

    final = name == "more than a limit"
    assert refused == ([status] * 8 if final else [status] * 3 + [503] * 5)
    assert served == [200] * 3
    assert last_count == (200 if final else 503)


async def test_streaming_probe_admits_others(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()
    text = policies(upstream, "breaker: {failures: 1, rest: 30ms}")
    body = {"model": "search-answers", **MESSAGES, "stream": True}
    async with running_proxy(tmp_path / "policies", text) as proxy:
        upstream.answer_with(respond({}, 500))
        assert await ask(proxy, FIRST_KEY) == 502
        upstream.answer_with(stream(chat_events("a", "b"), gate=gate, gate_after=2))
        async with asyncio.timeout(10):
            while True:
                probe = await proxy.client.post("/v1/chat/completions", headers=BEARER, json=body)
                if probe.status == 200:
                    break
                probe.release()
        await probe.content.readline()
        upstream.answer_with(respond(chat()))

        assert await ask(proxy, FIRST_KEY) == 200

        gate.set()
        await probe.read()


async def test_judge_outage_is_per_key(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    passes = json.dumps({"reason": "", "verdict": "pass", "score": 0, "where": []})

    async def judge(request: ReceivedRequest, wire: Wire) -> None:
        breaks = "boom" in request.json["messages"][1]["content"]
        await (respond({}, 500) if breaks else respond(chat(passes)))(request, wire)

    upstream.by_model = {"smol-judge": judge}
    upstream.answer_with(respond(chat()))
    text = policies(upstream, "breaker: {failures: 3, rest: 60s}") + JUDGED
    async with running_proxy(tmp_path / "policies", text) as proxy:
        assert await ask(proxy, OTHER_KEY) == 200
        broken = [await ask(proxy, FIRST_KEY, text="boom") for _ in range(6)]

        assert await ask(proxy, OTHER_KEY) == 200
        assert await ask(proxy, FIRST_KEY) == 503  # its judge is unavailable
    assert broken == [503] * 6
