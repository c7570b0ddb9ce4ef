"""Results of guards in responses: clients of Enkrypt and Portkey read them, others do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Reply
from tests.doubles import ScriptedUpstream, chat, chat_events, legacy_events, respond, stream
from tests.guards.calls import ask_route, chat_answer, cut, guarded
from tests.guards.conftest import Guard
from tests.guards.kinds.test_passages import PROMPT
from tests.test_pipeline import MESSAGES, ROUTES

FLAG = "{guard: keywords, name: rivals, words: [hippo], action: flag}"
BLOCK = "{guard: keywords, name: rivals, words: [hippo]}"
SHADOW = "{guard: keywords, name: rivals, words: [hippo], mode: shadow}"
HIPPO = {"messages": [{"role": "user", "content": "a hippo"}]}
ENKRYPT, PORTKEY, OPENAI = (ROUTES[f"{name}-chat"] for name in ("enkrypt", "portkey", "openai"))
WORD = {"keyword_detected": 1}
STAGES = pytest.mark.parametrize("stage", ["input", "output"])


def summaries(document: dict[str, Any]) -> tuple[Any, Any]:
    """Return Enkrypt's summaries of the request and of the response."""
    detections = document["enkrypt_policy_detections"]
    return detections["input_guardrails"]["summary"], detections["output_guardrails"]["summary"]


def hooks(document: dict[str, Any]) -> list[Any]:
    """Return all of Portkey's hooks."""
    results: dict[str, list[Any]] = document["hook_results"]
    return results["before_request_hooks"] + results["after_request_hooks"]


@STAGES
async def test_flag_is_reported(stage: str, guard: Guard) -> None:
    fields = HIPPO if stage == "input" else MESSAGES
    proxy = await guard(f"{stage}: [{FLAG}]", respond(chat("A hippo.")))

    replies = [await ask_route(proxy, route, fields) for route in (ENKRYPT, PORTKEY, OPENAI)]

    enkrypt, portkey, openai = (reply.json for reply in replies)
    assert [reply.status for reply in replies] == [200, 246, 200]
    assert [item for item in summaries(enkrypt) if item] == [WORD]
    [hook] = hooks(portkey)
    assert bool(portkey["hook_results"]["before_request_hooks"]) is (stage == "input")
    assert (hook["id"], hook["verdict"], hook["deny"]) == ("rivals", False, False)
    assert openai.keys() == chat("").keys()


@STAGES
async def test_block_is_reported(stage: str, guard: Guard) -> None:
    fields = HIPPO if stage == "input" else MESSAGES
    proxy = await guard(f"{stage}: [{BLOCK}]", respond(chat("A hippo.")))

    enkrypt, portkey = [await ask_route(proxy, route, fields) for route in (ENKRYPT, PORTKEY)]

    assert (enkrypt.status, portkey.status) == (400, 446)
    assert enkrypt.json.keys() == {"error", "enkrypt_policy_detections"}
    assert WORD in summaries(enkrypt.json)
    assert portkey.error["type"] == "hooks_failed"
    [hook] = hooks(portkey.json)
    assert (hook["verdict"], hook["deny"]) == (False, True)
    assert b"hippo" not in portkey.raw + enkrypt.raw


async def test_shadow_guard_is_not_reported(guard: Guard) -> None:
    proxy = await guard(f"output: [{SHADOW}]", respond(chat("A hippo.")))

    enkrypt, portkey = [await ask_route(proxy, route) for route in (ENKRYPT, PORTKEY)]

    assert (portkey.status, "hook_results" in portkey.json) == (200, False)
    assert summaries(enkrypt.json) == ({}, {})


async def test_portkey_stream_reports_by_status(guard: Guard) -> None:
    proxy = await guard(f"input: [{FLAG}]", stream(chat_events("All is ", "well.")))

    flagged = await ask_route(proxy, PORTKEY, HIPPO, streamed=True)
    plain = await ask_route(proxy, PORTKEY, streamed=True)

    assert (flagged.status, plain.status) == (246, 200)
    assert flagged.raw == plain.raw
    assert b"hook_results" not in flagged.raw


async def test_enkrypt_stream_reports_at_its_end(guard: Guard) -> None:
    proxy = await guard(f"output: [{FLAG}]", stream(chat_events("A hip", "po.")))

    reply = await ask_route(proxy, ENKRYPT, streamed=True)

    [line] = [line for line in reply.raw.splitlines() if b"enkrypt_policy_detections" in line]
    finish = json.loads(line.removeprefix(b"data: "))
    assert reply.status == 200
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert summaries(finish) == ({}, WORD)


