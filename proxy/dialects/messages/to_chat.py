"""Checks a Messages request and converts it into a chat request.

Only blocks that guards or a conversion read are checked. The upstream checks other types. A part
that would change the response is refused. A part that only tunes it is dropped and reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from proxy.dialects.messages.schema import SERVICE_TIERS, TOOL_CHOICES
from proxy.dialects.wire.strict_json import as_object
from proxy.errors import InvalidField
from proxy.errors.field_problems import NOT_SUPPORTED, describe_unsupported_type
from proxy.fields.checks import (
    Fields,
    any_of,
    check_member,
    make_required,
    mapping,
    object_array,
    string,
)
from proxy.fields.field_table import PATHS_BY_API, Conversions, convert_from_api
from proxy.fields.member_table import TOOL_MEMBERS
from proxy.types import Json
from proxy.types.providers import is_reasoning_call

_CONTENT = make_required(any_of(string(), object_array()))
_STRING, _OBJECT = make_required(string()), make_required(mapping())
_SOURCE: Fields = {"source": _OBJECT}

BLOCK_MEMBERS: Mapping[str, Fields] = {
    "text": {"text": _STRING},
    "image": _SOURCE,
    "document": _SOURCE,
    "thinking": {"thinking": _STRING, "signature": string()},
    "redacted_thinking": {"data": _STRING},
    "search_result": {"content": make_required(object_array())},
    "tool_reference": {"tool_name": _STRING},
    "tool_use": {"id": _STRING, "name": _STRING, "input": _OBJECT},
    "tool_result": {"tool_use_id": _STRING, "content": any_of(string(), object_array())},
}
"""Members of blocks by type."""


def check_content_blocks(body: Json) -> None:
    """Raise ``InvalidField`` for a malformed block or a tool result without its tool call.

    The call must be in the assistant's previous turn.
    """
    call_ids: set[str] = set()
    role = None
    for index, message in enumerate(body.get("messages") or ()):
        place = f"messages.{index}.content"
        blocks: Any = message.get("content")
        if type(blocks) is str:
            blocks = ()
        else:
            check_member("content", blocks, _CONTENT, f"messages.{index}")
            _check_block_members(blocks, place)
        if message["role"] == "assistant":
            call_ids = call_ids if role == "assistant" else set()  # messages of one turn
            call_ids |= {str(block["id"]) for block in blocks if block["type"] == "tool_use"}
        else:
            _check_tool_results(blocks, call_ids, place)
        role = message["role"]
    if isinstance(body.get("system"), list):
        _check_block_members(body["system"], "system")


def _check_block_members(blocks: Sequence[Json], place: str) -> None:
    for index, block in enumerate(blocks):
        block_place = f"{place}.{index}"
        kind: Any = block.get("type")
        if type(kind) is not str:
            check_member("type", kind, _STRING, block_place)
        for name, field in BLOCK_MEMBERS.get(kind, {}).items():
            check_member(name, block.get(name), field, block_place)
        if kind == "tool_result" and type(block.get("content")) is list:
            _check_block_members(block["content"], f"{block_place}.content")


def _check_tool_results(blocks: Sequence[Json], call_ids: set[str], place: str) -> None:
    for index, block in enumerate(blocks):
        if block["type"] == "tool_result" and block["tool_use_id"] not in call_ids:
            problem = "must be the id of a tool_use block in the assistant message before it"
            raise InvalidField(f"{place}.{index}.tool_use_id", problem)


EFFORT_NAMES: Mapping[str, str] = {"xhigh": "high", "max": "high"}
CHAT_CHOICES = {messages: chat for chat, messages in TOOL_CHOICES.items()}
CHAT_TIERS = {messages: chat for chat, messages in SERVICE_TIERS.items()}
MEDIUM_BUDGET, HIGH_BUDGET = 4096, 16384
"""Thinking budgets in tokens from which the effort is medium and high."""
CONVERTED_FIELDS = {"messages", "system", "thinking", "tool_choice", "tools"}.union(
    field for _, field, _ in PATHS_BY_API["messages"]
)
"""Fields with another format in a chat. All others keep their names."""


def convert_to_chat(body: Json, *, keeps_thoughts: bool) -> tuple[Json, tuple[str, ...]]:
    """Return a request as a chat, and the names of dropped fields. Raises ``InvalidField``."""
    conversion = _MessagesToChatConversion(body, keeps_thoughts=keeps_thoughts)
    return conversion.convert(), tuple(sorted(conversion.dropped))


class _MessagesToChatConversion:
    """Conversion of one request. ``_place`` is the path of the current block."""

    def __init__(self, body: Json, *, keeps_thoughts: bool) -> None:
        self._body = body
        self._keeps_thoughts = keeps_thoughts
        self._place = "system"
        self._is_reasoning = is_reasoning_call(str(body.get("model")), {})
        self.dropped: set[str] = set()

    def _make_unsupported_error(self) -> InvalidField:
        return InvalidField(self._place, NOT_SUPPORTED)

    def convert(self) -> Json:
        body = self._body
        chat = {name: value for name, value in body.items() if name not in CONVERTED_FIELDS}
        system = self._convert_system(body.get("system"))
        system_messages = [{"role": "system", "content": system}] if body.get("system") else []
        chat["messages"] = [*system_messages, *self._convert_messages(body.get("messages") or ())]
        tier = chat.get("service_tier")
        if tier is not None:
            chat["service_tier"] = CHAT_TIERS.get(tier, tier)
        conversions = {**CONVERSIONS, "reasoning_effort": self._convert_reasoning_effort}
        renamed, dropped = convert_from_api(body, "messages", conversions)
        self.dropped |= dropped
        chat |= renamed | self._convert_tools()
        self._add_effort_from_thinking_budget(chat)
        if is_reasoning_call(str(body.get("model")), chat) and "max_tokens" in chat:
            chat["max_completion_tokens"] = chat.pop("max_tokens")
        return chat

    def _convert_reasoning_effort(self, effort: Any) -> str | None:
        if not self._is_reasoning:
            self.dropped.add("output_config")
            return None
        if not isinstance(effort, str):
            raise InvalidField("output_config", NOT_SUPPORTED)
        return EFFORT_NAMES.get(effort, effort)

    def _add_effort_from_thinking_budget(self, chat: Json) -> None:
        thinking = self._body.get("thinking")
        thinking = thinking if isinstance(thinking, dict) else {"type": "disabled"}
        budget = thinking.get("budget_tokens")
        if not self._is_reasoning:
            self.dropped |= {"thinking"} if thinking.get("type") != "disabled" else set()
        elif type(budget) is int and "reasoning_effort" not in chat:
            level = (budget >= MEDIUM_BUDGET) + (budget >= HIGH_BUDGET)
            chat["reasoning_effort"] = ("low", "medium", "high")[level]

    def _convert_tools(self) -> Json:
        fields: Json = {}
        tools, choice = self._body.get("tools"), self._body.get("tool_choice")
        if tools:
            fields["tools"] = [self._convert_tool(index, tool) for index, tool in enumerate(tools)]
        if not isinstance(choice, dict):
            return fields
        if choice.get("disable_parallel_tool_use") is True:
            fields["parallel_tool_calls"] = False
        kind = choice.get("type")
        if kind == "tool":
            fields["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
        elif isinstance(kind, str) and kind in CHAT_CHOICES:
            fields["tool_choice"] = CHAT_CHOICES[kind]
        else:
            raise InvalidField("tool_choice", NOT_SUPPORTED)
        return fields

    def _convert_tool(self, index: int, tool: Json) -> Json:
        kind = tool.get("type")
        if kind not in (None, "custom"):  # a tool of Anthropic
            raise InvalidField(f"tools.{index}", describe_unsupported_type(kind))
        self._record_dropped_members(tool, {"type", *TOOL_MEMBERS.values()})
        function: Json = {"name": None, "parameters": None}
        for name, own_name in TOOL_MEMBERS.items():
            if tool.get(own_name) is not None:
                function[name] = tool[own_name]
        return {"type": "function", "function": function}

    def _record_dropped_members(self, block: Json, kept_names: set[str]) -> None:
        self.dropped |= {n for n in block.keys() - kept_names if block[n] not in (None, [], {})}

    def _convert_system(self, content: Any) -> Any:
        """Return the content of the system message: a single text as such, several as parts."""
        if not isinstance(content, list):
            return content
        parts = [
            part
            for block in self._iter_blocks(content, "system")
            for part in self._convert_to_text_parts(block)
        ]
        return parts[0]["text"] if len(parts) == 1 else parts

    def _iter_blocks(self, content: list[Any], place: str) -> Iterator[Any]:
        """Yield blocks, and set ``_place`` to the path of each."""
        for index, block in enumerate(content):
            self._place = f"{place}.{index}"
            yield block

    def _convert_to_text_parts(self, block: Any) -> list[Json]:
        parts = self._convert_block(block)
        if any(part["type"] != "text" for part in parts):
            raise self._make_unsupported_error()
        return parts

    def _convert_messages(self, messages: Any) -> Iterator[Json]:
        for index, message in enumerate(messages):
            content, role = message.get("content"), message["role"]
            place = f"messages.{index}.content"
            if not isinstance(content, list):
                yield {"role": role, "content": content}
            elif role == "assistant":
                yield self._convert_assistant_blocks(self._iter_blocks(content, place))
            else:
                yield from self._convert_user_blocks(role, self._iter_blocks(content, place))

    def _convert_assistant_blocks(self, content: Iterator[Any]) -> Json:
        parts: list[Json] = []
        thoughts: list[str] = []
        calls: list[Json] = []
        for block in content:
            kind = as_object(block).get("type")
            thought = block.get("thinking") if kind == "thinking" else None
            if self._keeps_thoughts and isinstance(thought, str):
                thoughts.append(thought)
            elif kind in ("thinking", "redacted_thinking"):
                self.dropped.add("thinking")
            elif kind == "tool_use":
                self._record_dropped_members(block, {"type", "id", "name", "input"})
                arguments = orjson.dumps(block.get("input") or {}).decode()
                function = {"name": block.get("name"), "arguments": arguments}
                calls.append({"id": block.get("id"), "type": "function", "function": function})
            else:
                parts += self._convert_to_text_parts(block)
        text = "".join(part["text"] for part in parts)
        message: Json = {"role": "assistant", "content": text if text or not calls else None}
        message |= {"reasoning_content": "".join(thoughts)} if any(thoughts) else {}
        return message | ({"tool_calls": calls} if calls else {})

    def _convert_user_blocks(self, role: str, content: Iterator[Any]) -> Iterator[Json]:
        parts: list[Json] = []
        for block in content:
            if as_object(block).get("type") == "tool_result":
                yield self._convert_tool_result(block, parts)
            else:
                parts += self._convert_block(block)
        if len(parts) == 1 and parts[0]["type"] == "text":
            yield {"role": role, "content": parts[0]["text"]}
        elif parts:
            yield {"role": role, "content": parts}

    def _convert_tool_result(self, block: Json, user_parts: list[Json]) -> Json:
        """Return the text of a tool result. Its other parts go to the user message."""
        self._record_dropped_members(block, {"type", "tool_use_id", "content", "is_error"})
        text = block.get("content")
        if isinstance(text, list):
            blocks = self._iter_blocks(text, f"{self._place}.content")
            parts = [part for inner in blocks for part in self._convert_block(inner)]
            user_parts += [part for part in parts if part["type"] != "text"]
            text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        elif not isinstance(text, str | None):
            raise self._make_unsupported_error()
        text = f"Error: {text or ''}" if block.get("is_error") is True else text or ""
        return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text}

    def _convert_block(self, block: Any) -> list[Json]:
        kind = as_object(block).get("type")
        if kind == "text" and isinstance(block.get("text"), str):
            self._record_dropped_members(block, {"type", "text"})
            return [_make_text_part(block["text"])]
        if kind == "image":
            self._record_dropped_members(block, {"type", "source"})
            url = self._make_source_url(block.get("source"))
            return [{"type": "image_url", "image_url": {"url": url}}]
        if kind == "document":
            self._record_dropped_members(block, {"type", "source", "title", "context"})
            return self._convert_document(block)
        if kind == "tool_reference":
            return [_make_text_part(f"tool loaded: {block.get('tool_name')}")]
        if kind == "search_result":
            self._record_dropped_members(block, {"type", "source", "title", "content"})
            titles = self._convert_to_title_parts(block, "source", "title")
            return [*titles, *self._convert_nested_content(block.get("content"))]
        raise self._make_unsupported_error()

    def _convert_nested_content(self, content: Any) -> list[Json]:
        if isinstance(content, str):
            return [_make_text_part(content)]
        if not isinstance(content, list | None):
            raise self._make_unsupported_error()
        return [part for block in content or () for part in self._convert_block(block)]

    def _convert_document(self, block: Json) -> list[Json]:
        source = as_object(block.get("source"))
        kind, titles = source.get("type"), self._convert_to_title_parts(block, "title", "context")
        if kind == "text" and isinstance(source.get("data"), str):
            return [*titles, _make_text_part(source["data"])]
        if kind == "content":
            return [*titles, *self._convert_nested_content(source.get("content"))]
        if kind == "base64":
            title = block.get("title")
            name = title if isinstance(title, str) and title else "document.pdf"
            file = {"filename": name, "file_data": self._make_source_url(source)}
            return [*titles, {"type": "file", "file": file}]
        raise self._make_unsupported_error()

    def _convert_to_title_parts(self, block: Json, *names: str) -> list[Json]:
        titles = [block[name] for name in names if block.get(name)]
        if not all(isinstance(title, str) for title in titles):
            raise self._make_unsupported_error()
        return [_make_text_part(title) for title in titles]

    def _make_source_url(self, source: Any) -> str:
        source = as_object(source)
        kind, media_type, data = (source.get(name) for name in ("type", "media_type", "data"))
        if kind == "base64" and isinstance(media_type, str) and isinstance(data, str):
            return f"data:{media_type};base64,{data}"
        if kind == "url" and isinstance(source.get("url"), str):
            return str(source["url"])
        raise self._make_unsupported_error()


def _make_text_part(text: str) -> Json:
    return {"type": "text", "text": text}


def _convert_output_format(output_format: Any) -> Json | None:
    if not isinstance(output_format, dict):
        return None
    if output_format.get("type") != "json_schema":
        raise InvalidField("output_config", NOT_SUPPORTED)
    schema = {"name": "response", "schema": output_format.get("schema"), "strict": True}
    return {"type": "json_schema", "json_schema": schema}


CONVERSIONS: Conversions = {
    "response_format": _convert_output_format,
    "stop": lambda stop: stop or None,
}
