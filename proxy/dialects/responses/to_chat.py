"""Converts a Responses request into a chat.

A part that would change the answer is refused; one that only tunes it is left out and named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proxy.dialects.responses.tables import objects
from proxy.errors import InvalidField
from proxy.errors.field_problems import NOT_SUPPORTED, unsupported_type
from proxy.fields.member_table import TOOL_MEMBERS
from proxy.fields.renaming import PATHS, from_api, has_other
from proxy.types import Json
from proxy.types.reasoning import is_reasoning_model

TAKEN = {
    *("include", "input", "instructions", "max_output_tokens", "store", "stream_options"),
    *("tool_choice", "tools", "top_logprobs"),
    *(field for _, field, _ in PATHS["responses"]),
}
"""Fields with another form in a chat. All others keep their names."""
LOGPROBS = "message.output_text.logprobs"
CHOICES = frozenset({"auto", "none", "required"})


def chat_of(body: Json, *, keeps_thoughts: bool) -> tuple[Json, tuple[str, ...]]:
    """Return a request as a chat, and the names of what it leaves out. Raises ``InvalidField`` for
    a part without a counterpart."""
    crossing = _ItemCrossing(body, keeps_thoughts=keeps_thoughts)
    return crossing.chat(), tuple(sorted(crossing.dropped))


class _ItemCrossing:
    """The conversion of one request."""

    __slots__ = ("_body", "_keeps_thoughts", "_messages", "_thought", "dropped")

    def __init__(self, body: Json, *, keeps_thoughts: bool) -> None:
        self._body = body
        self._keeps_thoughts = keeps_thoughts
        self._thought = ""  # of the next assistant message
        self._messages: list[Json] = []
        self.dropped: set[str] = set()

    def chat(self) -> Json:
        body = self._body
        made = {name: value for name, value in body.items() if name not in TAKEN}
        if body.get("instructions"):
            self._messages.append({"role": "system", "content": body["instructions"]})
        given = body.get("input")
        if isinstance(given, str):
            self._messages.append({"role": "user", "content": given})
        for at, item in enumerate(given if isinstance(given, list) else ()):
            self._item(item, f"input.{at}")
        made["messages"] = _with_results_after_calls(self._messages)
        if body.get("store") is True:
            self.dropped.add("store")  # a stored chat has no response id
        elif body.get("store") is False:
            made["store"] = False
        moved, dropped = from_api(body, "responses", {"response_format": _form})
        self.dropped |= dropped
        made |= self._tools() | moved | self._logprobs()
        bound = body.get("max_output_tokens")
        if bound is not None:
            name = "max_tokens"
            if is_reasoning_model(str(body.get("model")), made):
                name = "max_completion_tokens"
            made[name] = bound
        return made

    def _logprobs(self) -> Json:
        listed = self._body.get("include") or []
        if any(name != LOGPROBS for name in listed):
            self.dropped.add("include")
        top = self._body.get("top_logprobs")
        if LOGPROBS not in listed and not top:
            return {}
        return {"logprobs": True} | ({"top_logprobs": top} if top else {})

    def _tools(self) -> Json:
        made: Json = {}
        if self._body.get("tools"):
            made["tools"] = [self._tool(at, tool) for at, tool in enumerate(self._body["tools"])]
        choice = self._body.get("tool_choice")
        if isinstance(choice, str) and choice in CHOICES:
            made["tool_choice"] = choice
        elif isinstance(choice, dict) and choice.get("type") in ("function", "custom"):
            kind = choice["type"]
            made["tool_choice"] = {"type": kind, kind: {"name": choice.get("name")}}
        elif choice is not None:
            raise InvalidField("tool_choice", NOT_SUPPORTED)
        return made

    def _tool(self, at: int, tool: Json) -> Json:
        kind = tool.get("type")
        names: tuple[str, ...]
        if kind == "function":
            names = tuple(TOOL_MEMBERS)
        elif kind == "custom":
            names = ("name", "description", "format")
        else:
            raise InvalidField(f"tools.{at}", unsupported_type(kind))
        if has_other(tool, {"type", *names}):
            self.dropped.add("tools")
        inner = {name: tool[name] for name in names if tool.get(name) is not None}
        return {"type": kind, kind: inner}

    def _item(self, item: Json, place: str) -> None:
        kind = item.get("type") or "message"
        read = ITEMS.get(kind)
        if read is None:
            raise InvalidField(place, NOT_SUPPORTED)
        read(self, item, place)

    def message(self, item: Json, place: str) -> None:
        role, content = item.get("role"), item.get("content")
        if isinstance(content, list):
            parts = [_part(part, f"{place}.content.{at}") for at, part in enumerate(content)]
            content = parts
            if all(part["type"] == "text" for part in parts) and (
                role == "assistant" or len(parts) == 1
            ):
                content = "".join(part["text"] for part in parts)
            elif role == "assistant":
                raise InvalidField(f"{place}.content", NOT_SUPPORTED)
        elif not isinstance(content, str):
            raise InvalidField(f"{place}.content", NOT_SUPPORTED)
        self._messages.append({"role": role, "content": content})
        if role == "assistant":
            self._think(self._messages[-1])

    def _think(self, message: Json) -> None:
        """Add the pending thought to an assistant message."""
        if self._thought:
            message["reasoning_content"] = message.get("reasoning_content", "") + self._thought
            self._thought = ""

    def call(self, item: Json, place: str) -> None:
        """Add a tool call to the last assistant message, or to a new one."""
        called: Json = {"id": _call_id(item, place), "type": "function"}
        if item["type"] == "custom_tool_call":
            inner = {"name": item.get("name"), "input": item.get("input")}
            called |= {"type": "custom", "custom": inner}
        else:
            inner = {"name": item.get("name"), "arguments": item.get("arguments")}
            called["function"] = inner
        last = self._messages[-1] if self._messages else {}
        if last.get("role") != "assistant":
            last = {"role": "assistant", "content": None}
            self._messages.append(last)
        self._think(last)
        last.setdefault("tool_calls", []).append(called)

    def result(self, item: Json, place: str) -> None:
        """Add a tool result. Its parts that are not text follow in a user message."""
        output = item.get("output")
        more: list[Json] = []
        if isinstance(output, list):
            parts = [_part(part, f"{place}.output.{at}") for at, part in enumerate(output)]
            more = [part for part in parts if part["type"] != "text"]
            output = "\n".join(part["text"] for part in parts if part["type"] == "text")
        elif not isinstance(output, str):
            raise InvalidField(f"{place}.output", NOT_SUPPORTED)
        answer = {"role": "tool", "tool_call_id": _call_id(item, place), "content": output}
        self._messages.append(answer)
        if more:
            self._messages.append({"role": "user", "content": more})

    def thought(self, item: Json, place: str) -> None:
        parts = objects(item.get("content")) or objects(item.get("summary"))
        text = "".join(part["text"] for part in parts if isinstance(part.get("text"), str))
        if self._keeps_thoughts and text:
            self._thought += text
        else:
            self.dropped.add("reasoning")


ITEMS: Mapping[str, Callable[[_ItemCrossing, Json, str], None]] = {
    "message": _ItemCrossing.message,
    "function_call": _ItemCrossing.call,
    "function_call_output": _ItemCrossing.result,
    "custom_tool_call": _ItemCrossing.call,
    "custom_tool_call_output": _ItemCrossing.result,
    "reasoning": _ItemCrossing.thought,
}
"""Conversions of items by type. Other types are refused."""


def _call_id(item: Json, place: str) -> str | None:
    call_id = item.get("call_id")
    if not isinstance(call_id, str | None):
        raise InvalidField(f"{place}.call_id", "must be a string")
    return call_id


def _with_results_after_calls(messages: Sequence[Json]) -> list[Json]:
    """Return messages with each tool result directly after the message that has its call.

    Upstreams refuse a chat with another message between them.
    """
    groups: list[list[Json]] = []
    by_call: dict[object, list[Json]] = {}
    for message in messages:
        group = by_call.get(message["tool_call_id"]) if message["role"] == "tool" else None
        if group is not None:
            group.append(message)
            continue
        groups.append([message])
        for call in message.get("tool_calls", ()):
            by_call[call["id"]] = groups[-1]
    return [message for group in groups for message in group]


def _form(form: Any) -> Json | None:
    """Return the response format of a chat, None for text. Raises ``InvalidField``."""
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": kind}
    if kind != "json_schema":
        raise InvalidField("text.format", NOT_SUPPORTED)
    schema = {name: value for name, value in form.items() if name != "type" and value is not None}
    return {"type": kind, "json_schema": schema}


def _part(part: Any, place: str) -> Json:
    """Return a content part of an item as one of a chat. Raises ``InvalidField``."""
    part = next(iter(objects([part])), {})
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text") and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return {"type": "text", "text": part["refusal"]}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        image = {"url": part["image_url"]}
        if part.get("detail") in ("low", "high"):
            image["detail"] = part["detail"]
        return {"type": "image_url", "image_url": image}
    if kind == "input_file" and isinstance(part.get("file_data"), str):
        file = {"file_data": part["file_data"]}
        return {"type": "file", "file": {"filename": part.get("filename") or "file.pdf", **file}}
    if kind == "input_audio" and isinstance(part.get("input_audio"), dict):
        return {"type": kind, "input_audio": part["input_audio"]}
    raise InvalidField(place, NOT_SUPPORTED)
