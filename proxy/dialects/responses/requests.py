"""Converts Responses requests to chat requests and back.

A part that would change the response is refused. A part that only tunes it is dropped and reported.
Fields of a chat without a counterpart keep their names: ``translation`` drops or refuses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from proxy.dialects.wire.strict_json import as_object, as_objects
from proxy.errors import InvalidField
from proxy.errors.field_problems import NOT_SUPPORTED, describe_unsupported_type
from proxy.fields.field_table import (
    PATHS_BY_API,
    convert_from_api,
    convert_to_api,
    has_values_outside,
)
from proxy.fields.member_table import TOOL_MEMBERS
from proxy.types import Json
from proxy.types.providers import is_reasoning_call

CONVERTED_FIELDS = {
    *("include", "input", "instructions", "max_output_tokens", "store", "stream_options"),
    *("tool_choice", "tools", "top_logprobs"),
    *(field for _, field, _ in PATHS_BY_API["responses"]),
}
"""Fields with another format in a chat. All others keep their names."""
INCLUDE_LOGPROBS = "message.output_text.logprobs"
TOOL_CHOICES = frozenset({"auto", "none", "required"})
ITEM_TYPES = {"function": ("function_call", "arguments"), "custom": ("custom_tool_call", "input")}
"""The item type of a tool call, and the member with its text, by the type of the tool."""


def convert_to_chat(body: Json, *, keeps_thoughts: bool) -> tuple[Json, tuple[str, ...]]:
    """Return a request as a chat, and the names of dropped fields. Raises ``InvalidField``."""
    conversion = _ResponsesToChatConversion(body, keeps_thoughts=keeps_thoughts)
    return conversion.convert(), tuple(sorted(conversion.dropped))


class _ResponsesToChatConversion:
    """Conversion of one request. ``_thought`` is the reasoning for the next assistant message."""

    def __init__(self, body: Json, *, keeps_thoughts: bool) -> None:
        self._body = body
        self._keeps_thoughts = keeps_thoughts
        self._thought = ""
        self._messages: list[Json] = []
        self.dropped: set[str] = set()

    def convert(self) -> Json:
        body = self._body
        chat = {name: value for name, value in body.items() if name not in CONVERTED_FIELDS}
        if body.get("instructions"):
            self._messages.append({"role": "system", "content": body["instructions"]})
        items = body.get("input")
        if isinstance(items, str):
            self._messages.append({"role": "user", "content": items})
        for index, item in enumerate(items if isinstance(items, list) else ()):
            convert = ITEM_CONVERTERS.get(item.get("type") or "message")
            if convert is None:
                raise InvalidField(f"input.{index}", NOT_SUPPORTED)
            convert(self, item, f"input.{index}")
        chat["messages"] = _group_tool_results(self._messages)
        if body.get("store") is True:
            self.dropped.add("store")  # a stored chat has no response id
        elif body.get("store") is False:
            chat["store"] = False
        conversions = {"response_format": _convert_text_format}
        renamed, dropped = convert_from_api(body, "responses", conversions)
        self.dropped |= dropped
        chat |= self._convert_tools() | renamed | self._convert_logprobs()
        bound = body.get("max_output_tokens")
        if bound is not None:
            is_reasoning = is_reasoning_call(str(body.get("model")), chat)
            chat["max_completion_tokens" if is_reasoning else "max_tokens"] = bound
        return chat

    def _convert_logprobs(self) -> Json:
        included = self._body.get("include") or []
        if any(name != INCLUDE_LOGPROBS for name in included):
            self.dropped.add("include")
        top = self._body.get("top_logprobs")
        if INCLUDE_LOGPROBS not in included and not top:
            return {}
        return {"logprobs": True} | ({"top_logprobs": top} if top else {})

    def _convert_tools(self) -> Json:
        fields: Json = {}
        tools, choice = self._body.get("tools"), self._body.get("tool_choice")
        if tools:
            fields["tools"] = [self._convert_tool(index, tool) for index, tool in enumerate(tools)]
        if isinstance(choice, str) and choice in TOOL_CHOICES:
            fields["tool_choice"] = choice
        elif isinstance(choice, dict) and choice.get("type") in ("function", "custom"):
            kind = choice["type"]
            fields["tool_choice"] = {"type": kind, kind: {"name": choice.get("name")}}
        elif choice is not None:
            raise InvalidField("tool_choice", NOT_SUPPORTED)
        return fields

    def _convert_tool(self, index: int, tool: Json) -> Json:
        kind = tool.get("type")
        if kind not in ("function", "custom"):
            raise InvalidField(f"tools.{index}", describe_unsupported_type(kind))
        custom = ("name", "description", "format")
        names = tuple(TOOL_MEMBERS) if kind == "function" else custom
        if has_values_outside(tool, {"type", *names}):
            self.dropped.add("tools")
        inner = {name: tool[name] for name in names if tool.get(name) is not None}
        return {"type": kind, kind: inner}

    def add_message(self, item: Json, place: str) -> None:
        role, content = item.get("role"), item.get("content")
        if isinstance(content, list):
            parts = _convert_input_parts(content, f"{place}.content")
            is_text = all(part["type"] == "text" for part in parts)
            if role == "assistant" and not is_text:
                raise InvalidField(f"{place}.content", NOT_SUPPORTED)
            joins = is_text and (role == "assistant" or len(parts) == 1)
            content = "".join(part["text"] for part in parts) if joins else parts
        elif not isinstance(content, str):
            raise InvalidField(f"{place}.content", NOT_SUPPORTED)
        self._messages.append({"role": role, "content": content})
        if role == "assistant":
            self._add_pending_reasoning(self._messages[-1])

    def _add_pending_reasoning(self, message: Json) -> None:
        if self._thought:
            message["reasoning_content"] = message.get("reasoning_content", "") + self._thought
            self._thought = ""

    def add_tool_call(self, item: Json, place: str) -> None:
        """Add a tool call to the last assistant message, or to a new one."""
        kind = "custom" if item["type"] == "custom_tool_call" else "function"
        _, argument = ITEM_TYPES[kind]
        inner = {"name": item.get("name"), argument: item.get(argument)}
        previous = self._messages[-1] if self._messages else {}
        call = {"id": _read_tool_call_id(item, place), "type": kind, kind: inner}
        if previous.get("role") != "assistant":
            previous = {"role": "assistant", "content": None}
            self._messages.append(previous)
        self._add_pending_reasoning(previous)
        previous.setdefault("tool_calls", []).append(call)

    def add_tool_result(self, item: Json, place: str) -> None:
        """Add a tool result. Its parts that are not text follow in a user message."""
        output = item.get("output")
        other_parts: list[Json] = []
        if isinstance(output, list):
            parts = _convert_input_parts(output, f"{place}.output")
            other_parts = [part for part in parts if part["type"] != "text"]
            output = "\n".join(part["text"] for part in parts if part["type"] == "text")
        elif not isinstance(output, str):
            raise InvalidField(f"{place}.output", NOT_SUPPORTED)
        call_id = _read_tool_call_id(item, place)
        self._messages.append({"role": "tool", "tool_call_id": call_id, "content": output})
        if other_parts:
            self._messages.append({"role": "user", "content": other_parts})

    def add_or_drop_reasoning(self, item: Json, place: str) -> None:
        parts = as_objects(item.get("content")) or as_objects(item.get("summary"))
        text = "".join(part["text"] for part in parts if isinstance(part.get("text"), str))
        if self._keeps_thoughts and text:
            self._thought += text
        else:
            self.dropped.add("reasoning")


ITEM_CONVERTERS: Mapping[str, Callable[[_ResponsesToChatConversion, Json, str], None]] = {
    "message": _ResponsesToChatConversion.add_message,
    "function_call": _ResponsesToChatConversion.add_tool_call,
    "function_call_output": _ResponsesToChatConversion.add_tool_result,
    "custom_tool_call": _ResponsesToChatConversion.add_tool_call,
    "custom_tool_call_output": _ResponsesToChatConversion.add_tool_result,
    "reasoning": _ResponsesToChatConversion.add_or_drop_reasoning,
}
"""Conversions of items by type. Other types are refused."""


def _read_tool_call_id(item: Json, place: str) -> str | None:
    call_id = item.get("call_id")
    if not isinstance(call_id, str | None):
        raise InvalidField(f"{place}.call_id", "must be a string")
    return call_id


def _group_tool_results(messages: Sequence[Json]) -> list[Json]:
    """Put tool results after their calls: upstreams refuse another message between them."""
    groups: list[list[Json]] = []
    group_by_call: dict[object, list[Json]] = {}
    for message in messages:
        is_result = message["role"] == "tool"
        group = group_by_call.get(message["tool_call_id"]) if is_result else None
        if group is not None:
            group.append(message)
            continue
        groups.append([message])
        for call in message.get("tool_calls", ()):
            group_by_call[call["id"]] = groups[-1]
    return [message for group in groups for message in group]


def _convert_text_format(text_format: Any) -> Json | None:
    kind = as_object(text_format).get("type")
    if kind in ("text", "json_object"):
        return None if kind == "text" else {"type": kind}
    if kind != "json_schema":
        raise InvalidField("text.format", NOT_SUPPORTED)
    schema = {name: value for name, value in text_format.items() if value is not None}
    del schema["type"]
    return {"type": kind, "json_schema": schema}


def _convert_input_parts(parts: list[Any], place: str) -> list[Json]:
    return [_convert_input_part(as_object(p), f"{place}.{n}") for n, p in enumerate(parts)]


def _convert_input_part(part: Json, place: str) -> Json:
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
        name = part.get("filename") or "file.pdf"
        return {"type": "file", "file": {"filename": name, "file_data": part["file_data"]}}
    if kind == "input_audio" and isinstance(part.get("input_audio"), dict):
        return {"type": kind, "input_audio": part["input_audio"]}
    raise InvalidField(place, NOT_SUPPORTED)


OUTPUT_LIMIT_NAMES = ("max_completion_tokens", "max_tokens", "max_output_tokens")
ROLES = frozenset({"assistant", "developer", "system", "user"})


def convert_from_chat(body: Json) -> Json:
    """Return a chat as a Responses request. Raises ``InvalidField``."""
    if body.get("background"):  # a chat client cannot retrieve the response
        raise InvalidField("background", NOT_SUPPORTED)
    request = dict(body)
    request.pop("stream_options", None)
    request["input"] = _convert_messages(request.pop("messages", None) or ())
    request["store"] = body.get("store") is True  # a chat is not stored by default
    if request.pop("logprobs", None):
        request["include"] = [INCLUDE_LOGPROBS]
    tools, choice = request.get("tools"), request.get("tool_choice")
    if tools:
        tools = enumerate(tools if isinstance(tools, list) else [tools])
        request["tools"] = [_flatten_tool(tool, f"tools.{index}") for index, tool in tools]
    if isinstance(choice, dict):
        request["tool_choice"] = _flatten_tool(choice, "tool_choice")
    return rename_chat_fields(request)


def rename_chat_fields(body: Json) -> Json:
    """Rename fields that rules set under chat's names. The lowest output bound applies."""
    request = dict(body)
    bounds = [request.pop(name) for name in OUTPUT_LIMIT_NAMES if request.get(name) is not None]
    if bounds:
        request["max_output_tokens"] = min(bounds)
    return convert_to_api(request, "responses", {"response_format": _convert_response_format})


