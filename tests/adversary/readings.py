"""Texts that clients assemble from the chunks of a chat stream, by each reading in use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tests.doubles import Json

Reading = Callable[[Json], str]
THOUGHTS = ("reasoning_content", "reasoning")


def chunks_of(raw: bytes) -> list[Json]:
    lines = [line.removeprefix("data: ") for line in raw.decode().splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


def _parts(value: Any, kind: str) -> str:
    """Return the texts of one kind in a list of content parts."""
    texts: list[str] = []
    for part in value if isinstance(value, list) else ():
        inner = part.get(kind) if isinstance(part, dict) else None
        listed = inner if isinstance(inner, list) else [{"text": inner}]
        texts += [_text(item, "text") for item in listed]
    return "".join(texts)


def _text(delta: Json, name: str) -> str:
    value = delta.get(name)
    return value if isinstance(value, str) else ""


def _calls(delta: Json) -> list[Json]:
    return delta.get("tool_calls") or []


READINGS: Mapping[str, Reading] = {
    **{
        name: lambda delta, name=name: _text(delta, name)  # type: ignore[misc]
        for name in ("content", "refusal", "text", *THOUGHTS)
    },
    "thinking parts": lambda delta: _parts(delta.get("content"), "thinking"),
    "text parts": lambda delta: _parts(delta.get("content"), "text"),
    "content in any form": lambda delta: (
        _text(delta, "content") + _parts(delta.get("content"), "text")
    ),
    "the first reasoning": lambda delta: next(filter(None, _thoughts(delta)), ""),
    "the last reasoning": lambda delta: next(filter(None, reversed(_thoughts(delta))), ""),
    "all reasoning": lambda delta: "".join(dict.fromkeys(_thoughts(delta))),
    "all reasoning, backwards": lambda delta: "".join(dict.fromkeys(reversed(_thoughts(delta)))),
}


def _thoughts(delta: Json) -> list[str]:
    return [_text(delta, name) for name in THOUGHTS] + [_parts(delta.get("content"), "thinking")]


def _arguments(call: Json) -> str:
    return _text(call.get("function") or {}, "arguments")


def _choices(chunks: Sequence[Json], *, is_single: bool) -> Iterator[tuple[object, Json]]:
    """Yield each choice under every key by which a client may identify it."""
    for chunk in chunks:
        for position, choice in enumerate(chunk.get("choices") or ()):
            index = choice.get("index")
            yield ("index", json.dumps(index)), choice
            yield ("index or zero", json.dumps(index or 0)), choice
            yield ("number", str(float(index)) if isinstance(index, int | float) else "x"), choice
            if is_single:
                yield ("any",), choice
                if position == 0:
                    yield ("first",), choice


def shown_texts(chunks: Sequence[Json], *, is_single: bool = True) -> dict[object, str]:
    """Return the text of each reading. `is_single`: the client expects one choice."""
    texts: dict[object, str] = {}
    for key, choice in _choices(chunks, is_single=is_single):
        delta = choice.get("delta", choice)
        for name, read in READINGS.items():
            texts[key, name] = texts.get((key, name), "") + read(delta)
        for call in _calls(delta):
            for index in (json.dumps(call.get("index")), str(call.get("index") or 0)):
                call_key = key, "call", index
                texts[call_key] = texts.get(call_key, "") + _arguments(call)
    return texts


def response_texts(events: Sequence[Json]) -> dict[object, str]:
    """Return the texts of a Responses stream, by each member that a client may compare."""
    texts: dict[object, str] = {}
    for event in events:
        kind, delta = event.get("type", ""), event.get("delta")
        if not (kind.endswith(".delta") and isinstance(delta, str)):
            continue
        members = ["output_index", "item_id", "content_index", "summary_index"]
        values = [(name, json.dumps(event[name])) for name in members if name in event]
        for keys in ((), values[:1], values[1:2], values[:1] + values[2:], values[1:]):
            key = kind, *keys
            texts[key] = texts.get(key, "") + delta
    end = events[-1].get("response") if events else None
    for item in end.get("output", ()) if isinstance(end, dict) else ():
        for part in [*item.get("content", ()), *item.get("summary", ())]:
            key = "end", part["type"]
            texts[key] = texts.get(key, "") + part.get("text", part.get("refusal", ""))
    return texts
