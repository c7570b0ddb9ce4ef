"""Converts a chat request into a Messages request.

Fields without a counterpart keep their names. ``translation`` drops or refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from proxy.dialects.messages.schema import SERVICE_TIERS, TOOL_CHOICES, parse_tool_arguments
from proxy.dialects.wire.strict_json import MAX_RESPONSE_DEPTH, as_object
from proxy.errors import InvalidField
from proxy.errors.field_problems import NOT_SUPPORTED, describe_unsupported_type
from proxy.fields.field_table import Conversions, convert_to_api
from proxy.fields.member_table import TOOL_MEMBERS
from proxy.types import Json

DEFAULT_MAX_TOKENS = 8192
"""Default bound of output tokens. All current models accept it, and most files are shorter."""
EFFORT_NAMES: Mapping[str, str] = {"minimal": "low"}
_DATA_URL = re.compile(r"data:([^;,]{1,128});base64,", re.IGNORECASE)


def convert_from_chat(body: Json) -> Json:
    """Return a chat as a Messages request. Raises ``InvalidField``."""
    request = dict(body)
    request.pop("stream_options", None)
    request.pop("metadata", None)  # Messages allow a user id only
    system, messages = _convert_messages(request.pop("messages", None) or ())
    if system:
        request["system"] = system
    request["messages"] = messages
    bounds = [request.pop(name, None) for name in ("max_completion_tokens", "max_tokens")]
    request["max_tokens"] = min(
        [bound for bound in bounds if bound is not None], default=DEFAULT_MAX_TOKENS
    )
    tier = SERVICE_TIERS.get(str(request.pop("service_tier", None)))
    if tier is not None:
        request["service_tier"] = tier
    _convert_tools(request)
    return _convert_chat_fields(request)


def find_lost_fields(body: Json) -> list[str]:
    """Return the fields of a chat that ``convert_from_chat`` leaves out."""
    names = ["metadata"] if body.get("metadata") else []
    if body.get("service_tier") not in (None, *SERVICE_TIERS):
        names.append("service_tier")
    if not isinstance(body.get("reasoning_effort"), str | None):
        names.append("reasoning_effort")
    if not body.get("tools"):
        if body.get("parallel_tool_calls") is False:
            names.append("parallel_tool_calls")
        if body.get("tool_choice") not in (None, "auto", "none"):
            names.append("tool_choice")
    return names


def rename_chat_fields(body: Json) -> Json:
    """Rename fields that rules set under chat's names. The lowest output bound applies.

    Thinking blocks without a signature are removed: another upstream wrote them, or a guard masked
    them.
    """
    request = dict(body)
    request["messages"] = [
        _drop_unsigned_thinking(message) for message in body.get("messages") or ()
    ]
    bound = request.pop("max_completion_tokens", None)
    if bound is not None:
        request["max_tokens"] = min(bound, request.get("max_tokens") or bound)
    return _convert_chat_fields(request)


def _drop_unsigned_thinking(message: Json) -> Json:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    blocks = [b for b in content if as_object(b).get("type") != "thinking" or b.get("signature")]
    return {**message, "content": blocks} if blocks else message


def _convert_chat_fields(body: Json) -> Json:
    form = body.get("response_format")
    is_schema = as_object(form).get("type") == "json_schema"
    other_form = {} if is_schema or form is None else {"response_format": form}
    thinking = {"thinking": {"type": "disabled"}} if body.get("reasoning_effort") == "none" else {}
    return {**convert_to_api(body, "messages", CONVERSIONS), **other_form, **thinking}


def _convert_response_format(response_format: Any) -> Json | None:
    if as_object(response_format).get("type") != "json_schema":
        return None
    schema = as_object(response_format.get("json_schema")).get("schema")
    return {"type": "json_schema", "schema": schema}


def _convert_reasoning_effort(effort: Any) -> str | None:
    if not isinstance(effort, str) or effort == "none":
        return None
    return EFFORT_NAMES.get(effort, effort)


CONVERSIONS: Conversions = {
    "reasoning_effort": _convert_reasoning_effort,
    "response_format": _convert_response_format,
    "stop": lambda stop: [stop] if isinstance(stop, str) and stop else stop or None,
}


def _convert_tools(request: Json) -> None:
    choice = _convert_tool_choice(request.pop("tool_choice", None))
    parallel, tools = request.pop("parallel_tool_calls", None), request.get("tools")
    if not tools:
        request.pop("tools", None)
        return
    if not isinstance(tools, list):
        raise InvalidField("tools", NOT_SUPPORTED)
    request["tools"] = [_convert_tool(index, tool) for index, tool in enumerate(tools)]
    if parallel is False and (choice or {}).get("type") != "none":
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    if choice is not None:
        request["tool_choice"] = choice


def _convert_tool_choice(choice: Any) -> Json | None:
    if choice is None:
        return None
    if isinstance(choice, str) and choice in TOOL_CHOICES:
        return {"type": TOOL_CHOICES[choice]}
    function = as_object(choice).get("function")
    if not isinstance(function, dict) or choice.get("type") != "function":
        raise InvalidField("tool_choice", NOT_SUPPORTED)
    return {"type": "tool", "name": function.get("name")}


def _convert_tool(index: int, tool: Any) -> Json:
    kind = as_object(tool).get("type")
    function = tool.get("function") if kind == "function" else None
    if not isinstance(function, dict):
        problem = NOT_SUPPORTED if kind in (None, "function") else describe_unsupported_type(kind)
        raise InvalidField(f"tools.{index}", problem)
    members = {"name": None} | {k: value for k, value in function.items() if value is not None}
    members["parameters"] = members.get("parameters") or {"type": "object", "properties": {}}
    return {own_name: members[name] for name, own_name in TOOL_MEMBERS.items() if name in members}


def _convert_messages(chat_messages: Any) -> tuple[Any, list[Json]]:
    system: list[Json] = []
    messages: list[Json] = []
    for index, message in enumerate(chat_messages):
        role, place = message["role"], f"messages.{index}"
        content = message.get("content")
        if role in ("system", "developer"):
            system += _convert_content(content, place)
        elif role == "assistant":
            messages.append({"role": role, "content": _convert_assistant_content(message, place)})
        elif role in ("tool", "user"):
            content = content if isinstance(content, str) else _convert_content(content, place)
            if role == "user":
                messages.append({"role": role, "content": content})
                continue
            result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id")}
            _add_tool_result(messages, result | ({"content": content} if content else {}))
        else:
            raise InvalidField(f"{place}.role", NOT_SUPPORTED)
    if len(system) == 1 and system[0].keys() == {"type", "text"}:
        return system[0]["text"], messages
    return system, messages


def _add_tool_result(messages: list[Json], result: Json) -> None:
    """Add a tool result, to the previous message if that has only tool results."""
    content = messages[-1]["content"] if messages and messages[-1]["role"] == "user" else None
    if isinstance(content, list) and all(block.get("type") == "tool_result" for block in content):
        content.append(result)
    else:
        messages.append({"role": "user", "content": [result]})


def _convert_assistant_content(message: Json, place: str) -> Any:
    content, calls = message.get("content"), message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise InvalidField(f"{place}.tool_calls", NOT_SUPPORTED)
    if message.get("function_call"):
        raise InvalidField(f"{place}.function_call", NOT_SUPPORTED)
    if isinstance(content, str) and not calls:
        return content
    blocks = [block for block in _convert_content(content, place) if block.get("text") != ""]
    return blocks + [
        _convert_tool_call(call, f"{place}.tool_calls.{index}") for index, call in enumerate(calls)
    ]


def _convert_tool_call(call: Any, place: str) -> Json:
    function = as_object(call).get("function")
    if not isinstance(function, dict):
        raise InvalidField(place, NOT_SUPPORTED)

    def refuse(value: Any) -> Json:
        problem = f"must be a JSON object nested at most {MAX_RESPONSE_DEPTH} levels deep"
        raise InvalidField(f"{place}.function.arguments", problem)

    arguments = parse_tool_arguments(function.get("arguments"), refuse)
    block = {"type": "tool_use", "id": call.get("id"), "name": function.get("name")}
    return {**block, "input": arguments}


def _convert_content(content: Any, place: str) -> list[Json]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise InvalidField(f"{place}.content", NOT_SUPPORTED)
    return [_convert_part(part, f"{place}.content.{index}") for index, part in enumerate(content)]


def _convert_part(part: Any, place: str) -> Json:
    kind = as_object(part).get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        return dict(part)
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return {"type": "text", "text": part["refusal"]}
    if kind == "image_url":
        inner = part.get("image_url")
        url = inner.get("url") if isinstance(inner, dict) else inner
        return {"type": "image", "source": _make_source_from_url(url, place)}
    if kind == "file" and isinstance(part.get("file"), dict):
        source = _make_source_from_url(part["file"].get("file_data"), place)
        name = part["file"].get("filename")
        return {"type": "document", "source": source} | ({"title": name} if name else {})
    raise InvalidField(place, NOT_SUPPORTED)


def _make_source_from_url(url: Any, place: str) -> Json:
    if not isinstance(url, str):
        raise InvalidField(place, NOT_SUPPORTED)
    match = _DATA_URL.match(url[:256])
    if match is not None:
        return {"type": "base64", "media_type": match[1].lower(), "data": url[match.end() :]}
    if not url.lower().startswith(("https://", "http://")):
        raise InvalidField(place, NOT_SUPPORTED)
    return {"type": "url", "url": url}