def _convert_response_format(response_format: Any) -> Json:
    kind = as_object(response_format).get("type")
    if kind in ("text", "json_object"):
        return {"type": kind}
    schema = response_format.get("json_schema") if kind == "json_schema" else None
    if not isinstance(schema, dict):
        raise InvalidField("response_format", NOT_SUPPORTED)
    return {**schema, "type": kind}


def _flatten_tool(tool: Any, place: str) -> Json:
    kind = as_object(tool).get("type")
    inner = tool.get(kind) if kind in ("function", "custom") else None
    if not isinstance(inner, dict):
        raise InvalidField(place, NOT_SUPPORTED)
    flat = {**inner, "type": kind}  # overrides a member named ``type``
    if kind == "function" and place != "tool_choice":
        flat = {"parameters": None, "strict": False, **flat}  # in chat, strict is off by default
    return flat


def _convert_messages(messages: Any) -> list[Json]:
    items: list[Json] = []
    custom_ids: set[str] = set()  # ids of calls of custom tools
    for index, message in enumerate(messages):
        role, place = message["role"], f"messages.{index}"
        if role == "tool":
            items.append(_convert_tool_result(message, place, custom_ids))
        elif role not in ROLES or message.get("function_call"):
            raise InvalidField(f"{place}.role" if role not in ROLES else place, NOT_SUPPORTED)
        else:
            content = message.get("content")
            if message.get("refusal") and not content:
                content = [{"type": "refusal", "refusal": message["refusal"]}]
            elif not isinstance(content, str | None):
                content = _make_input_parts(content, role, f"{place}.content")
            if content:
                items.append({"role": role, "content": content})
            calls = _convert_tool_calls(message, place)
            custom_ids |= {str(c["call_id"]) for c in calls if c["type"] == "custom_tool_call"}
            items += calls
    return items


