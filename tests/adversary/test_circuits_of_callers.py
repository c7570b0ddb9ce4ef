"""One key's failing calls and slow probes open no circuit for other keys."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.conftest import KEY, Proxy, running_proxy, world
from tests.doubles import (
    Asked,
    Script,
    ScriptedUpstream,
    Wire,
    answer,
    chat,
    chat_events,
    hang,
    stream,
)
from tests.test_pipeline import BEARER, MESSAGES

FIRST_KEY, OTHER_KEY = KEY, "hr-search-key"
TOO_LARGE = "Request too large for m on tokens per min (TPM): Limit 30000, Requested 50000."
BAD: dict[str, tuple[Script, int]] = {
    "an error of its own": (answer({}, 500), 502),
    "a limit of its own": (answer({}, 429), 429),
    "more than a limit": (answer({"error": {"message": TOO_LARGE}}, 429), 429),
    "a call that is too long": (hang(), 504),
}

JUDGED = """
  judge-smol: {targets: [{upstream: openai, model: smol-judge}], policy: judging}
policies:
  judging: {limits: [{name: calls, requests: 900 per minute}]}
  default: {match: all, input: [{guard: judge, deployment: judge-smol, criteria: No hippos.}]}
"""


def policies(upstream: ScriptedUpstream, extra: str) -> str:
    return world(upstream.url).replace("dialect: openai,", f"dialect: openai, {extra},", 1)


async def ask(proxy: Proxy, key: str, text: str = "Hi") -> int:
    messages = [{"role": "user", "content": text}]
    return (await proxy.chat({"authorization": f"Bearer {key}"}, messages=messages)).status


@pytest.mark.parametrize("name", BAD)
async def test_outage_is_per_key(name: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    script, status = BAD[name]
    text = policies(upstream, "breaker: {failures: 3, rest: 60s}")
    text = text.replace("total: 60s", "total: 200ms", 1) if status == 504 else text
    async with running_proxy(tmp_path / "policies", text) as proxy:
        upstream.answer_with(script)
        refused = [await ask(proxy, FIRST_KEY) for _ in range(8)]
        upstream.answer_with(answer(chat()))
        served = [await ask(proxy, OTHER_KEY) for _ in range(3)]
        last_count = await ask(proxy, FIRST_KEY)

    final = name == "more than a limit"
    assert refused == ([status] * 8 if final else [status] * 3 + [503] * 5)
    assert served == [200] * 3
    assert last_count == (200 if final else 503)


async def test_streaming_probe_blocks_nobody(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    gate = asyncio.Event()
    text = policies(upstream, "breaker: {failures: 1, rest: 30ms}")
    body = {"model": "search-answers", **MESSAGES, "stream": True}
    async with running_proxy(tmp_path / "policies", text) as proxy:
        upstream.answer_with(answer({}, 500))
        assert await ask(proxy, FIRST_KEY) == 502
        upstream.answer_with(stream(chat_events("a", "b"), gate=gate, gate_after=2))
        async with asyncio.timeout(10):
            while True:
                probe = await proxy.client.post("/v1/chat/completions", headers=BEARER, json=body)
                if probe.status == 200:
                    break
                probe.release()
        await probe.content.readline()
        upstream.answer_with(answer(chat()))

        assert await ask(proxy, FIRST_KEY) == 200

        gate.set()
        await probe.read()


async def test_judge_outage_is_per_key(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    passes = json.dumps({"reason": "", "verdict": "pass", "score": 0, "where": []})

    async def judge(request: Asked, wire: Wire) -> None:
        breaks = "boom" in request.json["messages"][1]["content"]
        await (answer({}, 500) if breaks else answer(chat(passes)))(request, wire)

    upstream.by_model = {"smol-judge": judge}
    upstream.answer_with(answer(chat()))
    text = policies(upstream, "breaker: {failures: 3, rest: 60s}") + JUDGED
    async with running_proxy(tmp_path / "policies", text) as proxy:
        assert await ask(proxy, OTHER_KEY) == 200
        broken = [await ask(proxy, FIRST_KEY, text="boom") for _ in range(6)]

        assert await ask(proxy, OTHER_KEY) == 200
        assert await ask(proxy, FIRST_KEY) == 503  # its own judge cannot be asked now
    assert broken == [503] * 6
