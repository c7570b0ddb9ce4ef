"""Reads the texts of a client's stream, and cuts the texts of an upstream's into more deltas."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tests.golden.events import Event, Path, events, replaced, string_paths, value_at

Texts = dict[tuple[object, ...], str]
PLACEHOLDER = "{}"
"""Arguments that some servers send before the real ones."""
_NOT_TEXT = frozenset({"role", "id", "type", "data"})
_OF_EACH_DELTA = frozenset({"logprobs", "obfuscation", "sequence_number"})
_OF_BLOCK = ("text", "thinking", "partial_json")
_OF_DELTA = frozenset({"content", "reasoning_content", "reasoning", "refusal"})
_OF_DELTA |= {"transcript", "text", "arguments", "input"}


def texts_of(client: str, body: bytes) -> Texts:
    """Return the texts that a client reads, each by its place."""
    texts: Texts = {}
    read = {"messages": _message_texts, "responses": _response_texts}.get(client, _chat_texts)
    for event in events(body):
        for place, text in read(event) if event.document else ():
            texts[place] = texts.get(place, "") + text
    return {place: text for place, text in texts.items() if text}


def _chat_texts(event: Event) -> Iterator[tuple[tuple[object, ...], str]]:
    for choice in event.document.get("choices", ()):
        fields = {"text": choice["text"]} if "text" in choice else choice["delta"]
        for path in string_paths(fields):
            if path[-1] not in _NOT_TEXT:
                yield (choice["index"], *_place(fields, path)), value_at(fields, path)


def _place(fields: Any, path: Path) -> Path:
    """Return a path with the index of a tool call instead of its position, and no part numbers."""
    if path[0] == "tool_calls":
        call = value_at(fields, path[:2])
        return path[0], call.get("index", path[1]), *path[2:]
    return tuple(step for step in path if isinstance(step, str))


def _message_texts(event: Event) -> Iterator[tuple[tuple[object, ...], str]]:
    if event.kind in ("content_block_start", "content_block_delta"):
        fields = event.document.get("delta") or event.document["content_block"]
        kind = fields["type"].removesuffix("_delta")
        for name in fields.keys() & _OF_BLOCK:
            yield (event.document["index"], kind, name), fields[name]


def _response_texts(event: Event) -> Iterator[tuple[tuple[object, ...], str]]:
    document = event.document
    if "delta" in document:
        names = ("output_index", "content_index", "summary_index")
        yield (event.kind, *map(document.get, names)), document["delta"]
    elif event.kind in ("response.completed", "response.incomplete", "response.failed"):
        output = document["response"].get("output", [])
        for path in string_paths(output):
            if path[-1] not in _NOT_TEXT and "logprobs" not in path:
                yield (event.kind, *path), value_at(output, path)


def shapes_of(client: str, body: bytes) -> list[Any]:
    """Return the events of a stream without the texts of their deltas, adjacent equals once.

    Numbers of events and log probabilities depend on the number of deltas.
    """
    shapes: list[Any] = []
    for event in events(body):
        shape: Any = event.document or event.raw
        for path in _delta_paths(client, event) if event.document else ():
            shape = replaced(shape, path, lambda _: "")
        if event.document:
            shape = {name: value for name, value in shape.items() if name not in _OF_EACH_DELTA}
        if not shapes or shapes[-1] != shape:
            shapes.append(shape)
    return shapes


def cut_texts(family: str, raw: bytes, position: int) -> list[bytes]:
    """Return the events of a stream with each delta cut in two after ``position`` characters.
    Shorter deltas stay whole."""
    return [piece.raw for event in events(raw) for piece in _cut(family, event, position)]


def longest_text(family: str, raw: bytes) -> int:
    """Return the length of the longest text of a delta."""
    parsed = [event for event in events(raw) if event.document]
    paths = [(event, path) for event in parsed for path in _delta_paths(family, event)]
    return max((len(value_at(event.document, path)) for event, path in paths), default=0)


def _cut(family: str, event: Event, position: int) -> list[Event]:
    paths = [*_delta_paths(family, event)] if event.document else []
    paths = [path for path in paths if len(value_at(event.document, path)) > position]
    if not paths:
        return [event]
    begin = end = event
    if family in ("chat", "completions"):
        begin, end = (event.with_document(part) for part in _halves(event.document, paths))
    for path in paths:
        begin = begin.changed(path, lambda text: text[:position])
        end = end.changed(path, lambda text: text[position:])
    return [begin, end]


def _delta_paths(family: str, event: Event) -> Iterator[Path]:
    """Yield the paths of the texts of an event that a later delta may carry on."""
    document = event.document
    if family == "messages":
        if event.kind == "content_block_delta":
            yield from (("delta", name) for name in _OF_BLOCK if name in document["delta"])
    elif family == "responses":
        if isinstance(document.get("delta"), str):
            yield ("delta",)
    else:
        for index, choice in enumerate(document.get("choices", ())):
            yield from _choice_paths(choice, ("choices", index))


def _choice_paths(choice: Any, start: Path) -> Iterator[Path]:
    """Yield the paths of the texts of a choice. One that says texts of several kinds at once stays
    whole: their order would change."""
    if "text" in choice:
        yield (*start, "text")
        return
    delta = choice["delta"]
    paths = [path for path in string_paths(delta) if path[-1] in _OF_DELTA]
    if len({path[0] for path in paths}) == 1:
        yield from ((*start, "delta", *path) for path in paths if _goes_on(delta, path))


def _goes_on(delta: Any, path: Path) -> bool:
    """Return True if a later delta may carry a text on: a tool call needs its index."""
    is_call = path[0] == "tool_calls"
    if is_call and "index" not in value_at(delta, path[:2]):
        return False
    return bool(value_at(delta, path) != PLACEHOLDER)


def _halves(document: Any, paths: list[Path]) -> tuple[Any, Any]:
    """Return a chunk that does not finish, and one without all that does not carry a text on."""
    begin, end = copy.deepcopy(document), copy.deepcopy(document)
    for choice in begin["choices"]:
        choice["finish_reason"] = None
    for path in [*string_paths(end["choices"])]:
        if path[-1] not in ("finish_reason", "type") and ("choices", *path) not in paths:
            end["choices"] = replaced(end["choices"], path, lambda _: "")
    for choice in end["choices"]:
        choice.pop("logprobs", None)
        for call in choice.get("delta", {}).get("tool_calls", ()):
            call.pop("id", None)
            call.get("function", call.get("custom", {})).pop("name", None)
    return begin, end
