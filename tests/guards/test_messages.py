"""Guards over calls of Messages: every text of a question and of an answer, in its own form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.dialects.test_responses import BEARER
from tests.dialects.vendors.test_anthropic import ASKED, CALLED, HEADERS, accumulated, events_of
from tests.doubles import (
    Json,
    ScriptedUpstream,
    answer,
    block_events,
    chat,
    message,
    message_events,
    stream,
    text_events,
)
from tests.guards.test_run import EMAIL, PII, WORD, guarded

MASKED = "[EMAIL]"
BLOCKED = "Guard"
THOUGHT = {"type": "thinking", "thinking": f"Ask {EMAIL}", "signature": "c2lnbmVk"}


async def ask(
    client: aiohttp.ClientSession, to: str = "via-anthropic", **options: Any
) -> tuple[int, bytes]:
    headers = {**HEADERS, "x-headrace-deployment": to}
    async with client.post("/v1/messages", headers=headers, json={**ASKED, **options}) as response:
        return response.status, await response.read()


def pieces(text: str, size: int) -> list[str]:
    return [text[index : index + size] for index in range(0, len(text), size)]


@pytest.mark.parametrize("to", ["via-anthropic", "support-chat"])
async def test_every_text_of_a_question_is_masked(
    to: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(message() if to == "via-anthropic" else chat()))
    document = {"type": "text", "media_type": "text/plain", "data": f"By {EMAIL}."}
    blocks = [
        {"type": "text", "text": f"From {EMAIL}."},
        {"type": "document", "title": EMAIL, "source": document},
    ]
    result = {"type": "tool_result", "tool_use_id": "toolu_1"}
    request: Json = {
        "system": [{"type": "text", "text": f"You are {EMAIL}."}],
        "tools": [{"name": "f", "description": EMAIL, "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": blocks},
            {"role": "assistant", "content": [THOUGHT, {**CALLED, "input": {"to": EMAIL}}]},
            {"role": "user", "content": [{**result, "content": [{"type": "text", "text": EMAIL}]}]},
        ],
    }

    async with guarded(tmp_path, upstream, f"input: [{PII}], opaque: allow") as (_, client):
        status, raw = await ask(client, to, **request)

    assert status == 200, raw
    [sent_value] = upstream.requests
    assert EMAIL not in json.dumps(sent_value.json)
    if to == "via-anthropic":  # what is left of a signed thought would be refused
        assert [block["type"] for block in sent_value.json["messages"][1]["content"]] == [
            "tool_use"
        ]


@pytest.mark.parametrize("where", ["system", "thinking", "input"])
async def test_a_word_of_the_list_is_found_wherever_it_stands(
    where: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    request: Json = {"system": "hippo"}
    if where != "system":
        block = {**THOUGHT, "thinking": "hippo"} if where == "thinking" else CALLED
        block = {**block, "input": {"a": ["hippo"]}} if where == "input" else block
        turn = {"role": "assistant", "content": [block]}
        request = {"messages": [*ASKED["messages"], turn]}

    async with guarded(tmp_path, upstream, f"input: [{WORD}]") as (_, client):
        status, raw = await ask(client, **request)

    reply = json.loads(raw)
    assert (status, reply["type"]) == (400, "error")
    assert reply["error"]["type"] == "invalid_request_error"
    assert BLOCKED in reply["error"]["message"]
    assert upstream.requests == []


async def test_a_whole_answer_is_masked_and_its_thoughts_are_no_longer_signed(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    stored = {"type": "thinking", "thinking": "Hm.", "signature": "b3RoZXI="}
    text = {"type": "text", "text": f"Write to {EMAIL}.", "citations": [{"cited_text": EMAIL}]}
    call = {**CALLED, "input": {"to": EMAIL, "n": 1}}
    upstream.answer_with(answer(message(stored, THOUGHT, text, call, stop_reason="tool_use")))

    async with guarded(tmp_path, upstream, f"output: [{PII}]") as (_, client):
        status, raw = await ask(client)

    assert status == 200
    assert EMAIL.encode() not in raw
    reply = json.loads(raw)
    assert [block["type"] for block in reply["content"]] == [
        "thinking",
        "thinking",
        "text",
        "tool_use",
    ]
    assert reply["content"][0] == stored
    assert reply["content"][1]["signature"] == ""
    assert reply["content"][3]["input"]["n"] == 1


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 99])
async def test_a_stream_is_masked_however_it_is_cut_and_its_blocks_stay_in_order(
    size: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    sentence = f"Write to {EMAIL} today."
    arguments = json.dumps({"to": f"{EMAIL}", "n": 1})
    script = message_events(
        block_events(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Hm."},
            {"type": "signature_delta", "signature": "b3RoZXI="},
        ),
        block_events(
            1,
            {"type": "thinking", "thinking": "", "signature": ""},
            *({"type": "thinking_delta", "thinking": part} for part in pieces(sentence, size)),
            {"type": "signature_delta", "signature": "c2lnbmVk"},
        ),
        text_events(2, *pieces(sentence, size)),
        block_events(
            3,
            {**CALLED, "input": {}},
            *({"type": "input_json_delta", "partial_json": p} for p in pieces(arguments, size)),
        ),
        text_events(4, *pieces(sentence, size)),
        reason="tool_use",
    )
    upstream.answer_with(stream(script, is_done=False))

    async with guarded(tmp_path, upstream, f"output: [{PII}]") as (_, client):
        status, raw = await ask(client, stream=True)

    assert status == 200
    document = accumulated(events_of(raw))
    assert EMAIL not in json.dumps(document)
    kinds = [block["type"] for block in document["content"]]
    assert kinds == ["thinking", "thinking", "text", "tool_use", "text"]
    stored, masked, text, call, last_value = document["content"]
    assert stored["signature"] == "b3RoZXI="
    assert masked["signature"] == ""
    for words in (masked["thinking"], text["text"], last_value["text"]):
        assert words.startswith("Write to ")
        assert words.endswith(" today.")
    assert call["input"]["n"] == 1
    assert EMAIL not in call["input"]["to"]


def cited(number: int) -> Json:
    kind, url = "web_search_result_location", f"https://a.test/{number}"
    citation = {"type": kind, "cited_text": f"It is {number}.", "url": url, "title": "A"}
    return {"type": "citations_delta", "citation": citation}


async def test_blocks_and_citations_stay_whole_under_guards(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    results = {"type": "web_search_result", "title": "A", "url": "https://a.test", "page_age": None}
    script = message_events(
        block_events(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Hm."},
            {"type": "signature_delta", "signature": "b3RoZXI="},
        ),
        *(
            block_events(
                number,
                {"type": "server_tool_use", "id": f"srv_{number}", "name": name, "input": {}},
                {"type": "input_json_delta", "partial_json": '{"query": "x"}'},
            )
            for number, name in ((1, "web_search"), (2, "web_fetch"))
        ),
        block_events(
            3,
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srv_1",
                "content": [results, results],
            },
        ),
        block_events(
            4, {"type": "text", "text": "", "citations": []}, cited(1), cited(2),
            {"type": "text_delta", "text": "It is Paris. "},
        ),
        block_events(5, {**CALLED, "input": {}}),
    )  # fmt: skip
    upstream.answer_with(stream(script, is_done=False))

    async with guarded(tmp_path, upstream, f"output: [{PII}]") as (_, client):
        _, raw = await ask(client, stream=True)

    *outputs, _, _ = [data for name, data in events_of(raw) if name != "ping"]
    *expected, _, _ = [document for document in script if document["type"] != "ping"]
    assert outputs == expected


async def test_a_citation_is_masked(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    citation = {"type": "char_location", "cited_text": f"Write to {EMAIL}."}
    event = {"type": "citations_delta", "citation": citation}
    block = {"type": "web_search_tool_result", "content": [{"title": EMAIL}]}
    script = message_events(
        block_events(0, {"type": "text", "text": ""}, event), block_events(1, block)
    )
    upstream.answer_with(stream(script, is_done=False))

    async with guarded(tmp_path, upstream, f"output: [{PII}]") as (_, client):
        status, raw = await ask(client, stream=True)

    assert status == 200
    assert EMAIL.encode() not in raw
    assert raw.count(MASKED.encode()) == 2


SUMMARY: Json = {"type": "compaction", "content": f"They are {EMAIL}."}


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_summary_of_a_compaction_is_masked(
    streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    delta = {"type": "compaction_delta", "content": SUMMARY["content"]}
    started = {"type": "compaction", "content": None}
    script = message_events(block_events(0, started, delta), text_events(1, "Paris."))
    document = message(SUMMARY, {"type": "text", "text": "Paris."})
    upstream.answer_with(stream(script, is_done=False) if streamed else answer(document))

    async with guarded(tmp_path, upstream, f"output: [{PII}]") as (_, client):
        status, raw = await ask(client, stream=streamed)

    assert status == 200
    assert EMAIL.encode() not in raw
    assert (b"compaction" in raw, raw.count(MASKED.encode())) == (True, 1)


@pytest.mark.parametrize("sealed", ["encrypted_content", "signature", None])
async def test_a_summary_that_comes_back_is_masked_or_left_out_where_it_is_sealed(
    sealed: str | None, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(message()))
    block = {**SUMMARY, sealed: "c2VhbGVk"} if sealed else SUMMARY
    turn = {"role": "assistant", "content": [block, {"type": "text", "text": "Paris."}]}
    request = [*ASKED["messages"], turn, {"role": "user", "content": "And now?"}]

    async with guarded(tmp_path, upstream, f"input: [{PII}]") as (_, client):
        status, raw = await ask(client, messages=request)

    assert status == 200, raw
    [sent_value] = upstream.requests
    assert EMAIL not in json.dumps(sent_value.json)
    kinds = [block["type"] for block in sent_value.json["messages"][1]["content"]]
    assert kinds == (["text"] if sealed else ["compaction", "text"])


async def test_what_nothing_had_to_change_is_what_it_was_under_guards(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    script = message_events(text_events(0, "It is ", "Paris."))
    upstream.answer_with(stream(script, is_done=False))

    async with guarded(tmp_path, upstream, f"output: [{PII}]") as (_, client):
        _, raw = await ask(client, stream=True)

    *outputs, delta, stop = [data for name, data in events_of(raw) if name != "ping"]
    *expected, last_document, end = [document for document in script if document["type"] != "ping"]
    assert (outputs, stop) == (expected, end)
    assert delta == {
        **last_document,
        "usage": {"input_tokens": 5, "output_tokens": 3},
    }  # all so far


async def test_a_blocked_stream_ends_with_an_error(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    script = message_events(text_events(0, "A ", "hip", "po."))
    upstream.answer_with(stream(script, is_done=False))

    async with guarded(tmp_path, upstream, f"output: [{WORD}]") as (_, client):
        status, raw = await ask(client, stream=True)

    assert b"hippo" not in raw
    if status == 200:
        name, data = events_of(raw)[-1]
        assert (name, BLOCKED in data["error"]["message"]) == ("error", True)
    else:
        assert BLOCKED in json.loads(raw)["error"]["message"]


LATER = "of_next_year"


def hidden_in(kind: str, size: int) -> list[Json]:
    """Return the events of a block that says an address somewhere, in pieces of this size."""
    if kind == "citation":
        cited = {"type": "char_location", "cited_text": f"by {EMAIL}", "document_index": 0}
        text = {"type": "text_delta", "text": "x"}
        delta = {"type": "citations_delta", "citation": cited}
        return block_events(0, {"type": "text", "text": ""}, text, delta)
    if kind == "result":
        page = {"type": "web_search_result", "title": EMAIL, "url": "https://a.test"}
        return block_events(0, {"type": "web_search_tool_result", "content": [page]})
    if kind == LATER:
        sentences = pieces(f"Write to {EMAIL}.", size)
        return block_events(0, {"type": kind}, *({"type": "words", "words": w} for w in sentences))
    block = {"type": kind, "id": "s", "name": "web_search", "input": {}}
    written = pieces(json.dumps({"query": EMAIL}), size)
    return block_events(
        0, block, *({"type": "input_json_delta", "partial_json": p} for p in written)
    )


@pytest.mark.parametrize("size", [1, 3, 8, 99])
@pytest.mark.parametrize("kind", ["server_tool_use", "mcp_tool_use", "citation", "result", LATER])
async def test_no_block_of_a_stream_hides_anything(
    kind: str, size: int, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(stream(message_events(hidden_in(kind, size)), is_done=False))

    async with guarded(tmp_path, upstream, f"output: [{PII}]") as (_, client):
        _, raw = await ask(client, stream=True)

    deltas = [data.get("delta", {}) for _, data in events_of(raw)]
    joined = "".join(delta.get("partial_json", delta.get("words", "")) for delta in deltas)
    assert EMAIL not in raw.decode()
    assert EMAIL not in joined


TEXT: Json = {"type": "text", "text": ""}


def delta_of(index: int, kind: str, **member: str) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **member}}


@pytest.mark.parametrize(
    ("block", "member", "other_text"),
    [
        (TEXT, "text", "thinking"),
        ({"type": "thinking", "thinking": "", "signature": ""}, "text", "thinking"),
        ({"type": "thinking", "thinking": "", "signature": ""}, "thinking", "text"),
        ({"type": LATER}, "text", "thinking"),
    ],
)
async def test_deltas_of_another_kind_in_a_block_hide_nothing(
    block: Json, member: str, other_text: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    texts = [(member, EMAIL[:4]), (other_text, "x "), (member, f"{EMAIL[4:]}.")]
    deltas = [{"type": f"{name}_delta", name: text} for name, text in texts]
    upstream.answer_with(stream(message_events(block_events(0, block, *deltas)), is_done=False))

    async with guarded(tmp_path, upstream, f"output: [{PII}]") as (_, client):
        _, raw = await ask(client, stream=True)

    values = [data.get("delta", {}) for _, data in events_of(raw)]
    assert EMAIL not in "".join(item.get(member, "") for item in values)
    assert MASKED in "".join(item.get(member, "") for item in values)


async def test_blocks_that_take_turns_hide_nothing_from_a_chat_client(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    starts = [
        {"type": "content_block_start", "index": position, "content_block": TEXT}
        for position in (0, 1)
    ]
    values = [
        delta_of(0, "text_delta", text=EMAIL[:4]),
        delta_of(1, "text_delta", text=f"{EMAIL[4:]}."),
    ]
    ends = [{"type": "content_block_stop", "index": position} for position in (0, 1)]
    upstream.answer_with(stream(message_events([*starts, *values, *ends]), is_done=False))
    headers = {**BEARER, "x-headrace-deployment": "via-anthropic"}
    request = {"messages": [{"role": "user", "content": "Hi"}], "model": "m", "stream": True}

    async with (
        guarded(tmp_path, upstream, f"output: [{PII}]") as (_, client),
        client.post("/v1/chat/completions", headers=headers, json=request) as response,
    ):
        raw = await response.read()

    chunks = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: {")]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    string = "".join(choice["delta"].get("content") or "" for choice in choices)
    assert EMAIL not in string
    assert MASKED in string


PAYS: Json = {**CALLED, "input": {"card": 4111111111111111, "of": [4111111111111111, 7, 0.5, True]}}
PAID: Json = {"card": "[CARD]", "of": ["[CARD]", 7, 0.5, True]}
CARDS = "{guard: pii, entities: [card], action: mask}"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", ["tool_use", "server_tool_use"])
async def test_a_number_that_a_tool_is_asked_is_masked_whole_and_in_a_stream(
    kind: str, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    block = {**PAYS, "type": kind}
    delta = {"type": "input_json_delta", "partial_json": json.dumps(PAYS["input"])}
    events = message_events(block_events(0, {**block, "input": {}}, delta), reason="tool_use")
    upstream.answer_with(stream(events, is_done=False) if streamed else answer(message(block)))

    async with guarded(tmp_path, upstream, f"output: [{CARDS}]") as (_, client):
        status, raw = await ask(client, stream=streamed)

    assert status == 200
    document = accumulated(events_of(raw)) if streamed else json.loads(raw)
    assert document["content"][0]["input"] == PAID


async def test_a_number_that_a_tool_was_asked_is_masked_in_a_question(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(message()))
    result = {"type": "tool_result", "tool_use_id": PAYS["id"], "content": "Paid."}
    messages = [
        {"role": "user", "content": "Pay."},
        {"role": "assistant", "content": [PAYS]},
        {"role": "user", "content": [result]},
    ]

    async with guarded(tmp_path, upstream, f"input: [{CARDS}]") as (_, client):
        status, _ = await ask(client, messages=messages)

    assert status == 200
    [sent_value] = upstream.requests
    assert sent_value.json["messages"][1]["content"][0]["input"] == PAID


async def test_a_number_with_which_a_block_begins_is_masked(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    events = message_events(block_events(0, {**PAYS, "type": "server_tool_use"}))
    upstream.answer_with(stream(events, is_done=False))

    async with guarded(tmp_path, upstream, f"output: [{CARDS}]") as (_, client):
        _, raw = await ask(client, stream=True)

    started = next(event for name, event in events_of(raw) if name == "content_block_start")
    assert started["content_block"]["input"] == PAID


ENDS: dict[str, Json] = {
    "a stop sequence": {"stop_reason": "stop_sequence", "stop_sequence": "END"},
    "a refusal": {
        "stop_reason": "refusal",
        "stop_details": {"type": "refusal", "explanation": "No.", "category": "cyber"},
    },
    "a container": {"stop_reason": "end_turn", "container": {"id": "c_1", "expires_at": "2026"}},
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_the_end_of_a_stream_is_one_event_under_guards(
    end: Json, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    started, *events, ended, stop = message_events(text_events(0, "It is ", "Paris."))
    started["message"]["container"] = {"id": "c_1", "expires_at": "2026"}
    ended |= {"delta": end, "context_management": {"applied_edits": [{"type": "cleared"}]}}
    odd = {"type": "nobody_knows", "says": "it", "and": ["that"]}
    upstream.answer_with(stream([started, *events, odd, ended, stop], is_done=False))

    async with guarded(tmp_path, upstream, f"output: [{PII}]") as (_, client):
        _, raw = await ask(client, stream=True)

    received = dict(events_of(raw))
    assert [name for name, _ in events_of(raw)].count("message_delta") == 1
    assert received["message_delta"] == {**ended, "usage": {"input_tokens": 5, "output_tokens": 3}}
    assert received["message_start"]["message"]["container"] == started["message"]["container"]
    assert received["nobody_knows"] == odd


async def test_the_end_of_a_stream_is_masked(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    *events, ended, stop = message_events(text_events(0, "It is ", "Paris."))
    ended["delta"] = {"stop_reason": "refusal", "stop_details": {"explanation": f"Ask {EMAIL}"}}
    odd = {"type": "nobody_knows", "says": EMAIL}
    upstream.answer_with(stream([*events, odd, ended, stop], is_done=False))

    async with guarded(tmp_path, upstream, f"output: [{PII}]") as (_, client):
        _, raw = await ask(client, stream=True)

    received = dict(events_of(raw))
    assert received["nobody_knows"]["says"] == MASKED
    assert received["message_delta"]["delta"]["stop_details"]["explanation"] == f"Ask {MASKED}"
