"""Upstream that returns the last message as text and as tool arguments."""

from __future__ import annotations

import json

from tests.doubles import Json, ReceivedRequest, Script, Wire, chat, chat_events, respond, stream


def asked_text(request: ReceivedRequest) -> str:
    return str(request.json["messages"][-1]["content"])


def echoing(size: int = 3, *, cut: bool = False) -> Script:
    """Answer with the last message; its value in the arguments of a tool too. A stream has pieces
    of ``size`` characters, and breaks off before it ends where it is ``cut``."""

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        text = asked_text(request)
        arguments = json.dumps({"said": [text]}, ensure_ascii=False)
        if not request.json.get("stream"):
            message = {"role": "assistant", "content": text, "tool_calls": [_call(arguments)]}
            document = chat()
            choice = {**document["choices"][0], "message": message}
            await respond({**document, "choices": [choice]})(request, wire)
            return
        first_document, *texts, end, usage = chat_events(*_pieces(text, size))
        calls = [_delta(first_document, _call(piece)) for piece in _pieces(arguments, size)]
        events = [first_document, *texts, *calls, end, usage]
        cut_after = len(events) - 2 if cut else None
        await stream(events, cut_after=cut_after)(request, wire)

    return script


def _pieces(text: str, size: int) -> list[str]:
    return [text[index : index + size] for index in range(0, len(text), size)]


def _call(arguments: str) -> Json:
    function = {"name": "say", "arguments": arguments}
    return {"index": 0, "id": "call_1", "type": "function", "function": function}


def _delta(event: Json, call: Json) -> Json:
    choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}
    return {**event, "choices": [choice]}


def received_texts(raw: bytes) -> tuple[str, str]:
    """Join the text and the tool arguments that a client received, streamed or whole."""
    text = arguments = ""
    lines = [raw] if raw.startswith(b"{") else [line[6:] for line in raw.splitlines()]
    for line in lines:
        if not line.startswith(b"{"):
            continue
        for choice in json.loads(line).get("choices", ()):
            message = choice.get("message") or choice.get("delta") or {}
            text += message.get("content") or ""
            for call in message.get("tool_calls") or ():
                arguments += call["function"]["arguments"]
    return text, arguments
