"""Whatever turns the items of a streamed response take, and the parts of one item: whoever reads it
reads the same texts as if each came after the other, and guards find the same in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dialects import DIALECTS
from proxy.dialects.documents import Documents
from proxy.dialects.hub import chat_order, turning
from proxy.dialects.messages.writing import MessageEvents
from proxy.dialects.reading import StreamReader
from proxy.dialects.responses.events import ResponseEvents
from proxy.dialects.responses.words import KINDS
from proxy.errors import UpstreamInvalid
from proxy.guardrails.findings.tally import RuleTally
from proxy.guardrails.stream.filter import StreamFilter
from proxy.guardrails.stream.placeholders import Masks, placeholder_key
from proxy.types import Call, Chunk, Endpoint, RequestHead
from proxy.types.events import FamilyName
from proxy.types.guard import Action
from tests.dialects.test_responses import streamed
from tests.doubles import Json, response, response_events
from tests.guardrails.doubles import tallies
from tests.guardrails.stream.test_words import made

CARD = "4111 1111 1111 1111"
SAYS = f"my card is {CARD}, is it not"
ITEMS: Mapping[str, str] = {
    "text": "message",
    "refusal": "message",
    "thought": "reasoning",
    "summary": "reasoning",
    "arguments": "function_call",
    "input": "custom_tool_call",
}
"""By a kind of text: the type of the items that have it."""
CLIENTS: Mapping[str, tuple[str, Endpoint]] = {
    "responses": ("openai", "responses"),
    "chat": ("openai", "chat"),
    "messages": ("anthropic", "chat"),
}
FORMS: Mapping[str, FamilyName] = {"messages": "messages"}
"""Clients of another form than an upstream of Responses has, who read one thing after another."""


def item(at: int, kind: str, texts: Sequence[str]) -> Json:
    """Return an item that says texts of one kind, as it is at its end."""
    spoken, head = KINDS[kind], {"id": f"it_{at}", "type": ITEMS[kind], "status": "completed"}
    if spoken.part_index is None:
        return {**head, "call_id": f"call_{at}", "name": f"f_{at}", spoken.member: texts[0]}
    parts: list[Json] = [{"type": spoken.part, spoken.member: text} for text in texts]
    rest: Json = {"role": "assistant"} if ITEMS[kind] == "message" else {"summary": []}
    return {**head, **rest, spoken.within: parts}


def part_events(where: Json, kind: str, part: int, pieces: Sequence[str]) -> list[Json]:
    """Return the events of one text."""
    spoken, text = KINDS[kind], "".join(pieces)
    where = where if spoken.part_index is None else {**where, spoken.part_index: part}
    deltas = [{"type": f"{spoken.event}.delta", **where, "delta": piece} for piece in pieces]
    done: Json = {"type": f"{spoken.event}.done", **where, spoken.member: text}
    if spoken.part_index is None:
        return [*deltas, done]
    name = "reasoning_summary_part" if kind == "summary" else "content_part"
    whole = {"type": spoken.part, spoken.member: text}
    begun = {"type": f"response.{name}.added", **where, "part": {**whole, spoken.member: ""}}
    return [begun, *deltas, done, {"type": f"response.{name}.done", **where, "part": whole}]


def in_turns(lists: Sequence[Sequence[Json]], draws: Iterator[int]) -> list[Json]:
    """Return the events of several lists, which begin one after the other and then take turns."""
    left, begun, out = [list(each) for each in lists], 0, list[Json]()
    while any(left):
        open_now = [n for n, each in enumerate(left) if each and n <= begun]
        if not open_now:
            begun += 1
            continue
        chosen = open_now[next(draws) % len(open_now)]
        begun = max(begun, chosen + 1)
        out.append(left[chosen].pop(0))
    return out


def cut(text: str, cuts: Sequence[int]) -> list[str]:
    edges = sorted({0, *(each for each in cuts if each < len(text)), len(text)})
    return [text[a:b] for a, b in pairwise(edges)]


Said = Sequence[tuple[str, Sequence[Sequence[int]]]]
"""Of each item the kind of its texts, and where each of these is cut."""


def answer_of(said: Said, draws: Iterator[int], *, ended: bool = True) -> list[Json]:
    """Return the events of an answer whose items, and their parts, take turns as drawn."""
    items: list[Json] = []
    events: list[list[Json]] = []
    for at, (kind, cuts) in enumerate(said):
        text = orjson.dumps({"says": SAYS}).decode() if kind == "arguments" else SAYS
        texts = [text] * (1 if KINDS[kind].part_index is None else len(cuts))
        whole = item(at, kind, texts)
        where = {"item_id": whole["id"], "output_index": at}
        parts = [part_events(where, kind, n, cut(each, cuts[n])) for n, each in enumerate(texts)]
        empty = {**whole, KINDS[kind].within: []} if KINDS[kind].part_index else dict(whole)
        empty |= {} if KINDS[kind].part_index else {KINDS[kind].member: ""}
        begun = {"type": "response.output_item.added", "output_index": at, "item": empty}
        done = {"type": "response.output_item.done", "output_index": at, "item": whole}
        items.append(whole)
        events.append([begun, *in_turns(parts, draws), *([done] if ended else [])])
    return response_events(in_turns(events, draws), whole=response(*items))


def call_of(form: str) -> Call:
    dialect, endpoint = CLIENTS[form]
    return Call(RequestHead(dialect, endpoint, "/v1", "req_1"), {"stream": True}, stream=True)


def reader(form: str, *, ordered: bool = True) -> StreamReader:
    call, openai = call_of(form), DIALECTS["openai"]
    client = DIALECTS[call.head.dialect]
    turn = turning(call, "responses", client, openai)
    return StreamReader(
        0,
        turn,
        openai.server.endpoints["responses"],
        Documents(),
        own=form == "responses",
        ordered=ordered,
        chat_order=None if form not in FORMS else chat_order(call, FORMS[form], waits=False),
    )


def chunks_of(form: str, events: Sequence[Json], *, ordered: bool = True) -> list[Chunk]:
    read = reader(form, ordered=ordered)
    made = [chunk for each in events for chunk in read.read(orjson.dumps(each))]
    assert made[-1].last
    return made


def shown(form: str, chunks: Sequence[Chunk]) -> Any:
    """Return what a client has of an answer in the end."""
    if form == "responses":
        writer = ResponseEvents(call_of(form))
        return output(b"".join([writer.feed(chunk) for chunk in chunks]))
    if form == "messages":
        return blocks(b"".join(map(MessageEvents().feed, chunks)))
    texts: dict[Any, str] = {}
    for chunk in chunks:
        for choice in (chunk.data or {}).get("choices", ()):
            delta = choice["delta"]
            for name in ("content", "refusal", "reasoning_content"):
                texts[name] = texts.get(name, "") + (delta.get(name) or "")
            for call in delta.get("tool_calls", ()):
                inner = call.get("function") or call["custom"]
                text = inner.get("arguments") or inner.get("input") or ""
                texts[call["index"]] = texts.get(call["index"], "") + text
    return texts


def output(raw: bytes) -> Any:
    """Return the items that a response has in the end, and what deltas have said; check that the
    events in between say the same."""
    texts: dict[Any, str] = {}
    items: dict[int, Json] = {}
    for number, each in enumerate(events := streamed(raw)):
        assert each["sequence_number"] == number
        kind = each["type"].rpartition(".")[0]
        part = each.get("content_index", each.get("summary_index"))
        where = kind, each.get("output_index"), part
        if each["type"].endswith(".delta"):
            texts[where] = texts.get(where, "") + each["delta"]
        elif where in texts:
            assert texts[where] in each.values()
        elif each["type"] == "response.output_item.done":
            items[each["output_index"]] = each["item"]
    whole: list[Json] = events[-1]["response"]["output"]
    assert all(whole[at] == each for at, each in items.items())
    return [whole, texts]


def blocks(raw: bytes) -> list[Json]:
    made: list[Json] = []
    for line in raw.splitlines():
        event = orjson.loads(line[6:]) if line.startswith(b"data: ") else {}
        if event.get("type") == "content_block_start":
            made.append({**event["content_block"], "said": ""})
        elif event.get("type") == "content_block_delta":
            delta = event["delta"]
            made[-1]["said"] += "".join(map(str, [v for n, v in delta.items() if n != "type"]))
    return made


def guarded(chunks: Sequence[Chunk], action: Action) -> tuple[list[Chunk], list[RuleTally]]:
    rules = tallies(made("pii", action))
    watching = StreamFilter.under(rules)
    return [safe for chunk in as_read(chunks) for safe in watching.feed(chunk)], rules


def as_read(chunks: Sequence[Chunk]) -> list[Chunk]:
    return [chunk.rewritten(chunk.data) for chunk in chunks]


SAID = st.lists(
    st.tuples(
        st.sampled_from(sorted(ITEMS)),
        st.lists(st.lists(st.integers(0, 60), max_size=4), min_size=1, max_size=2),
    ),
    min_size=1,
    max_size=3,
)
DRAWS = st.lists(st.integers(0, 5), min_size=1, max_size=60)


def drawn(draws: Sequence[int]) -> Iterator[int]:
    while True:
        yield from draws


def in_sequence() -> Iterator[int]:
    return drawn([0])


@settings(max_examples=150, deadline=None)
@given(SAID, DRAWS, st.sampled_from(sorted(CLIENTS)), st.booleans())
def test_every_order_masks_alike(said: Said, draws: list[int], form: str, ended: bool) -> None:
    turns, sequence = (answer_of(said, each, ended=ended) for each in (drawn(draws), in_sequence()))

    assert shown(form, chunks_of(form, turns)) == shown(form, chunks_of(form, sequence))
    masked, _ = guarded(chunks_of(form, turns), "mask")
    left = shown(form, masked)
    if ended:  # else a client of Messages may get a text in more blocks: docs/limits.md
        assert left == shown(form, guarded(chunks_of(form, sequence), "mask")[0])
    assert CARD not in str(left)


@settings(max_examples=60, deadline=None)
@given(SAID, DRAWS, st.sampled_from(sorted(CLIENTS)))
def test_every_turn_flags_the_same_and_shows_all(said: Said, draws: list[int], form: str) -> None:
    turns, sequence = answer_of(said, drawn(draws)), answer_of(said, in_sequence())

    passed, rules = guarded(chunks_of(form, turns), "flag")
    _, others = guarded(chunks_of(form, sequence), "flag")

    assert [each.result().findings for each in rules] == [each.result().findings for each in others]
    assert shown(form, passed) == shown(form, chunks_of(form, sequence))


@settings(max_examples=60, deadline=None)
@given(SAID, DRAWS, st.sampled_from(sorted(CLIENTS)))
def test_every_turn_gets_its_values_back(said: Said, draws: list[int], form: str) -> None:
    masks = Masks.of(placeholder_key(), "key")
    placeholder = masks.placeholder("card", CARD)
    turns = orjson.loads(
        orjson.dumps(answer_of(said, drawn(draws))).replace(CARD.encode(), placeholder.encode())
    )
    plain = answer_of(said, in_sequence())

    filled = StreamFilter(masks)
    back = [safe for chunk in as_read(chunks_of(form, turns)) for safe in filled.feed(chunk)]

    restored, expected = (repr(shown(form, each)) for each in (back, chunks_of(form, plain)))
    assert restored.replace(placeholder, CARD) == expected
    thoughts = {"summary", "thought"} & dict(said).keys()
    assert placeholder not in restored or thoughts


@settings(max_examples=60, deadline=None)
@given(SAID, DRAWS, st.sampled_from(sorted(CLIENTS)), st.integers(1, 60))
def test_cut_stream_shows_no_more_text(said: Said, draws: list[int], form: str, end: int) -> None:
    read = reader(form)
    came = answer_of(said, drawn(draws))[:-1][:end]
    chunks = [chunk for each in came for chunk in read.read(orjson.dumps(each))]
    with pytest.raises(UpstreamInvalid):
        while left := read.end():
            chunks += left
    assert not any(chunk.last for chunk in chunks)

    masked, _ = guarded(chunks, "mask")

    assert CARD not in orjson.dumps([chunk.data for chunk in masked]).decode()


def test_without_guards_a_client_of_the_same_form_gets_what_came() -> None:
    came = answer_of([("arguments", [[20]]), ("arguments", [[22]])], drawn([0, 1, 1, 0]))

    chunks = chunks_of("responses", came, ordered=False)

    assert [chunk.raw for chunk in chunks if chunk.raw] == [orjson.dumps(each) for each in came]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 60), max_size=4), min_size=2, max_size=3), DRAWS)
def test_interleaved_calls_stay_whole_and_masked(cuts: list[list[int]], draws: list[int]) -> None:
    said = orjson.dumps({"says": SAYS}).decode()
    calls = [
        [
            {"index": at, "id": f"call_{at}", "function": {"name": "f", "arguments": ""}},
            *({"index": at, "function": {"arguments": piece}} for piece in cut(said, each)),
        ]
        for at, each in enumerate(cuts)
    ]
    deltas = [*({"tool_calls": [call]} for call in in_turns(calls, drawn(draws))), {}]
    turn = turning(call_of("responses"), "chat", DIALECTS["openai"], DIALECTS["openai"])
    assert turn is not None
    chunks = [
        Chunk(turn({"id": "1", "choices": [{"index": 0, "delta": each, "finish_reason": end}]}))
        for each, end in zip(deltas, [None] * (len(deltas) - 1) + ["tool_calls"], strict=True)
    ]
    ended = Chunk(None, last=True)

    items, _ = shown("responses", [*chunks, ended])
    masked, _ = shown("responses", guarded([*chunks, ended], "mask")[0])

    assert [each["arguments"] for each in items] == [said] * len(cuts)
    assert [each["arguments"] for each in masked] == [said.replace(CARD, "[CARD]")] * len(cuts)
