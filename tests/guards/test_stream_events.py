"""Events of guarded streams: a guard may split and mask deltas, and change nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

import pytest

from proxy.dialects.responses.schema import BY_KIND
from tests.adversary.answers import item, part_events
from tests.dialects.test_responses import BEARER, streamed
from tests.dialects.test_responses import REQUEST as RESPONSES_BODY
from tests.dialects.vendors.test_anthropic import HEADERS, events_of
from tests.dialects.vendors.test_anthropic import REQUEST as MESSAGES_BODY
from tests.doubles import (
    Json,
    ScriptedUpstream,
    block_events,
    message_events,
    response,
    response_events,
    stream,
    text_events,
)
from tests.guards.calls import cut
from tests.guards.conftest import Guard

WORD, MASK = "hippopotamus", "[WORD]"
PLAIN = "See the river, and no animal at all, for a day or two."
TEXTS = {"clean": PLAIN, "finding": f"See the {WORD}, and the {WORD}, for a day or two."}
RULES = {
    "mask": f"output: [{{guard: keywords, words: [{WORD}], action: mask}}]",
    "block": f"output: [{{guard: keywords, words: [{WORD}]}}]",
}
CASES = [("block", "clean"), ("mask", "finding")]
SIZES = (1, 3, 7, 12, 13, 16, 20, 25, 60, 999)
BASE: Json = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def arguments(text: str) -> str:
    return json.dumps({"n": 1, "note": text, "to": "Paris"})


NATIVE: dict[str, tuple[str, str, Json]] = {
    "mcp_call": (
        "response.mcp_call_arguments",
        "arguments",
        {"type": "mcp_call", "name": "f", "server_label": "a"},
    ),
    "code_interpreter_call": (
        "response.code_interpreter_call_code",
        "code",
        {"type": "code_interpreter_call", "container_id": "cntr_1"},
    ),
}
"""Items whose texts have no place in a chat: their events, the member of the text, the item."""
ITEMS = (*BY_KIND, *NATIVE)


def whole_item(index: int, kind: str, text: str) -> Json:
    """Return an item with a text of a kind, as it is at its end."""
    text = arguments(text) if kind in ("arguments", "mcp_call") else text
    if kind not in NATIVE:
        return item(index, kind, [text])
    _, member, head = NATIVE[kind]
    return {"id": f"it_{index}", "status": "completed", **head, member: text}


def item_events(index: int, kind: str, document: Json, size: int) -> list[Json]:
    """Return the events of an item whose text comes in deltas of ``size`` characters."""
    where: Json = {"item_id": document["id"], "output_index": index}
    if kind in NATIVE:
        event, member, _ = NATIVE[kind]
        deltas = [
            {"type": f"{event}.delta", **where, "delta": p} for p in cut(document[member], size)
        ]
        events = [*deltas, {"type": f"{event}.done", **where, member: document[member]}]
        started = {**document, member: ""}
    else:
        part = BY_KIND[kind]
        holder = document[part.list_member][0] if part.part_type else document
        events = part_events(where, kind, 0, cut(holder[part.member], size))
        started = {**document, **({part.list_member: []} if part.part_type else {part.member: ""})}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": started},
        *events,
        {"type": "response.output_item.done", "output_index": index, "item": document},
    ]


def responses_script(kinds: Sequence[str], text: str, size: int) -> list[Json]:
    items = [whole_item(index, kind, text) for index, kind in enumerate(kinds)]
    events = [item_events(i, kind, items[i], size) for i, kind in enumerate(kinds)]
    return response_events(*events, document=response(*items))


def block(index: int, kind: str, text: str, size: int) -> list[Json]:
    if kind == "text":
        return text_events(index, *cut(text, size))
    if kind == "thinking":
        thoughts = [{"type": "thinking_delta", "thinking": piece} for piece in cut(text, size)]
        signed = {"type": "signature_delta", "signature": "c2lnbmVk"}
        return block_events(
            index, {"type": kind, "thinking": "", "signature": ""}, *thoughts, signed
        )
    deltas = [
        {"type": "input_json_delta", "partial_json": piece} for piece in cut(arguments(text), size)
    ]
    started = {"type": kind, "id": f"toolu_{index}", "name": "look_up", "input": {}}
    return block_events(index, started, *deltas)


BLOCKS = ("text", "thinking", "tool_use", "server_tool_use")


def messages_script(kinds: Sequence[str], text: str, size: int) -> list[Json]:
    blocks = [block(index, kind, text, size) for index, kind in enumerate(kinds)]
    events = message_events(*blocks, usage={"input_tokens": 5, "output_tokens": 3})
    return [event for event in events if event["type"] != "ping"]


def chat_deltas(kind: str, index: int, text: str, size: int) -> Iterator[Json]:
    if kind not in ("function", "custom"):
        yield from ({kind: piece} for piece in cut(text, size))
        return
    member = "arguments" if kind == "function" else "input"
    text = arguments(text) if kind == "function" else text
    head = {"index": index, "id": f"call_{index}", "type": kind, kind: {"name": "f", member: ""}}
    yield {"tool_calls": [head]}
    for piece in cut(text, size):
        yield {"tool_calls": [{"index": index, kind: {member: piece}}]}


DELTAS = ("content", "reasoning_content", "refusal", "function", "custom")


def chat_script(kinds: Sequence[str], text: str, size: int) -> list[Json]:
    choice = {"index": 0, "logprobs": None}
    deltas = [{"role": "assistant", "content": ""}]
    for index, kind in enumerate(kinds):
        deltas += chat_deltas(kind, kinds[:index].count(kind), text, size)
    ends: list[tuple[Json, str]] = [({}, "stop")]
    return [
        {**BASE, "choices": [{**choice, "delta": delta, "finish_reason": finish}]}
        for delta, finish in [*((delta, None) for delta in deltas), *ends]
    ]


def chat_events_of(raw: bytes) -> list[Json]:
    lines = [line[6:] for line in raw.splitlines() if line.startswith(b"data: ")]
    assert lines[-1] == b"[DONE]"
    return [json.loads(line) for line in lines[:-1]]


OF_RESPONSE = ("id", "object", "created_at", "model", "status", "output", "usage")


def compared(event: Json) -> Json:
    """Return a copy of what of an event is compared."""
    bare: Json = json.loads(json.dumps(event))
    bare.pop("sequence_number", None)
    for document in (bare, *bare.get("choices", ())):
        if not document.get("logprobs"):
            document.pop("logprobs", None)
    if "response" in bare:  # the rest of it repeats the request
        bare["response"] = {name: bare["response"][name] for name in OF_RESPONSE}
    return bare


def take(event: Json) -> tuple[Json, str | None]:
    """Return an event with its delta's text taken out, and that text; None if it has none."""
    bare = compared(event)
    if isinstance(bare.get("delta"), str):
        return bare, bare.pop("delta")
    delta = bare.get("delta") if bare.get("type") == "content_block_delta" else None
    choices = bare.get("choices")
    if choices:
        delta = choices[0]["delta"]
        for call in delta.get("tool_calls", ()):
            delta = call.get("function", call.get("custom"))
    members = ("text", "thinking", "partial_json", "content", "reasoning_content", "refusal")
    for name in (*members, "arguments", "input"):
        if isinstance(delta, dict) and isinstance(delta.get(name), str):
            text, delta[name] = delta[name], ""
            return bare, text
    return bare, None


