"""Responses of an upstream of each API: a text, a tool call, and a stream that stalls."""

from __future__ import annotations

from tests.doubles import (
    Json,
    Script,
    block_events,
    chat,
    chat_events,
    event,
    hang,
    head,
    http_chunk,
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

APIS = {"search-answers": "chat", "responses-only": "responses", "via-anthropic": "messages"}
"""The API of the upstream of each deployment."""
ARGUMENTS = '{"place": "Paris"}'
SIGNATURE = "c2VhbGVk"
THOUGHT = "France, hm."


def respond_text(api: str, text: str, *, streamed: bool = False) -> Script:
    if streamed:
        return stream(events_of(api, text[:4], text[4:]), is_done=api == "chat")
    if api == "chat":
        return respond(chat(text))
    if api == "messages":
        return respond(message({"type": "text", "text": text}))
    return respond(response(text_item(text)))


def events_of(api: str, *pieces: str) -> list[Json]:
    if api == "chat":
        return chat_events(*pieces)
    if api == "messages":
        return message_events(text_events(0, *pieces))
    item = text_item("".join(pieces))
    return response_events(item_events(0, item, *pieces), document=response(item))


def stall(api: str) -> Script:
    """Stream the start of a text, then hang until the client disconnects."""
    started = events_of(api, *["word "] * 9)[:9]

    begin = head(200, "text/event-stream", "transfer-encoding: chunked")
    return hang(begin, *(http_chunk(event(document)) for document in started))


def respond_call(api: str, *, streamed: bool = False, thinking: bool = False) -> Script:
    """Respond with a call of ``look_up``, after a thought if ``thinking``."""
    if api == "chat":
        return chat_calls(streamed)
    return (messages_calls if api == "messages" else responses_calls)(streamed, thinking)


def chat_calls(streamed: bool) -> Script:
    call: Json = {"id": "call_1", "type": "function"}
    call["function"] = {"name": "look_up", "arguments": ARGUMENTS}
    if not streamed:
        turn = {"role": "assistant", "content": None, "tool_calls": [call]}
        return respond(chat(choices=[{"index": 0, "message": turn, "finish_reason": "tool_calls"}]))
    begin, _, _, end, used = chat_events("", "")
    pieces: list[Json] = [
        {"index": 0, **call, "function": {"name": "look_up", "arguments": ""}},
        {"index": 0, "function": {"arguments": ARGUMENTS[:9]}},
        {"index": 0, "function": {"arguments": ARGUMENTS[9:]}},
    ]
    deltas = [{"index": 0, "delta": {"tool_calls": [piece]}} for piece in pieces]
    end["choices"][0]["finish_reason"] = "tool_calls"
    return stream([begin, *({**begin, "choices": [piece]} for piece in deltas), end, used])


def messages_calls(streamed: bool, thinking: bool) -> Script:
    thought = {"type": "thinking", "thinking": THOUGHT, "signature": SIGNATURE}
    call: Json = {"type": "tool_use", "id": "toolu_1", "name": "look_up"}
    if not streamed:
        blocks = [thought] * thinking + [{**call, "input": {"place": "Paris"}}]
        return respond(message(*blocks, stop_reason="tool_use"))
    started = {"type": "thinking", "thinking": "", "signature": ""}
    event = {"type": "thinking_delta", "thinking": THOUGHT}
    signed = {"type": "signature_delta", "signature": SIGNATURE}
    pieces = [
        {"type": "input_json_delta", "partial_json": string}
        for string in (ARGUMENTS[:9], ARGUMENTS[9:])
    ]
    events = [block_events(0, started, event, signed)] * thinking
    events.append(block_events(len(events), {**call, "input": {}}, *pieces))
    return stream(message_events(*events, reason="tool_use"), is_done=False)


def responses_calls(streamed: bool, thinking: bool) -> Script:
    summary = [{"type": "summary_text", "text": THOUGHT}]
    thought: Json = {"type": "reasoning", "id": "rs_1", "summary": summary}
    thought["encrypted_content"] = SIGNATURE
    call: Json = {"id": "fc_1", "type": "function_call", "status": "completed"}
    call |= {"call_id": "call_1", "name": "look_up", "arguments": ARGUMENTS}
    document = response(*[thought] * thinking, call)
    if not streamed:
        return respond(document)
    items = [thought_events(thought)] * thinking
    items.append(item_events(len(items), call, ARGUMENTS[:9], ARGUMENTS[9:]))
    return stream(response_events(*items, document=document), is_done=False)


def thought_events(item: Json) -> list[Json]:
    """Return the events of a thought with a summary, the first item of its response."""
    where = {"item_id": item["id"], "output_index": 0, "summary_index": 0}
    part = item["summary"][0]
    kind = "response.reasoning_summary"
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "summary": []}},
        {"type": f"{kind}_part.added", **where, "part": {**part, "text": ""}},
        {"type": f"{kind}_text.delta", **where, "delta": part["text"]},
        {"type": f"{kind}_text.done", **where, "text": part["text"]},
        {"type": f"{kind}_part.done", **where, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]