@pytest.mark.parametrize(
    ("name", "status"),
    [("enkrypt", 400), ("portkey", 446), ("enkrypt-chat", 400), ("portkey-chat", 446)],
)
async def test_block_after_the_head_is_reported_in_the_last_event(
    name: str, status: int, guard: Guard, upstream: ScriptedUpstream
) -> None:
    route = ROUTES[name]
    events = chat_events if route.chat else legacy_events
    long = "All is well and calm here. " * 20
    upstream.then(stream(events("A hip", "po.")), stream(events(long, "A hip", "po.", "x")))
    proxy = await guard(f"output: [{BLOCK}]")

    early, late = [await ask_route(proxy, route, route.content, streamed=True) for _ in range(2)]

    report = "enkrypt_policy_detections" if "enkrypt" in name else "hook_results"
    assert (early.status, report in early.json) == (status, True)
    assert (late.status, late.is_cut) == (200, True)
    event = json.loads(late.raw.strip().splitlines()[-1].removeprefix(b"data: "))
    assert event["error"]["code"] == "guardrail_blocked"
    assert report in event


async def test_cache_hit_reports_its_own_call(guard: Guard, upstream: ScriptedUpstream) -> None:
    output = FLAG.replace("rivals", "out")
    guards = f"input: [{FLAG}], output: [{output}], cache: {{ttl: 1h}}"
    proxy = await guard(guards, respond(chat("A hippo.")))

    replies = [await ask_route(proxy, ENKRYPT, HIPPO) for _ in range(2)]

    assert len(upstream.requests) == 1
    assert [summaries(reply.json) for reply in replies] == [(WORD, WORD), (WORD, {})]


REQUEST = {"role": "user", "content": "How long may members of the library borrow books for?"}
CONTEXT = "Members of the library may borrow up to 12 books for 4 weeks."
FALSE = "Members may borrow books for 9 weeks."


@pytest.mark.parametrize("size", [0, 1, 7])
async def test_system_prompt_does_not_leave_with_the_response(size: int, guard: Guard) -> None:
    leak = f"Sure: {PROMPT}"
    script = chat_answer(*cut(leak, size or len(leak)), streamed=bool(size))
    proxy = await guard("output: [{guard: system_prompt}]", script)

    async def send(*messages: dict[str, str]) -> Reply:
        return await ask_route(proxy, OPENAI, {"messages": messages}, streamed=bool(size))

    leaking, clean = await send({"role": "system", "content": PROMPT}, REQUEST), await send(REQUEST)

    assert b"guardrail_blocked" in leaking.raw
    assert b"refund" not in leaking.raw
    assert (clean.status, b"guardrail_blocked" in clean.raw) == (200, False)


async def test_response_is_judged_by_its_request(guard: Guard, upstream: ScriptedUpstream) -> None:
    true = "Members may borrow books for 4 weeks."
    rice = "Simmer the rice with the lid on, then fluff it with a fork."
    upstream.then(*(respond(chat(text)) for text in (true, FALSE, rice)))
    proxy = await guard("output: [{guard: grounded}, {guard: relevant}]")
    request = {"messages": [REQUEST], "enkrypt_context": CONTEXT}

    replies = [await ask_route(proxy, ENKRYPT, request) for _ in range(3)]

    right = {"is_hallucination": 0, "adherence_score": 1}
    wrong = {"is_hallucination": 1, "adherence_score": 0}
    assert [reply.status for reply in replies] == [200, 200, 200]
    assert [summaries(reply.json)[1] for reply in replies] == [
        right | {"relevancy_score": 1},
        wrong | {"relevancy_score": 1},
        wrong | {"relevancy_score": 0},
    ]


async def test_guard_without_context_reports_nothing(guard: Guard) -> None:
    guards = "output: [{guard: grounded, action: block}, {guard: system_prompt}]"
    proxy = await guard(guards, respond(chat(FALSE)))

    reply = await ask_route(proxy, ENKRYPT, {"messages": [REQUEST]})

    [record] = await proxy.sink.wait()
    assert (reply.status, summaries(reply.json)) == (200, ({}, {}))
    results = [result.verdict for _, result in record.list_guard_results()]
    assert results == ["not_applicable", "not_applicable"]


async def test_protected_file_is_found(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "song.txt").write_text(PROMPT)
    upstream.answer_with(respond(chat(f"As the song has it: {PROMPT}")))
    guards = "output: [{guard: copyright, texts_from: [song.txt], share: null, action: mask}]"
    async with guarded(tmp_path, upstream, guards) as proxy:
        reply = await ask_route(proxy, OPENAI, {"messages": [REQUEST]})

    content = reply.json["choices"][0]["message"]["content"]
    assert content.startswith("As the song has it: [PASSAGE]")
