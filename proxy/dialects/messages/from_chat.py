"""Converts a chat into a Messages request.

Fields without a counterpart keep their names: ``translation`` drops or refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from proxy.dialects.documents import MOST_SHALLOW
from proxy.dialects.messages.tools import CHOICES, TIERS, tool_use
from proxy.errors import InvalidField
from proxy.errors.field_problems import NOT_SUPPORTED, unsupported_type
from proxy.fields.member_table import TOOL_MEMBERS
from proxy.fields.renaming import Conversions, to_api
from proxy.types import Json

_DATA_URL = re.compile(r"data:([^;,]{1,128});base64,", re.IGNORECASE)
_SYSTEM = frozenset({"system", "developer"})
ANSWER_TOKENS = 8192
"""The bound of an answer without one. All current models of Messages take it, and most files that
agents write are shorter."""
EFFORTS: Mapping[str, str] = {"minimal": "low"}


def messages_of(body: Json) -> Json:
    """Return a chat as a Messages request. Raises ``InvalidField`` for a part without a
    counterpart."""
    made = dict(body)
    made.pop("stream_options", None)
    system, messages = _messages(made.pop("messages", None) or ())
    if system:
        made["system"] = system
    made["messages"] = messages
    bounds = [made.pop(name, None) for name in ("max_completion_tokens", "max_tokens")]
    known = [bound for bound in bounds if bound is not None]
    made["max_tokens"] = min(known) if known else ANSWER_TOKENS
    made.pop("metadata", None)  # Messages allow a user id only
    tier = TIERS.get(str(made.pop("service_tier", None)))
    if tier is not None:
        made["service_tier"] = tier
    _tools(made)
    return _renamed(made)


def lost_of(body: Json) -> list[str]:
    """Return the names of a chat's fields that are left out."""
    lost = ["metadata"] if body.get("metadata") else []
    if body.get("service_tier") not in (None, *TIERS):
        lost.append("service_tier")
    if not isinstance(body.get("reasoning_effort"), str | None):
        lost.append("reasoning_effort")
    if not body.get("tools"):
        if body.get("parallel_tool_calls") is False:
            lost.append("parallel_tool_calls")
        if body.get("tool_choice") not in (None, "auto", "none"):
            lost.append("tool_choice")
    return lost


def tidy(body: Json) -> Json:
    """Return a Messages request in which fields that rules set have their names, without unsigned
    thoughts: these come from another upstream, or were masked."""
    made = dict(body)
    made["messages"] = [_signed(message) for message in body.get("messages") or ()]
    bound = made.pop("max_completion_tokens", None)
    if bound is not None:
        made["max_tokens"] = min(bound, made.get("max_tokens") or bound)
    return _renamed(made)


def _signed(message: Json) -> Json:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    kept = [block for block in content if not _is_unsigned(block)]
    return message if len(kept) == len(content) or not kept else {**message, "content": kept}


def _is_unsigned(block: Any) -> bool:
    is_thought = isinstance(block, dict) and block.get("type") == "thinking"
    return is_thought and not block.get("signature")


def _renamed(body: Json) -> Json:
    """Return a request with the names that Messages have for fields of a chat."""
    form = body.get("response_format")
    is_schema = isinstance(form, dict) and form.get("type") == "json_schema"
    other_form = {} if is_schema or form is None else {"response_format": form}
    thinking = {"thinking": {"type": "disabled"}} if body.get("reasoning_effort") == "none" else {}
    return {**to_api(body, "messages", CONVERSIONS), **other_form, **thinking}


def _schema(form: Any) -> Json | None:
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        return None
    inner = form.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, dict) else None
    return {"type": "json_schema", "schema": schema}


def _effort(effort: Any) -> str | None:
    return EFFORTS.get(effort, effort) if isinstance(effort, str) and effort != "none" else None


CONVERSIONS: Conversions = {
    "reasoning_effort": _effort,
    "response_format": _schema,
    "stop": lambda stop: [stop] if isinstance(stop, str) and stop else stop or None,
}


def _tools(made: Json) -> None:
    choice, parallel = made.pop("tool_choice", None), made.pop("parallel_tool_calls", None)
    wanted = _choice(choice)
    if not made.get("tools"):
        made.pop("tools", None)
        return
    if not isinstance(made["tools"], list):
        raise InvalidField("tools", NOT_SUPPORTED)
    made["tools"] = [_tool(at, tool) for at, tool in enumerate(made["tools"])]
    if parallel is False and (wanted or {}).get("type") != "none":
        wanted = {**(wanted or {"type": "auto"}), "disable_parallel_tool_use": True}
    if wanted is not None:
        made["tool_choice"] = wanted


