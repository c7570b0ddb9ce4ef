"""Random streams of each API family, and the texts that clients read in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import orjson
from hypothesis import strategies as st

from proxy.dialects.responses.schema import TEXT_BY_KIND
from proxy.guards.findings import RuleTally
from proxy.guards.stream.filter import StreamFilter
from proxy.types.events import FamilyName, Frame
from proxy.types.guard import Action
from tests.dialects.test_responses import streamed
from tests.doubles import Json
from tests.golden.pipeline import Pipeline, written
from tests.guards.doubles import tallies
from tests.guards.stream.test_word_scanner import guard_rule

CARD = "4111 1111 1111 1111"
SAYS = f"my card is {CARD}, is it not"
ARGUMENTS = orjson.dumps({"says": SAYS}).decode()
CLIENTS: Sequence[FamilyName] = ("responses", "chat", "messages")
PAIRS = [(client, upstream) for client in CLIENTS for upstream in CLIENTS]
Pieces = Sequence[str]


def item(index: int, kind: str, texts: Pieces) -> Json:
    """Return the final form of an item with texts of one kind."""
    text_type = TEXT_BY_KIND[kind]
    head = {"id": f"it_{index}", "type": text_type.item_type, "status": "completed"}
    if not text_type.part_type:
        return {
            **head,
            "call_id": f"call_{index}",
            "name": f"f_{index}",
            text_type.member: texts[0],
        }
    parts: list[Json] = [{"type": text_type.part_type, text_type.member: text} for text in texts]
    remainder: Json = {"role": "assistant"} if text_type.item_type == "message" else {"summary": []}
    return {**head, **remainder, text_type.list_member: parts}


def part_events(where: Json, kind: str, part: int, pieces: Pieces) -> list[Json]:
    """Return the events of one text."""
    text_type, text = TEXT_BY_KIND[kind], "".join(pieces)
    where = where | ({text_type.index_member: part} if text_type.part_type else {})
    deltas = [{"type": f"{text_type.event}.delta", **where, "delta": piece} for piece in pieces]
    result: Json = {"type": f"{text_type.event}.done", **where, text_type.member: text}
    if not text_type.part_type:
        return [*deltas, result]
    name = "reasoning_summary_part" if kind == "summary" else "content_part"
    document = {"type": text_type.part_type, text_type.member: text}
    started = {
        "type": f"response.{name}.added",
        **where,
        "part": {**document, text_type.member: ""},
    }
    return [started, *deltas, result, {"type": f"response.{name}.done", **where, "part": document}]


def interleaved(lists: Sequence[Sequence[Json]], draws: Iterator[int]) -> list[Json]:
    """Interleave the events of several lists, which start one after the other."""
    remaining, started, out = [list(item) for item in lists], 0, list[Json]()
    while any(remaining):
        open_now = [n for n, item in enumerate(remaining) if item and n <= started]
        if not open_now:
            started += 1
            continue
        chosen = open_now[next(draws) % len(open_now)]
        started = max(started, chosen + 1)
        out.append(remaining[chosen].pop(0))
    return out


DRAWS = st.lists(st.integers(0, 5), min_size=1, max_size=60)


def repeat_endlessly(draws: Sequence[int]) -> Iterator[int]:
    while True:
        yield from draws


def cut(text: str, cuts: Sequence[int]) -> list[str]:
    edges = sorted({0, *(cut for cut in cuts if cut < len(text)), len(text)})
    return [text[a:b] for a, b in pairwise(edges)]


def chunk(delta: Json, finish: str | None = None) -> Json:
    return {"id": "1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def frames_of(client: FamilyName, upstream: FamilyName, documents: Sequence[Json]) -> list[Frame]:
    """Return the frames of a response as guards get them."""
    pipeline = Pipeline(upstream, client, inspect=True)
    frames = pipeline.frames([orjson.dumps(document) for document in documents])
    assert pipeline.error is None
    return [frame._replace(raw=None) for frame in frames]


def guarded(frames: Sequence[Frame], action: Action) -> tuple[list[Frame], list[RuleTally]]:
    rules = tallies(guard_rule("pii", action))
    watching = StreamFilter.for_rules(rules)
    return [safe for frame in frames for safe in watching.feed(frame)], rules


def read_answer(client: FamilyName, frames: Sequence[Frame]) -> Any:
    """Return the response that a client assembles."""
    raw = written(client, frames)
    if client == "responses":
        return output(raw)
    if client == "messages":
        return blocks(raw)
    texts: dict[Any, str] = {}
    for data in documents_of(raw):
        for choice in data.get("choices", ()):
            delta = choice.get("delta") or {}
            for name in ("content", "refusal", "reasoning_content"):
                texts[name] = texts.get(name, "") + (delta.get(name) or "")
            for call in delta.get("tool_calls", ()):
                inner = call.get("function") or call["custom"]
                text = inner.get("arguments") or inner.get("input") or ""
                texts[call["index"]] = texts.get(call["index"], "") + text
    return texts


def documents_of(raw: bytes) -> list[Json]:
    """Return the documents of a stream."""
    lines = [line[6:] for line in raw.splitlines() if line.startswith(b"data: ")]
    return [orjson.loads(line) for line in lines if line != b"[DONE]"]


def output(raw: bytes) -> Any:
    """Return the items that a response has in the end, and what deltas have said; check that the
    events in between say the same."""
    texts: dict[Any, str] = {}
    items: dict[int, Json] = {}
    for number, document in enumerate(events := streamed(raw)):
        assert document["sequence_number"] == number
        kind = document["type"].rpartition(".")[0]
        part = document.get("content_index", document.get("summary_index"))
        where = kind, document.get("output_index"), part
        if document["type"].endswith(".delta"):
            texts[where] = texts.get(where, "") + document["delta"]
        elif where in texts:
            assert texts[where] in document.values()
        elif document["type"] == "response.output_item.done":
            items[document["output_index"]] = document["item"]
    full_list: list[Json] = events[-1]["response"]["output"]
    assert all(full_list[index] == document for index, document in items.items())
    return [full_list, texts]


def blocks(raw: bytes) -> list[Json]:
    results: list[Json] = []
    for event in documents_of(raw):
        if event.get("type") == "content_block_start":
            results.append({**event["content_block"], "said": ""})
        elif event.get("type") == "content_block_delta":
            delta = event["delta"]
            results[-1]["said"] += "".join(map(str, [v for n, v in delta.items() if n != "type"]))
    return results


def texts_in(client: FamilyName, answer: Any) -> list[str]:
    """Return the separate texts that a client reads."""
    if client == "chat":
        return [answer["content"]]
    if client == "messages":
        return [item["said"] for item in answer if item["type"] == "text"]
    return [
        part["text"] for item in answer[0] if item["type"] == "message" for part in item["content"]
    ]
