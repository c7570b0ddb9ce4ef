"""Guard results of upstreams are joined with ours and recorded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.telemetry.log import build_call_line
from tests.conftest import KEY, Proxy, policies_for, running_proxy
from tests.doubles import (
    ReceivedRequest,
    ScriptedUpstream,
    Wire,
    legacy_completion,
    legacy_events,
    respond,
    stream,
    usage,
)
from tests.for_each import for_each
from tests.test_pipeline import ROUTES

FLAGS = "{guard: pii, entities: [email], action: flag}"
DETECTED: dict[str, Any] = {
    "input_guardrails": {"summary": {"toxicity": ["insult"]}, "details": {"toxicity": {"x": 0.9}}},
    "output_guardrails": {"summary": {"nsfw": 0}, "details": {}},
}
HOOKED: dict[str, Any] = {
    "before_request_hooks": [{"id": "words", "verdict": False, "deny": True, "checks": []}],
    "after_request_hooks": [],
}
PROMPT = {"model": "m", "prompt": "Write to ada@example.com"}
CLIENTS = {
    "enkrypt": ("/ai-proxy/completions", {"apikey": KEY}),
    "portkey": ("/v1/completions", {"x-portkey-api-key": KEY}),
    "openai": ("/v1/completions", {"authorization": f"Bearer {KEY}"}),
}


@pytest.fixture
async def guarded(tmp_path: Path, upstream: ScriptedUpstream) -> AsyncIterator[Proxy]:
    policies = policies_for(upstream.url)
    for dialect in ("enkrypt", "portkey"):
        policies = policies.replace(f"  via-{dialect}: {{", f"  via-{dialect}: {{policy: mail, ")
    policies += f"policies: {{mail: {{input: [{FLAGS}]}}}}\n"
    async with running_proxy(tmp_path / "policies", policies) as running:
        yield running


async def ask(proxy: Proxy, client: str, spoken: str, **fields: Any) -> tuple[int, str]:
    path, credential = CLIENTS[client]
    headers = {**credential, "x-headrace-deployment": f"via-{spoken}"}
    reply = await proxy.send(path, {**PROMPT, **fields}, headers)
    return reply.status, reply.raw.decode()


def findings_of(proxy: Proxy) -> list[tuple[str, bool]]:
    [attempt] = proxy.records[-1].attempts
    return [(finding.detector, finding.found) for finding in attempt.findings]


@pytest.mark.parametrize("streamed", [False, True])
async def test_detections_are_joined(
    streamed: bool, guarded: Proxy, upstream: ScriptedUpstream
) -> None:
    body: dict[str, Any] = {"enkrypt_policy_detections": DETECTED}
    events = legacy_events("a", with_usage=False)
    events[-1] |= body
    upstream.answer_with(stream(events) if streamed else respond(legacy_completion(**body)))

    status, text = await ask(guarded, "enkrypt", "enkrypt", stream=streamed)

    last_text = text.split("data: ")[-2] if streamed else text
    event = json.loads(last_text)["enkrypt_policy_detections"]
    assert status == 200
    assert event["input_guardrails"]["summary"] == {"toxicity": ["insult"], "pii": 1}
    assert event["input_guardrails"]["details"]["toxicity"] == {"x": 0.9}
    assert event["output_guardrails"]["summary"] == {"nsfw": 0}
    await guarded.sink.wait()
    assert findings_of(guarded) == [("toxicity", True), ("nsfw", False)]
    assert build_call_line(guarded.records[0])["upstream_guards"][0] == {
        "upstream": "enkrypt",
        "guard": "toxicity",
        "stage": "input",
        "verdict": "flagged",
    }


@pytest.mark.parametrize("status", [200, 246])
async def test_hooks_are_joined(status: int, guarded: Proxy, upstream: ScriptedUpstream) -> None:
    upstream.answer_with(respond(legacy_completion(hook_results=HOOKED), status))

    count, text = await ask(guarded, "portkey", "portkey")

    hooks = json.loads(text)["hook_results"]["before_request_hooks"]
    assert count == 246
    assert [(hook["id"], hook["verdict"]) for hook in hooks] == [("words", False), ("pii", False)]
    assert hooks[0] == HOOKED["before_request_hooks"][0]
    await guarded.sink.wait()
    assert findings_of(guarded) == [("words", True)]


@pytest.mark.parametrize(
    ("client", "spoken", "status"),
    [("portkey", "portkey", 446), ("enkrypt", "portkey", 400), ("enkrypt", "enkrypt", 400)],
)
async def test_results_of_a_denial_reach_the_client_without_texts(
    client: str, spoken: str, status: int, guarded: Proxy, upstream: ScriptedUpstream
) -> None:
    error = {"error": {"message": "no", "type": "hooks_failed", "code": "guardrail_blocked"}}
    quoted = {"explanation": "ada@example.com is forbidden"}
    hooks = [{**HOOKED["before_request_hooks"][0], "checks": [{"id": "c", "data": quoted}]}]
    detected = {"input_guardrails": {"summary": {"words": 1}, "details": {"words": quoted}}}
    fields = (
        {"hook_results": {"before_request_hooks": hooks}}
        if spoken == "portkey"
        else {"enkrypt_policy_detections": detected}
    )
    upstream.answer_with(respond({**error, **fields}, 446 if spoken == "portkey" else 400))

    count, text = await ask(guarded, client, spoken)

    body = json.loads(text)
    assert count == status
    assert "forbidden" not in text
    if client == "portkey":
        told_hooks = body["hook_results"]["before_request_hooks"]
        assert [(h["id"], h["verdict"]) for h in told_hooks] == [("words", False), ("pii", False)]
    else:
        summary = body["enkrypt_policy_detections"]["input_guardrails"]["summary"]
        assert summary == {"words": 1, "pii": 1}
    await guarded.sink.wait()
    assert findings_of(guarded) == [("words", True)]


CHOICE = {"text": " Paris.", "created": 1, "model": "m", "finish_reason": ""}
MULTIMODEL: dict[str, Any] = {
    "id": "6f1c",
    "object": "text_completion",
    "created": "2026-01-01T00:00:00Z",
    "choices": [CHOICE],
    "usage": {**usage(), "prediction_time_ms": 7},
}


@for_each("streamed", [False, True])
@for_each("name", ["openai", "scale-5-chat"])
@for_each("words", [("stop token reached", "stop"), ("timeout", "length")])
async def test_multimodel_finish_reasons_are_mapped_for_others(
    name: str, streamed: bool, words: tuple[str, str], proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    route = ROUTES[name]
    word, known_text = words
    upstream.answer_with(respond({**MULTIMODEL, "choices": [{**CHOICE, "finish_reason": word}]}))
    headers = {**route.credential, "x-headrace-deployment": "via-multimodel"}

    body = route.body(streamed=streamed)
    raw = (await proxy.send(route.path, body, headers)).raw.decode()

    assert f'"finish_reason":"{known_text}"' in raw


@pytest.mark.parametrize("models", ["support-chat", ["support-chat"], ["first", "second"]])
async def test_multimodel_latency_is_measured(
    models: Any, upstream: ScriptedUpstream, proxy: Proxy
) -> None:
    async def slow(request: ReceivedRequest, wire: Wire) -> None:
        await asyncio.sleep(0.03)
        await respond(legacy_completion())(request, wire)

    upstream.answer_with(slow)

    fields = (await proxy.send("/v1/completion", {"model": models, "prompt": "p"})).json

    times = [choice["usage"]["prediction_time_ms"] for choice in fields["choices"]]
    assert min(times) >= 29
    assert fields["usage"]["prediction_time_ms"] == max(times)
