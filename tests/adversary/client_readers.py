"""Readers of responses as clients: every text that some client could assemble, and its parts.

They share no code with the product.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from proxy.types.events import FamilyName, Frame
from tests.dialects.test_responses import streamed
from tests.doubles import Json
from tests.golden.pipeline import written


def read_documents(raw: bytes) -> list[Json]:
    """Return the events of a stream, or the one document of a whole response."""
    lines = [line.removeprefix(b"data: ") for line in raw.splitlines()]
    return [json.loads(line) for line in lines if line.startswith(b"{")]


def _get_text(delta: Json, name: str) -> str:
    value = delta.get(name)
    return value if isinstance(value, str) else ""


def _join_parts(value: Any, kind: str) -> str:
    """Join the texts of one kind in content parts, strings among parts, or a single part."""
    texts: list[str] = []
    for part in value if isinstance(value, list) else [value]:
        inner = part.get(kind) if isinstance(part, dict) else None
        if isinstance(part, str) and isinstance(value, list) and kind == "text":
            inner = part
        listed = inner if isinstance(inner, list) else [{"text": inner}]
        texts += [_get_text(item, "text") for item in listed]
    return "".join(texts)


def _list_reasoning(delta: Json) -> list[str]:
    names = ("reasoning_content", "reasoning")
    return [
        *(_get_text(delta, name) for name in names),
        _join_parts(delta.get("content"), "thinking"),
    ]


READINGS: Mapping[str, Callable[[Json], str]] = {
    **{
        name: lambda delta, name=name: _get_text(delta, name)  # type: ignore[misc]
        for name in ("content", "refusal", "text", "reasoning_content", "reasoning")
    },
    "thinking parts": lambda delta: _join_parts(delta.get("content"), "thinking"),
    "text parts": lambda delta: _join_parts(delta.get("content"), "text"),
    "text parts of a completion": lambda delta: _join_parts(delta.get("text"), "text"),
    "content in any form": lambda delta: (
        _get_text(delta, "content") + _join_parts(delta.get("content"), "text")
    ),
    "first reasoning": lambda delta: next(filter(None, _list_reasoning(delta)), ""),
    "last reasoning": lambda delta: next(filter(None, reversed(_list_reasoning(delta))), ""),
    "all reasoning": lambda delta: "".join(dict.fromkeys(_list_reasoning(delta))),
    "all reasoning, backwards": lambda delta: "".join(
        dict.fromkeys(reversed(_list_reasoning(delta)))
    ),
}
"""How clients read the text of a chat delta, a message or a legacy choice."""


def _choice_keys(index: Any, position: int, *, is_single: bool) -> Iterator[object]:
    """Yield every key by which a client may identify a choice."""
    yield "index", json.dumps(index)
    yield "index or zero", json.dumps(index or 0)
    yield "number", str(float(index)) if isinstance(index, int | float) else "x"
    if is_single:
        yield "any"
        if position == 0:
            yield "first"


def _read_choices(document: Json, *, is_single: bool) -> Iterator[tuple[object, str]]:
    """Yield the texts of chat and legacy choices by each reading."""
    choices = [item for item in document.get("choices") or () if isinstance(item, dict)]
    for position, item in enumerate(choices):
        members = [item.get("message"), item.get("delta"), item]
        delta = next(
            member for member in (*members[1::-1], item) if member and isinstance(member, dict)
        )
        for key in _choice_keys(item.get("index"), position, is_single=is_single):
            for name, read in READINGS.items():
                yield (key, name), read(delta)
            for call in delta.get("tool_calls") or ():
                text = _get_text(call.get("function") or {}, "arguments")
                for index in (json.dumps(call.get("index")), str(call.get("index") or 0)):
                    yield (key, "call", index), text
        if is_single:
            for member in (item.get("message"), item.get("delta"), item):
                yield (
                    "message and delta",
                    _get_text(member or {}, "content") or _get_text(member or {}, "text"),
                )


def _read_event(event: Json) -> Iterator[tuple[object, str]]:
    """Yield the text of an event of Responses by each member that a client may compare, and the
    text of an event of Messages by its block."""
    kind, delta = str(event.get("type", "")), event.get("delta")
    if kind.endswith(".delta") and isinstance(delta, str):
        names = ["output_index", "item_id", "content_index", "summary_index"]
        values = [(name, json.dumps(event[name])) for name in names if name in event]
        for keys in ((), values[:1], values[1:2], values[:1] + values[2:], values[1:]):
            yield (kind, *keys), delta
    for block in (event.get("content_block"), delta, *(event.get("content") or ())):
        if isinstance(block, dict):
            text = _get_text(block, "text") + _get_text(block, "thinking")
            yield ("block", event.get("index")), text
            yield "all blocks", text
    final = event.get("response", event) if kind.startswith("response.") else event
    for item in final.get("output") or ():
        for part in (*(item.get("content") or ()), *(item.get("summary") or ())):
            yield ("end", kind, part["type"]), part.get("text", part.get("refusal", ""))


def _find_bytes(value: Any) -> Iterator[int]:
    """Yield the bytes of all tokens in log-probabilities."""
    if isinstance(value, dict):
        numbers = value.get("bytes")
        yield from (n for n in numbers if isinstance(n, int)) if isinstance(numbers, list) else ()
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from _find_bytes(inner)


def assemble_texts(raw: bytes, *, is_single: bool = True) -> dict[object, str]:
    """Return the texts that clients could assemble from a response, by how they read it.

    `is_single`: the client expects one choice, and may ignore indexes.
    """
    texts: defaultdict[object, str] = defaultdict(str)
    by_position: defaultdict[tuple[str, str], str] = defaultdict(str)
    documents = read_documents(raw)
    for document in documents:
        for key, text in (
            *_read_choices(document, is_single=is_single),
            *_read_event(document),
        ):
            texts[key] += text
        kind, delta = str(document.get("type", "")), document.get("delta")
        if kind.endswith("delta"):
            names = ("output_index", "content_index", "summary_index", "index")
            position = json.dumps([document.get(name) or 0 for name in names])
            text = delta if isinstance(delta, str) else _get_text(delta or {}, "text")
            by_position[kind, position] += text
    for kind, position in sorted(by_position):
        texts[kind, "in the order of indexes"] += by_position[kind, position]
    texts["bytes of tokens"] = "".join(map(chr, _find_bytes(documents)))
    texts["as written"] = raw.decode()
    return dict(texts)


class Part(NamedTuple):
    """A part of a response: a `text`, a `thought`, or a `call`, whose text is its arguments."""

    kind: str
    text: str
    call_id: str | None = None
    name: str | None = None


def join_texts(parts: Sequence[Part], kind: str) -> str:
    return "".join(part.text for part in parts if part.kind == kind)


def read_parts(client: FamilyName, frames: Sequence[Frame], *, stream: bool = True) -> list[Part]:
    """Return the parts that a client reads in a stream or in a whole response."""
    raw = written(client, frames, stream=stream)
    if client == "responses":
        items = read_response_stream(raw) if stream else orjson.loads(raw)["output"]
        return [_read_item(item) for item in items]
    documents = read_documents(raw)
    if client == "messages":
        if not stream:
            return [_read_block(block, "") for block in documents[0]["content"]]
        return _read_messages_stream(documents)
    choices = [item for document in documents for item in document.get("choices", ())]
    return _read_chat([item.get("delta") or item.get("message") or {} for item in choices])


def read_response_stream(raw: bytes) -> list[Json]:
    """Return the items of the final document. Check that the events before it are consistent."""
    texts: dict[Any, str] = {}
    events = streamed(raw)
    items: list[Json] = events[-1]["response"]["output"]
    for event in events:
        part = event.get("content_index", event.get("summary_index"))
        where = event["type"].rpartition(".")[0], event.get("output_index"), part
        if event["type"].endswith(".delta"):
            texts[where] = texts.get(where, "") + event["delta"]
        elif where in texts:
            assert texts[where] in event.values()
        elif event["type"] == "response.output_item.done":
            assert items[event["output_index"]] == event["item"]
    return items


def _read_item(item: Json) -> Part:
    if item["type"] == "function_call":
        return Part("call", item["arguments"], item["call_id"], item["name"])
    parts = [*item.get("summary", ()), *item.get("content", ())]
    kind = "thought" if item["type"] == "reasoning" else "text"
    return Part(kind, "".join(part["text"] for part in parts))


def _read_messages_stream(events: Sequence[Json]) -> list[Part]:
    blocks: list[tuple[Json, list[str]]] = []
    for event in events:
        if event.get("type") == "content_block_start":
            blocks.append((event["content_block"], []))
        elif event.get("type") == "content_block_delta":
            names = ("text", "thinking", "partial_json")
            blocks[-1][1].extend(event["delta"].get(name) or "" for name in names)
    return [_read_block(block, "".join(texts)) for block, texts in blocks]


def _read_block(block: Json, text: str) -> Part:
    if block["type"] == "tool_use":
        arguments = text or (orjson.dumps(block["input"]).decode() if block["input"] else "")
        return Part("call", arguments, block["id"], block["name"])
    kind = "thought" if block["type"] == "thinking" else "text"
    return Part(kind, (block.get("text") or block.get("thinking") or "") + text)


def _read_chat(deltas: Sequence[Json]) -> list[Part]:
    calls: dict[Any, Part] = {}
    for delta in deltas:
        for position, fragment in enumerate(delta.get("tool_calls") or ()):
            index = fragment.get("index", position)
            call, function = calls.get(index, Part("call", "")), fragment["function"]
            calls[index] = Part(
                "call",
                call.text + (function.get("arguments") or ""),
                fragment.get("id") or call.call_id,
                function.get("name") or call.name,
            )
    texts = {"thought": "first reasoning", "text": "content in any form"}
    return [
        *(Part(kind, "".join(map(READINGS[name], deltas))) for kind, name in texts.items()),
        *(calls[index] for index in sorted(calls)),
    ]