def joined(events: Sequence[Json], *, adjacent: bool) -> list[tuple[Json, str | None]]:
    """Return events with the deltas of one text put together: where nothing stands between them, or
    wherever they are, as in a chat, whose texts are told apart by their members."""
    out: list[tuple[Json, str | None]] = []
    for bare, text in map(take, events):
        places = range(max(0, len(out) - 1) if adjacent else 0, len(out))
        place = next((index for index in places if out[index][0] == bare), None)
        if text is not None and place is not None:
            out[place] = bare, (out[place][1] or "") + text
        else:
            out.append((bare, text))
    return out


def masked(events: list[tuple[Json, str | None]]) -> list[tuple[Json, str | None]]:
    """Return events with the word masked, and without signatures of thoughts that had it."""
    written = json.dumps(events)
    matches: list[tuple[Json, str | None]] = [
        (item, text)
        for item, text in json.loads(written.replace(WORD, MASK))
        if WORD not in written or "signature_delta" not in json.dumps(item)
    ]
    return matches


Script = Callable[[Sequence[str], str, int], list[Json]]
Reading = Callable[[bytes], list[Json]]
CHAT_BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi."}]}
FAMILIES: dict[str, tuple[str, str, Json, dict[str, str], Script, Reading, Sequence[str]]] = {
    "responses": (*("/v1/responses", "support-chat", RESPONSES_BODY, BEARER),
        *(responses_script, streamed, ITEMS)),
    "messages": (
        *("/v1/messages", "via-anthropic", MESSAGES_BODY, HEADERS),
        *(messages_script, lambda raw: [data for _, data in events_of(raw)], BLOCKS),
    ),
    "chat": (*("/v1/chat/completions", "search-answers", CHAT_BODY, BEARER),
        *(chat_script, chat_events_of, DELTAS)),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "texts"), CASES)
