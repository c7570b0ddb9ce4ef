"""Conversations in the three dialects of clients, with an upstream that speaks the same one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.conftest import KEY
from tests.dialects.test_responses import FUNCTION_CALL
from tests.dialects.test_responses import accumulated as accumulated_response
from tests.dialects.vendors.test_anthropic import accumulated, events_of
from tests.doubles import (
    Json,
    Script,
    block_events,
    chat,
    chat_events,
    item_events,
    message,
    message_events,
    respond,
    response,
    response_events,
    stream,
    text_events,
    text_item,
)

PLACEHOLDER = re.compile(r"\[[A-Z_]+_[bcdfghjkmnpqrstvwxz]{12}\]")
SYSTEM = "Sign as desk@mill.example."
TOOL = {"type": "tool_use", "id": "toolu_1", "name": "look_up"}


@dataclass(frozen=True)
class ReceivedTexts:
    """Text and tool arguments of a response."""

    text: str
    arguments: Any


@dataclass(frozen=True)
class Form:
    """A dialect: how a conversation is sent, how an upstream answers and how that is read.

    ``turns`` are texts of the user and of the assistant, alternately."""

    name: str
    path: str
    deployment: str
    body: Callable[[list[str]], Json]
    events: Callable[[list[str], list[str]], list[Json]]
    whole: Callable[[str, str], Json]
    read: Callable[[bytes, bool], ReceivedTexts]

    def script(self, texts: list[str], arguments: list[str], *, streamed: bool) -> Script:
        """Respond with text and tool arguments, streamed in these pieces."""
        if not streamed:
            return respond(self.whole("".join(texts), "".join(arguments)))
        return stream(self.events(texts, arguments), is_done=self.name == "chat")

    async def send(
        self,
        client: aiohttp.ClientSession,
        turns: list[str],
        *,
        key: str = KEY,
        deployment: str = "",
        **options: Any,
    ) -> bytes:
        headers = {"authorization": f"Bearer {key}"}
        headers["x-headrace-deployment"] = deployment or self.deployment
        body = {**self.body(turns), **options}
        async with client.post(self.path, headers=headers, json=body) as response:
            raw = await response.read()
        assert response.status == 200, raw
        return raw


def _messages(turns: list[str]) -> list[Json]:
    roles = ("user", "assistant")
    return [{"role": roles[index % 2], "content": text} for index, text in enumerate(turns)]


def _chat(turns: list[str]) -> Json:
    system = {"role": "system", "content": SYSTEM}
    return {"model": "smol", "messages": [system, *_messages(turns)]}


def _chat_call(arguments: str) -> Json:
    function = {"name": "look_up", "arguments": arguments}
    return {"index": 0, "id": "call_1", "type": "function", "function": function}


def _chat_whole(text: str, arguments: str) -> Json:
    document = chat(text)
    document["choices"][0]["message"]["tool_calls"] = [_chat_call(arguments)]
    return document


def _chat_events(texts: list[str], arguments: list[str]) -> list[Json]:
    first_document, *values, end, used = chat_events(*texts)
    calls = [
        {
            **first_document,
            "choices": [
                {"index": 0, "delta": {"tool_calls": [_chat_call(argument)]}, "finish_reason": None}
            ],
        }
        for argument in arguments
    ]
    return [first_document, *values, *calls, end, used]


def _read_chat(raw: bytes, streamed: bool) -> ReceivedTexts:
    text = arguments = ""
    lines = [line[6:] for line in raw.splitlines()] if streamed else [raw]
    for line in lines:
        for choice in json.loads(line)["choices"] if line.startswith(b"{") else ():
            words = choice["delta" if streamed else "message"]
            text += words.get("content") or ""
            calls = words.get("tool_calls") or ()
            arguments += "".join(call["function"]["arguments"] for call in calls)
    return ReceivedTexts(text, json.loads(arguments))


def _read_messages(raw: bytes, streamed: bool) -> ReceivedTexts:
    document = accumulated(events_of(raw)) if streamed else json.loads(raw)
    by_type = {block["type"]: block for block in document["content"]}
    return ReceivedTexts(by_type["text"]["text"], by_type["tool_use"]["input"])


def _read_responses(raw: bytes, streamed: bool) -> ReceivedTexts:
    document = accumulated_response(raw) if streamed else json.loads(raw)
    items = {item["type"]: item for item in document["output"]}
    text = items["message"]["content"][0]["text"]
    return ReceivedTexts(text, json.loads(items["function_call"]["arguments"]))


def _responses_whole(text: str, arguments: str) -> Json:
    return response(text_item(text), {**FUNCTION_CALL, "arguments": arguments})


def _partial_json(arguments: list[str]) -> list[Json]:
    return [{"type": "input_json_delta", "partial_json": argument} for argument in arguments]


FORMS = (
    Form(name="chat", path="/v1/chat/completions", deployment="search-answers", body=_chat,
        events=_chat_events, whole=_chat_whole, read=_read_chat),
    Form(
        name="messages",
        path="/v1/messages",
        deployment="via-anthropic",
        body=lambda turns: {
            "model": "claude-1",
            "max_tokens": 64,
            "system": SYSTEM,
            "messages": _messages(turns),
        },
        events=lambda texts, arguments: message_events(
            text_events(0, *texts),
            block_events(1, {**TOOL, "input": {}}, *_partial_json(arguments)),
            reason="tool_use",
        ),
        whole=lambda text, arguments: message(
            {"type": "text", "text": text}, {**TOOL, "input": json.loads(arguments)}
        ),
        read=_read_messages,
    ),
    Form(
        name="responses",
        path="/v1/responses",
        deployment="responses-only",
        body=lambda turns: {"model": "m", "instructions": SYSTEM, "input": _messages(turns)},
        events=lambda texts, arguments: response_events(
            item_events(0, text_item("".join(texts)), *texts),
            item_events(1, {**FUNCTION_CALL, "arguments": "".join(arguments)}, *arguments),
            document=_responses_whole("".join(texts), "".join(arguments)),
        ),
        whole=_responses_whole,
        read=_read_responses,
    ),
)  # fmt: skip
