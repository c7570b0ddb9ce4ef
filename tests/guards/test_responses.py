"""Guards over calls of Responses: every text of a question and of an answer, in its own form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.dialects.test_responses import ASKED, BEARER, CALLED, accumulated, streamed
from tests.dialects.vendors.test_anthropic import HEADERS, events_of
from tests.doubles import (
    Asked,
    Json,
    ScriptedUpstream,
    Wire,
    answer,
    chat,
    item_events,
    response,
    response_events,
    stream,
    text_item,
)
from tests.guards.test_messages import pieces
from tests.guards.test_run import EMAIL, PII, WORD, guarded

MASKED = "[EMAIL]"
SUMMARY: Json = {"type": "summary_text", "text": f"Ask {EMAIL}."}
THOUGHT: Json = {"id": "rs_1", "type": "reasoning", "summary": [SUMMARY]}
THOUGHT |= {"encrypted_content": "c2VhbGVk"}


async def ask(
    client: aiohttp.ClientSession, to: str = "support-chat", **options: Any
) -> tuple[int, bytes]:
    headers = {**BEARER, "x-headrace-deployment": to}
    async with client.post("/v1/responses", headers=headers, json={**ASKED, **options}) as answered:
        return answered.status, await answered.read()


@pytest.mark.parametrize("to", ["support-chat", "search-answers"])
async def test_every_text_of_a_question_is_masked(
    to: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(response() if to == "support-chat" else chat()))
    call = {**CALLED, "arguments": json.dumps({"to": EMAIL, "n": 1})}
    output = [{"type": "input_text", "text": EMAIL}]
    request: Json = {
        "instructions": f"You are {EMAIL}.",
        "tools": [{"type": "function", "name": "f", "description": EMAIL, "parameters": {}}],
        "input": [
            {"role": "user", "content": f"From {EMAIL}."},
            {"role": "user", "content": [{"type": "input_text", "text": f"By {EMAIL}."}]},
            THOUGHT,
            call,
            {"type": "function_call_output", "call_id": "call_1", "output": output},
        ],
    }

    async with guarded(tmp_path, upstream, f"input: [{PII}], opaque: allow") as (_, client):
        status, raw = await ask(client, to, **request)

    assert status == 200, raw
    [sent_value] = upstream.requests
    assert EMAIL not in json.dumps(sent_value.json)
    if to == "support-chat":
        assert sent_value.json["input"][2]["encrypted_content"] == "c2VhbGVk"
        assert json.loads(sent_value.json["input"][3]["arguments"]) == {"to": MASKED, "n": 1}


@pytest.mark.parametrize("where", ["instructions", "text", "arguments", "output", "summary"])
async def test_a_word_of_the_list_is_found_wherever_it_stands(
    where: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    items: dict[str, Json] = {
        "text": {"role": "user", "content": [{"type": "input_text", "text": "hippo"}]},
        "arguments": {**CALLED, "arguments": '{"a": ["hippo"]}'},
        "output": {"type": "function_call_output", "call_id": "call_1", "output": "hippo"},
        "summary": {**THOUGHT, "summary": [{"type": "summary_text", "text": "hippo"}]},
    }
    request: Json = {"input": [items[where]]} if where in items else {"instructions": "hippo"}

    async with guarded(tmp_path, upstream, f"input: [{WORD}]") as (_, client):
        status, raw = await ask(client, **request)

    assert status == 400, raw
    assert upstream.requests == []


async def test_a_whole_answer_is_masked_and_says_the_clients_own_words_again(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    call = {**CALLED, "arguments": json.dumps({"to": EMAIL, "n": 1})}
    values = response(THOUGHT, text_item(f"Write to {EMAIL}."), call, instructions=f"Hide {EMAIL}.")
    upstream.answer_with(answer(values))

    async with guarded(tmp_path, upstream, f"output: [{PII}]") as (_, client):
        status, raw = await ask(client, instructions=f"Hide {EMAIL}.")

    assert status == 200
    full_value = json.loads(raw)
    assert full_value["instructions"] == f"Hide {EMAIL}."
    assert EMAIL not in json.dumps(full_value["output"])
    assert [item["id"] for item in full_value["output"]] == ["rs_1", "msg_1", "fc_1"]
    assert json.loads(full_value["output"][2]["arguments"]) == {"to": MASKED, "n": 1}
    assert full_value["usage"] == values["usage"]


async def test_a_guard_against_leaks_does_not_take_an_echo_for_one(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    prompt = "You are a hippo."
    upstream.answer_with(answer(response(instructions=prompt)))

    async with guarded(tmp_path, upstream, f"output: [{WORD}]") as (_, client):
        status, raw = await ask(client, instructions=prompt)

    assert (status, json.loads(raw)["instructions"]) == (200, prompt)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 99])
async def test_a_stream_is_masked_each_time_it_says_a_text_however_it_is_cut(
    size: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    text = f"Write to {EMAIL} today."
    call = {**CALLED, "arguments": json.dumps({"to": EMAIL, "n": 1})}
    items = text_item(text), call, text_item(text, "msg_2")
    events = (
        item_events(0, items[0], *pieces(text, size)),
        item_events(1, call, *pieces(call["arguments"], size)),
        item_events(2, items[2], *pieces(text, size)),
    )
    script = response_events(*events, document=response(*items))
    upstream.answer_with(stream(script, is_done=False))

    async with guarded(tmp_path, upstream, f"output: [{PII}]") as (_, client):
        status, raw = await ask(client, stream=True)

    assert status == 200
    assert EMAIL.encode() not in raw
    document = accumulated(raw)
    first_value, calls, last_value = document["output"]
    for item in (first_value, last_value):
        assert item["content"][0]["text"] == f"Write to {MASKED} today."
    assert json.loads(calls["arguments"])["n"] == 1
    assert document["usage"] == response()["usage"]


async def test_a_stream_that_nothing_had_to_change_says_the_same_under_guards(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    search: Json = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    search |= {"action": {"type": "search", "query": "capital"}}
    started = {**search, "status": "in_progress"}
    searched: list[Json] = [
        {"type": "response.output_item.added", "output_index": 0, "item": started},
        {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws_1"},
        {"type": "response.output_item.done", "output_index": 0, "item": search},
    ]
    item = text_item("It is Paris.")
    script = response_events(
        searched, item_events(1, item, "It is ", "Paris."), document=response(search, item)
    )
    upstream.answer_with(stream(script, is_done=False))

    async with guarded(tmp_path, upstream, f"output: [{PII}]") as (_, client):
        _, raw = await ask(client, stream=True)

    document = accumulated(raw)
    assert document["output"] == [search, item]
    assert [event["type"] for event in streamed(raw)] == [event["type"] for event in script]


async def test_what_a_tool_of_the_provider_says_is_masked(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    call: Json = {"id": "mcp_1", "type": "mcp_call", "name": "f", "server_label": "a"}
    call |= {"arguments": "{}", "output": f"It is {EMAIL}."}
    result = {"type": "response.output_item.done", "output_index": 0, "item": call}
    upstream.answer_with(stream(response_events([result], document=response(call)), is_done=False))

    async with guarded(tmp_path, upstream, f"output: [{PII}]") as (_, client):
        status, raw = await ask(client, stream=True)

    assert status == 200
    assert EMAIL.encode() not in raw
    assert raw.count(MASKED.encode()) == 2


async def test_a_text_that_only_its_end_says_is_masked(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    item = text_item(f"Write to {EMAIL}.")
    result = {"type": "response.output_item.done", "output_index": 0, "item": item}
    upstream.answer_with(stream(response_events([result], document=response(item)), is_done=False))

    async with guarded(tmp_path, upstream, f"output: [{PII}]") as (_, client):
        _, raw = await ask(client, stream=True)

    assert EMAIL.encode() not in raw
    assert raw.count(f"Write to {MASKED}.".encode()) == 2


async def test_a_blocked_stream_ends_with_an_error(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    item = text_item("A hippo.")
    script = response_events(item_events(0, item, "A ", "hip", "po."), document=response(item))
    upstream.answer_with(stream(script, is_done=False))

    async with guarded(tmp_path, upstream, f"output: [{WORD}]") as (_, client):
        status, raw = await ask(client, stream=True)

    assert b"hippo" not in raw
    error = json.loads(raw)["error"] if status != 200 else events_of(raw)[-1][1]["error"]
    assert "Guard" in error["message"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_that_repeats_its_question_has_the_clients_values(
    streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async def echo(request: Asked, wire: Wire) -> None:
        body = request.json
        item = text_item(body["input"])
        document = response(item, instructions=body["instructions"])
        events = item_events(0, item, *pieces(body["input"], 5))
        script = stream(response_events(events, document=document), is_done=False)
        await (script if streamed else answer(document))(request, wire)

    upstream.answer_with(echo)
    own_document = {"instructions": f"Hide {EMAIL}.", "input": f"Write to {EMAIL}."}
    restored = PII.replace("}", ", restore: true}")

    async with guarded(tmp_path, upstream, f"input: [{restored}]") as (_, client):
        status, raw = await ask(client, stream=streamed, **own_document)

    [sent_value] = upstream.requests
    assert (status, EMAIL in json.dumps(sent_value.json)) == (200, False)
    document = accumulated(raw) if streamed else json.loads(raw)
    assert b"EMAIL" not in raw
    assert document["instructions"] == own_document["instructions"]
    assert document["output"][0]["content"][0]["text"] == own_document["input"]


CARD = "4111 1111 1111 1111"
CARDS = "{guard: pii, entities: [card], action: mask}"
USER: Json = {"role": "user", "content": "Pay."}
PAYS: Json = {**CALLED, "arguments": json.dumps({"card": CARD, "n": 1})}
OTHER: Json = {**CALLED, "id": "fc_2", "call_id": "call_2"}


def calls_in_turns() -> list[Json]:
    """The events of two calls of tools: one begins in the midst of a value of the other."""
    started, *deltas, result, ended = item_events(
        0, PAYS, PAYS["arguments"][:20], PAYS["arguments"][20:]
    )
    other_item = item_events(1, OTHER, '{"place":', ' "Paris"}')
    turns = [started, deltas[0], *other_item[:2], deltas[1], *other_item[2:], result, ended]
    return response_events(turns, document=response(PAYS, OTHER))


@pytest.mark.parametrize("ended", [True, False], ids=["whole", "cut short"])
@pytest.mark.parametrize("client", ["responses", "chat", "messages"])
async def test_a_value_is_masked_though_items_take_turns_in_it(
    client: str, ended: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    events = calls_in_turns()
    upstream.answer_with(stream(events if ended else events[:6], is_done=False))
    ways: dict[str, tuple[str, Json, dict[str, str]]] = {
        "responses": ("/v1/responses", ASKED, BEARER),
        "chat": ("/v1/chat/completions", {"model": "smol-responses", "messages": [USER]}, BEARER),
        "messages": (
            "/v1/messages",
            {"model": "smol-responses", "messages": [USER], "max_tokens": 9},
            HEADERS,
        ),
    }
    path, request, headers = ways[client]
    headers = {**headers, "x-headrace-deployment": "responses-only"}

    async with (
        guarded(tmp_path, upstream, f"output: [{CARDS}]") as (proxy, session),
        session.post(path, headers=headers, json={**request, "stream": True}) as answered,
    ):
        raw = (await answered.read()).decode(errors="replace")
        [record] = await proxy.sink.wait()

    assert answered.status == 200
    assert "1111 1111" not in raw
    assert ("[CARD]" in raw and "Paris" in raw) or not ended
    assert record.billing.tokens is not None
    assert record.billing.tokens.total == 8 or not ended
