"""Converts a chat into a Responses request.

Fields without a counterpart keep their names: ``translation`` drops or refuses them.
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


def responses_of(body: Json) -> Json:
    """Return a chat as a Responses request. Raises ``InvalidField`` for a part without a
    counterpart, and for ``background``, because a chat client cannot retrieve the response."""
    if body.get("background"):
        raise InvalidField("background", NOT_SUPPORTED)
    made = dict(body)
    made.pop("stream_options", None)
    made["input"] = _items(made.pop("messages", None) or ())
    made["store"] = body.get("store") is True  # a chat is not stored by default
    if made.pop("logprobs", None):
        made["include"] = [LOGPROBS]
    _tools(made)
    return tidy(made)


def tidy(body: Json) -> Json:
    """Return a Responses request in which fields that rules set have their names."""
    made = dict(body)
    bounds = [made.pop(name, None) for name in BOUNDS]
    known = [bound for bound in bounds if bound is not None]
    if known:
        made["max_output_tokens"] = min(known)
    return to_api(made, "responses", {"response_format": _form})


def _form(form: Any) -> Json:
    kind = form.get("type") if isinstance(form, dict) else None
    if kind in ("text", "json_object"):
        return {"type": kind}
    schema = form.get("json_schema") if kind == "json_schema" else None
    if not isinstance(schema, dict):
        raise InvalidField("response_format", NOT_SUPPORTED)
    return {**schema, "type": kind}


def _tools(made: Json) -> None:
    """Convert the tools and the choice of a tool."""
    tools, choice = made.get("tools"), made.get("tool_choice")
    if tools:
        listed = tools if isinstance(tools, list) else [tools]
        made["tools"] = [_flat(tool, f"tools.{at}") for at, tool in enumerate(listed)]
    if isinstance(choice, dict):
        made["tool_choice"] = _flat(choice, "tool_choice")


def _flat(tool: Any, place: str) -> Json:
    """Return a tool, or the choice of one, with its members next to its type."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    inner = tool.get(kind) if kind in ("function", "custom") else None
    if not isinstance(inner, dict):
        raise InvalidField(place, NOT_SUPPORTED)
    made = {**inner, "type": kind}  # a member named type is no type of a tool
    if kind == "function" and place != "tool_choice":
        made = {"parameters": None, "strict": False, **made}  # a chat has to ask for strict
    return made


def _items(messages: Any) -> list[Json]:
    items: list[Json] = []
    custom: set[str] = set()  # ids of calls of custom tools
    for at, message in enumerate(messages):
        role, place = message["role"], f"messages.{at}"
        if role == "tool":
            result = _result(message, place)
            if str(result["call_id"]) in custom:
                result["type"] = "custom_tool_call_output"
            items.append(result)
        elif role not in ROLES or message.get("function_call"):
            raise InvalidField(f"{place}.role" if role not in ROLES else place, NOT_SUPPORTED)
        else:
            content = _content(message, role, place)
            if content:
                items.append({"role": role, "content": content})
            calls = _calls(message, place)
            custom |= {str(call["call_id"]) for call in calls if call["type"] == "custom_tool_call"}
            items += calls
    return items


def _result(message: Json, place: str) -> Json:
    content = message.get("content")
    if not isinstance(content, str | None):
        content = _parts(content, "user", f"{place}.content")
    head = {"type": "function_call_output", "call_id": message.get("tool_call_id")}
    return {**head, "output": content or ""}


def _content(message: Json, role: str, place: str) -> Any:
    content = message.get("content")
    if message.get("refusal") and not content:
        return [{"type": "refusal", "refusal": message["refusal"]}]
    if isinstance(content, str | None):
        return content
    return _parts(content, role, f"{place}.content")


def _calls(message: Json, place: str) -> list[Json]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise InvalidField(f"{place}.tool_calls", NOT_SUPPORTED)
    made: list[Json] = []
    for at, call in enumerate(calls):
        kind = call.get("type", "function") if isinstance(call, dict) else None
        inner = call.get(kind) if kind in ("function", "custom") else None
        if not isinstance(inner, dict):
            raise InvalidField(f"{place}.tool_calls.{at}", NOT_SUPPORTED)
        name = "custom_tool_call" if kind == "custom" else "function_call"
        argument = "input" if kind == "custom" else "arguments"
        known = {each: inner.get(each) for each in ("name", argument)}
        made.append({"type": name, "call_id": call.get("id"), **known})
    return made


def _parts(content: Any, role: str, place: str) -> list[Json]:
    if not isinstance(content, list):
        raise InvalidField(place, NOT_SUPPORTED)
    return [_part(part, role, f"{place}.{at}") for at, part in enumerate(content)]


def _part(part: Any, role: str, place: str) -> Json:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" and isinstance(part.get("text"), str):
        shown = "output_text" if role == "assistant" else "input_text"
        return {"type": shown, "text": part["text"]}
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
