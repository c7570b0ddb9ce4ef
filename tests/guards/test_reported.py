"""What clients of Enkrypt and of Portkey learn of guards, over real calls; others learn nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.doubles import ScriptedUpstream, answer, chat, chat_events, legacy_events, stream
from tests.guards.test_run import guarded
from tests.test_pipeline import MESSAGES, ROUTES, Route

FLAG = "{guard: keywords, name: rivals, words: [hippo], action: flag}"
BLOCK = "{guard: keywords, name: rivals, words: [hippo]}"
SHADOW = "{guard: keywords, name: rivals, words: [hippo], mode: shadow}"
HIPPO = {"messages": [{"role": "user", "content": "a hippo"}]}
ENKRYPT, PORTKEY, OPENAI = (ROUTES[f"{name}-chat"] for name in ("enkrypt", "portkey", "openai"))


async def ask(
    client: aiohttp.ClientSession, route: Route, fields: Any = MESSAGES, *, streamed: bool = False
) -> tuple[int, bytes, dict[str, Any]]:
    body = {**route.body(streamed=streamed, **fields), "model": "support-chat"}
    read = b""
    async with client.post(route.path, headers=route.credential, json=body) as response:
        try:
            async for piece in response.content.iter_any():
                read += piece
        except aiohttp.ClientPayloadError:
            read += b"(cut)"
    return response.status, read, json.loads(read) if read.startswith(b"{") else {}


def found(answer: dict[str, Any]) -> tuple[Any, Any]:
    of = answer["enkrypt_policy_detections"]
    return of["input_guardrails"]["summary"], of["output_guardrails"]["summary"]


@pytest.mark.parametrize("stage", ["input", "output"])
async def test_a_flag_is_told_to_whom_it_is_promised_and_passes(
    stage: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("A hippo.")))
    fields = HIPPO if stage == "input" else MESSAGES
    async with guarded(tmp_path, upstream, f"{stage}: [{FLAG}]") as (_, client):
        enkrypt = await ask(client, ENKRYPT, fields)
        portkey = await ask(client, PORTKEY, fields)
        openai = await ask(client, OPENAI, fields)

    assert [enkrypt[0], portkey[0], openai[0]] == [200, 246, 200]
    [word] = [item for item in found(enkrypt[2]) if item]
    assert word == {"keyword_detected": 1}
    hooks = portkey[2]["hook_results"]
    [hook] = hooks["before_request_hooks" if stage == "input" else "after_request_hooks"]
    assert (hook["id"], hook["verdict"], hook["deny"]) == ("rivals", False, False)
    assert openai[2].keys() == chat("").keys()


@pytest.mark.parametrize("stage", ["input", "output"])
async def test_a_block_says_what_was_found(
    stage: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("A hippo.")))
    fields = HIPPO if stage == "input" else MESSAGES
    async with guarded(tmp_path, upstream, f"{stage}: [{BLOCK}]") as (_, client):
        enkrypt = await ask(client, ENKRYPT, fields)
        portkey = await ask(client, PORTKEY, fields)

    assert (enkrypt[0], portkey[0]) == (400, 446)
    assert set(enkrypt[2]) == {"error", "enkrypt_policy_detections"}
    assert {"keyword_detected": 1} in found(enkrypt[2])
    assert portkey[2]["error"]["type"] == "hooks_failed"
    results: dict[str, list[Any]] = portkey[2]["hook_results"]
    [hook] = results["before_request_hooks"] + results["after_request_hooks"]
    assert (hook["verdict"], hook["deny"]) == (False, True)
    assert "hippo" not in json.dumps(portkey[2]) + json.dumps(enkrypt[2])


async def test_a_guard_in_shadow_is_told_to_nobody(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("A hippo.")))
    async with guarded(tmp_path, upstream, f"output: [{SHADOW}]") as (_, client):
        portkey = await ask(client, PORTKEY)
        enkrypt = await ask(client, ENKRYPT)

    assert (portkey[0], "hook_results" in portkey[2]) == (200, False)
    assert found(enkrypt[2]) == ({}, {})


async def test_a_stream_of_portkeys_has_the_status_of_what_is_known_at_its_beginning(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(stream(chat_events("All is ", "well.")))
    async with guarded(tmp_path, upstream, f"input: [{FLAG}]") as (_, client):
        flagged = await ask(client, PORTKEY, HIPPO, streamed=True)
        plain = await ask(client, PORTKEY, streamed=True)

    assert (flagged[0], plain[0]) == (246, 200)
    assert flagged[1] == plain[1]
    assert b"hook_results" not in flagged[1]


async def test_a_stream_of_enkrypts_says_what_was_found_where_it_finishes(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(stream(chat_events("A hip", "po.")))
    async with guarded(tmp_path, upstream, f"output: [{FLAG}]") as (_, client):
        status, raw, _ = await ask(client, ENKRYPT, streamed=True)

    lines = [line for line in raw.splitlines() if b"enkrypt_policy_detections" in line]
    assert status == 200
    [finish] = [json.loads(line.removeprefix(b"data: ")) for line in lines]
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert found(finish) == ({}, {"keyword_detected": 1})


@pytest.mark.parametrize(
    ("name", "status"),
    [("enkrypt", 400), ("portkey", 446), ("enkrypt-chat", 400), ("portkey-chat", 446)],
)
async def test_a_block_on_a_stream_keeps_its_status_until_bytes_have_left(
    name: str, status: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    route, fields = ROUTES[name], ROUTES[name].said
    events = chat_events if route.chat else legacy_events
    long = "All is well and calm here. " * 20
    late_events = events(long, "A hip", "po.", "x")
    upstream.then(stream(events("A hip", "po.")), stream(late_events))
    async with guarded(tmp_path, upstream, f"output: [{BLOCK}]") as (_, client):
        early_value = await ask(client, route, fields, streamed=True)
        delayed = await ask(client, route, fields, streamed=True)

    assert early_value[0] == status
    assert "enkrypt_policy_detections" in early_value[2] or "hook_results" in early_value[2]
    assert delayed[0] == 200
    assert delayed[1].endswith(b"(cut)")
    last_data = delayed[1].removesuffix(b"\n\n(cut)").splitlines()[-1]
    event = json.loads(last_data.removeprefix(b"data: "))
    assert event["error"]["code"] == "guardrail_blocked"
    assert "enkrypt_policy_detections" in event or "hook_results" in event


async def test_a_kept_answer_says_nothing_of_another_calls_guards(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat("A hippo.")))
    guards = f"input: [{FLAG}], output: [{FLAG.replace('rivals', 'out')}], cache: {{ttl: 1h}}"
    async with guarded(tmp_path, upstream, guards) as (_, client):
        first_item = await ask(client, ENKRYPT, HIPPO)
        repeated = await ask(client, ENKRYPT, HIPPO)

    word = {"keyword_detected": 1}
    assert len(upstream.requests) == 1
    assert (found(first_item[2]), found(repeated[2])) == ((word, word), (word, {}))