@pytest.mark.parametrize(
    ("family", "kind"), [(family, kind) for family in FAMILIES for kind in FAMILIES[family][-1]]
)
async def test_guard_changes_only_text_of_deltas(
    family: str, kind: str, rule: str, texts: str, guard: Guard, upstream: ScriptedUpstream
) -> None:
    """For every cut, types, indexes, ids, numbers and final items are those of the upstream."""
    path, model, body, headers, script, read, kinds = FAMILIES[family]
    headers = {**headers, "x-headrace-deployment": model}
    order = [kinds[0], kind, kinds[0], kind] if kind != kinds[0] else [kind, kind]
    proxy = await guard(RULES[rule])
    adjacent = family != "chat"
    for size in SIZES:
        events = script(order, TEXTS[texts], size)
        upstream.answer_with(stream(events, is_done=family == "chat"))

        reply = await proxy.send(path, {**body, "stream": True}, headers)

        outputs = read(reply.raw)
        expected = masked(joined(events, adjacent=adjacent))
        assert reply.status == 200, reply.raw
        assert joined(outputs, adjacent=adjacent) == expected, size
        assert take(outputs[-1])[0] == expected[-1][0]


@pytest.mark.parametrize("size", [1, 60_000])
@pytest.mark.parametrize("kind", BY_KIND)
@pytest.mark.parametrize("at_end", ["item", "response"])
async def test_text_without_deltas_is_masked_in_place(
    at_end: str, kind: str, size: int, guard: Guard, upstream: ScriptedUpstream
) -> None:
    """An item that only its last event, or only the end of the response, has as a whole."""
    text = f"{TEXTS['finding']} {'a river ' * (size // 8)}"
    items = [whole_item(0, "text", text), whole_item(1, kind, text)]
    result = [
        {"type": "response.output_item.done", "output_index": index, "item": item}
        for index, item in enumerate(items if at_end == "item" else items[:1])
    ]
    events = response_events(result, document=response(*items))
    upstream.answer_with(stream(events, is_done=False))
    proxy = await guard(RULES["mask"])

    reply = await proxy.send("/v1/responses", {**RESPONSES_BODY, "stream": True})

    expected = json.dumps([*map(compared, events)]).replace(WORD, MASK)
    assert [*map(compared, streamed(reply.raw))] == json.loads(expected)