def _choice(choice: Any) -> Json | None:
    if choice is None:
        return None
    if isinstance(choice, str) and choice in CHOICES:
        return {"type": CHOICES[choice]}
    function = choice.get("function") if isinstance(choice, dict) else None
    if not isinstance(function, dict) or choice.get("type") != "function":
        raise InvalidField("tool_choice", NOT_SUPPORTED)
    return {"type": "tool", "name": function.get("name")}


def _tool(at: int, tool: Any) -> Json:
    kind = tool.get("type") if isinstance(tool, dict) else None
    function = tool.get("function") if kind == "function" else None
    if not isinstance(function, dict):
        problem = NOT_SUPPORTED if kind in (None, "function") else unsupported_type(kind)
        raise InvalidField(f"tools.{at}", problem)
    known = {name: each for name, each in function.items() if each is not None}
    schema = known.get("parameters") or {"type": "object", "properties": {}}
    known = {"name": None, **known, "parameters": schema}
    return {own: known[name] for name, own in TOOL_MEMBERS.items() if name in known}


def _messages(messages: Any) -> tuple[Any, list[Json]]:
    """Return the system prompt and the other messages."""
    system: list[Json] = []
    made: list[Json] = []
    for at, message in enumerate(messages):
        role, place = message["role"], f"messages.{at}"
        if role in _SYSTEM:
            system += _parts(message.get("content"), place)
        elif role == "tool":
            result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id")}
            content = message.get("content")
            words = content if isinstance(content, str) else _parts(content, place)
            _add_result(made, result | ({"content": words} if words else {}))
        elif role == "assistant":
            made.append({"role": role, "content": _assistant(message, place)})
        elif role == "user":
            content = message.get("content")
            words = content if isinstance(content, str) else _parts(content, place)
            made.append({"role": role, "content": words})
        else:
            raise InvalidField(f"{place}.role", NOT_SUPPORTED)
    if len(system) == 1 and system[0].keys() == {"type", "text"}:
        return system[0]["text"], made
    return system, made


def _add_result(made: list[Json], result: Json) -> None:
    """Add a tool result, to the message before it if that has only tool results."""
    last = made[-1] if made else {}
    if last.get("role") == "user" and isinstance(last["content"], list):
        kinds = {block.get("type") for block in last["content"]}
        if kinds == {"tool_result"}:
            last["content"].append(result)
            return
    made.append({"role": "user", "content": [result]})


def _assistant(message: Json, place: str) -> Any:
    content, calls = message.get("content"), message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise InvalidField(f"{place}.tool_calls", NOT_SUPPORTED)
    if message.get("function_call"):
        raise InvalidField(f"{place}.function_call", NOT_SUPPORTED)
    if isinstance(content, str) and not calls:
        return content
    blocks = [part for part in _parts(content, place) if part.get("text") != ""]
    for at, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise InvalidField(f"{place}.tool_calls.{at}", NOT_SUPPORTED)
        blocks.append(tool_use(call, partial(_refused, f"{place}.tool_calls.{at}")))
    return blocks


def _refused(place: str, arguments: Any) -> Json:
    problem = f"must be a JSON object nested at most {MOST_SHALLOW} levels deep"
    raise InvalidField(f"{place}.function.arguments", problem)


def _parts(content: Any, place: str) -> list[Json]:
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise InvalidField(f"{place}.content", NOT_SUPPORTED)
    return [_block(part, f"{place}.content.{at}") for at, part in enumerate(content)]


def _block(part: Any, place: str) -> Json:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return dict(part)
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return {"type": "text", "text": part["refusal"]}
    if kind == "image_url":
        inner = part.get("image_url")
        url = inner.get("url") if isinstance(inner, dict) else inner
        return {"type": "image", "source": _source(url, place)}
    if kind == "file" and isinstance(part.get("file"), dict):
        source = _source(part["file"].get("file_data"), place)
        name = part["file"].get("filename")
        return {"type": "document", "source": source} | ({"title": name} if name else {})
    raise InvalidField(place, NOT_SUPPORTED)


def _source(url: Any, place: str) -> Json:
    """Return the source of a data URL or of a web address. Raises ``InvalidField``."""
    if not isinstance(url, str):
        raise InvalidField(place, NOT_SUPPORTED)
    found = _DATA_URL.match(url[:256])
    if found is not None:
        return {"type": "base64", "media_type": found[1].lower(), "data": url[found.end() :]}
    if not url.lower().startswith(("https://", "http://")):
        raise InvalidField(place, NOT_SUPPORTED)
    return {"type": "url", "url": url}
