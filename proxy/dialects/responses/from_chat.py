"""Converts a chat request into a Responses request.

Fields without a counterpart keep their names. ``translation`` drops or refuses them.
"""

from __future__ import annotations

from typing import Any

from proxy.dialects.responses.to_chat import LOGPROBS
from proxy.errors import InvalidField
from proxy.errors.field_problems import NOT_SUPPORTED
from proxy.fields.renaming import to_api
from proxy.types import Json

BOUNDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
ROLES = frozenset({"assistant", "developer", "system", "user"})


def convert_from_chat(body: Json) -> Json:
    """Return a chat as a Responses request.

    Raises:
        InvalidField: A part has no counterpart, or ``background`` is set: a chat client cannot
            retrieve the response.
    """
    if body.get("background"):
        raise InvalidField("background", NOT_SUPPORTED)
    request = dict(body)
    request.pop("stream_options", None)
    request["input"] = _items(request.pop("messages", None) or ())
    request["store"] = body.get("store") is True  # a chat is not stored by default
    if request.pop("logprobs", None):
        request["include"] = [LOGPROBS]
    tools, choice = request.get("tools"), request.get("tool_choice")
    if tools:
        tools = tools if isinstance(tools, list) else [tools]
        request["tools"] = [_flatten(tool, f"tools.{index}") for index, tool in enumerate(tools)]
    if isinstance(choice, dict):
        request["tool_choice"] = _flatten(choice, "tool_choice")
    return tidy(request)


def tidy(body: Json) -> Json:
    """Return a Responses request in which fields that rules set have their Responses names."""
    request = dict(body)
    bounds = [request.pop(name, None) for name in BOUNDS]
    token_bounds = [bound for bound in bounds if bound is not None]
    if token_bounds:
        request["max_output_tokens"] = min(token_bounds)
    return to_api(request, "responses", {"response_format": _text_format})


def _text_format(response_format: Any) -> Json:
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    if kind in ("text", "json_object"):
        return {"type": kind}
    schema = response_format.get("json_schema") if kind == "json_schema" else None
    if not isinstance(schema, dict):
        raise InvalidField("response_format", NOT_SUPPORTED)
    return {**schema, "type": kind}


def _flatten(tool: Any, place: str) -> Json:
    """Return a tool, or the choice of one, with its members next to its type."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    inner = tool.get(kind) if kind in ("function", "custom") else None
    if not isinstance(inner, dict):
        raise InvalidField(place, NOT_SUPPORTED)
    flat = {**inner, "type": kind}  # overrides a member with the name type
    if kind == "function" and place != "tool_choice":
        flat = {"parameters": None, "strict": False, **flat}  # a chat has to request strict
    return flat


def _items(messages: Any) -> list[Json]:
    items: list[Json] = []
    custom_ids: set[str] = set()  # of calls of custom tools
    for index, message in enumerate(messages):
        role, place = message["role"], f"messages.{index}"
        if role == "tool":
            items.append(_tool_result(message, place, custom_ids))
        elif role not in ROLES or message.get("function_call"):
            raise InvalidField(f"{place}.role" if role not in ROLES else place, NOT_SUPPORTED)
        else:
            content = message.get("content")
            if message.get("refusal") and not content:
                content = [{"type": "refusal", "refusal": message["refusal"]}]
            elif not isinstance(content, str | None):
                content = _parts(content, role, f"{place}.content")
            if content:
                items.append({"role": role, "content": content})
            calls = _tool_calls(message, place)
            custom_ids |= {str(c["call_id"]) for c in calls if c["type"] == "custom_tool_call"}
            items += calls
    return items


def _tool_result(message: Json, place: str, custom_ids: set[str]) -> Json:
    call_id, content = message.get("tool_call_id"), message.get("content")
    if not isinstance(content, str | None):
        content = _parts(content, "user", f"{place}.content")
    kind = "custom_tool_call" if str(call_id) in custom_ids else "function_call"
    return {"type": f"{kind}_output", "call_id": call_id, "output": content or ""}


def _tool_calls(message: Json, place: str) -> list[Json]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise InvalidField(f"{place}.tool_calls", NOT_SUPPORTED)
    items: list[Json] = []
    for index, call in enumerate(calls):
        kind = call.get("type", "function") if isinstance(call, dict) else None
        inner = call.get(kind) if kind in ("function", "custom") else None
        if not isinstance(inner, dict):
            raise InvalidField(f"{place}.tool_calls.{index}", NOT_SUPPORTED)
        item = {"type": f"{kind}_call", "call_id": call.get("id"), "name": inner.get("name")}
        if kind == "custom":
            items.append({**item, "type": "custom_tool_call", "input": inner.get("input")})
        else:
            items.append({**item, "arguments": inner.get("arguments")})
    return items


def _parts(content: Any, role: str, place: str) -> list[Json]:
    if not isinstance(content, list):
        raise InvalidField(place, NOT_SUPPORTED)
    return [_part(part, role, f"{place}.{index}") for index, part in enumerate(content)]


def _part(part: Any, role: str, place: str) -> Json:
    kind = part.get("type") if isinstance(part, dict) else None
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
    return (
        {**inner, "type": "input_file"} if kind == "file" else {"type": kind, "input_audio": inner}
    )
