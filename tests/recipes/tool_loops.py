"""Tool loops of two turns by a client of each dialect, which returns all received content."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"of": {"type": "string"}}}
RESULT = "The capital is Paris."
SYSTEM, QUESTION = "Answer briefly.", "What is the capital of France?"


@dataclass(frozen=True)
class Client:
    """A client of one dialect. ``first`` is the body of its first request, with fields that SDKs
    send; ``second`` is the next one, by the first and by the answer to that."""

    path: str
    first: Json
    read: Callable[[bytes], Json]
    read_stream: Callable[[list[Json]], Json]
    second: Callable[[Json, Json], Json]
    text: Callable[[Json], str]


def events(raw: bytes) -> list[Json]:
    return [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: {")]


# Chat


def _joined_chat(chunks: list[Json]) -> Json:
    message: Json = {"role": "assistant", "content": ""}
    calls: dict[int, Json] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = dict(choice["delta"])
            for part in delta.pop("tool_calls", None) or ():
                started = {name: value for name, value in part.items() if name != "index"}
                known_values = calls.setdefault(
                    part["index"], {**started, "function": {"arguments": ""}}
                )
                known_values["function"] |= {
                    k: v for k, v in part["function"].items() if k == "name"
                }
                known_values["function"]["arguments"] += part["function"].get("arguments") or ""
            for name in ("content", "reasoning_content"):
                if delta.get(name):
                    message[name] = message.get(name, "") + delta[name]
    return message | ({"tool_calls": [*calls.values()]} if calls else {})


def _second_chat(first_document: Json, message: Json) -> Json:
    [call] = message["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": RESULT}
    fields = {name: value for name, value in message.items() if value is not None}
    return {
        **first_document,
        "messages": [*first_document["messages"], {"content": "", **fields}, result],
    }


CHAT = Client(
    path="/v1/chat/completions",
    first={
        "messages": [
            {"role": "developer", "content": SYSTEM},
            {"role": "user", "content": QUESTION},
        ],
        "tools": [{"type": "function", "function": {"name": "get_capital", "parameters": SCHEMA}}],
        "max_completion_tokens": 500,
        "parallel_tool_calls": False,
        "prompt_cache_key": "session-1",
        "seed": 1,
        "service_tier": "auto",
        "store": False,
        "user": "u-1",
        "verbosity": "low",
    },
    read=lambda raw: json.loads(raw)["choices"][0]["message"],
    read_stream=_joined_chat,
    second=_second_chat,
    text=lambda message: str(message["content"]),
)


# Messages


def _joined_messages(matches: list[Json]) -> Json:
    blocks: list[Json] = []
    for event in matches:
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "written": ""})
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[-1]
            for name, target in (
                ("text", "text"),
                ("thinking", "thinking"),
                ("partial_json", "written"),
                ("signature", "signature"),
            ):
                block[target] = block.get(target, "") + delta.get(name, "")
    expected = {"text": {"text"}, "thinking": {"thinking", "signature"}}
    for block in blocks:
        written = block.pop("written")
        if block["type"] == "tool_use":
            block["input"] = json.loads(written)
        for name in block.keys() - expected.get(block["type"], {"id", "name", "input"}) - {"type"}:
            del block[name]
    return {"content": blocks}


def _second_messages(first_document: Json, message: Json) -> Json:
    [call] = [block for block in message["content"] if block["type"] == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": RESULT}
    fields = {"role": "assistant", "content": message["content"]}
    return {
        **first_document,
        "messages": [*first_document["messages"], fields, {"role": "user", "content": [result]}],
    }


MESSAGES = Client(
    path="/v1/messages",
    first={
        "system": SYSTEM,
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": [{"name": "get_capital", "input_schema": SCHEMA}],
        "max_tokens": 4000,
        "metadata": {"user_id": "u-1"},
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "service_tier": "auto",
    },
    read=json.loads,
    read_stream=_joined_messages,
    second=_second_messages,
    text=lambda message: "".join(b["text"] for b in message["content"] if b["type"] == "text"),
)


# Responses


def _completed(matches: list[Json]) -> Json:
    [last_value] = [event["response"] for event in matches if event["type"] == "response.completed"]
    return dict(last_value)


def _second_responses(first_document: Json, answered: Json) -> Json:
    [call] = [item for item in answered["output"] if item["type"] == "function_call"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": RESULT}
    return {**first_document, "input": [*first_document["input"], *answered["output"], result]}


RESPONSES = Client(
    path="/v1/responses",
    first={
        "instructions": SYSTEM,
        "input": [
            {"type": "message", "role": "developer", "content": "Use tools."},
            {"type": "message", "role": "user", "content": QUESTION},
        ],
        "tools": [{"type": "function", "name": "get_capital", "parameters": SCHEMA}],
        "client_metadata": {"session_id": "s-1"},
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 500,
        "parallel_tool_calls": False,
        "prompt_cache_key": "session-1",
        "reasoning": {"effort": "medium", "summary": "auto"},
        "service_tier": "auto",
        "store": False,
        "text": {"verbosity": "low"},
    },
    read=json.loads,
    read_stream=_completed,
    second=_second_responses,
    text=lambda answered: "".join(
        part["text"]
        for item in answered["output"]
        if item["type"] == "message"
        for part in item["content"]
    ),
)

CLIENTS: Mapping[str, Client] = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES}