def _convert_tool_result(message: Json, place: str, custom_ids: set[str]) -> Json:
    call_id, content = message.get("tool_call_id"), message.get("content")
    if not isinstance(content, str | None):
        content = _make_input_parts(content, "user", f"{place}.content")
    kind = "custom_tool_call" if str(call_id) in custom_ids else "function_call"
    return {"type": f"{kind}_output", "call_id": call_id, "output": content or ""}


def _convert_tool_calls(message: Json, place: str) -> list[Json]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise InvalidField(f"{place}.tool_calls", NOT_SUPPORTED)
    items: list[Json] = []
    for index, call in enumerate(calls):
        kind = call.get("type", "function") if isinstance(call, dict) else None
        inner = call.get(kind) if kind in ("function", "custom") else None
        if not isinstance(inner, dict):
            raise InvalidField(f"{place}.tool_calls.{index}", NOT_SUPPORTED)
        item_type, argument = ITEM_TYPES[str(kind)]
        item = {"type": item_type, "call_id": call.get("id"), "name": inner.get("name")}
        items.append({**item, argument: inner.get(argument)})
    return items


def _make_input_parts(content: Any, role: str, place: str) -> list[Json]:
    if not isinstance(content, list):
        raise InvalidField(place, NOT_SUPPORTED)
    return [_make_input_part(part, role, f"{place}.{index}") for index, part in enumerate(content)]


def _make_input_part(part: Any, role: str, place: str) -> Json:
    kind = as_object(part).get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        text_type = "output_text" if role == "assistant" else "input_text"
        return {"type": text_type, "text": part["text"]}
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return {"type": kind, "refusal": part["refusal"]}
    inner = part.get(kind) if kind in ("image_url", "file", "input_audio") else None
    if kind == "image_url" and isinstance(inner, str):
        inner = {"url": inner}
    if not isinstance(inner, dict):
        raise InvalidField(place, NOT_SUPPORTED)
    if kind == "image_url":
        image = {"type": "input_image", "image_url": inner.get("url")}
        return {**image, "detail": inner.get("detail") or "auto"}
    if kind == "file":
        return {**inner, "type": "input_file"}
    return {"type": kind, "input_audio": inner}
