"""Converts a Messages request into a chat.

A part that would change the answer is refused; one that only tunes it is left out and named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proxy.dialects.messages.tools import CHOICES, TIERS, tool_call
from proxy.errors import InvalidField
from proxy.errors.field_problems import NOT_SUPPORTED, unsupported_type
from proxy.fields.member_table import TOOL_MEMBERS
from proxy.fields.renaming import PATHS, Conversions, from_api
from proxy.types import Json
from proxy.types.reasoning import is_reasoning_model

EFFORTS: Mapping[str, str] = {"xhigh": "high", "max": "high"}
OWN_CHOICES = {own: word for word, own in CHOICES.items()}
OWN_TIERS = {own: word for word, own in TIERS.items()}
LOW_BUDGET, HIGH_BUDGET = 4096, 16384  # tokens from which the effort is medium and high
TAKEN = {"messages", "system", "thinking", "tool_choice", "tools"}.union(
    field for _, field, _ in PATHS["messages"]
)
"""Fields with another form in a chat. All others keep their names."""


def chat_of(body: Json, *, keeps_thoughts: bool) -> tuple[Json, tuple[str, ...]]:
    """Return a request as a chat, and the names of what it leaves out. Raises ``InvalidField`` for
    a part without a counterpart."""
    crossing = _Crossing(body, keeps_thoughts=keeps_thoughts)
    return crossing.chat(), tuple(sorted(crossing.dropped))


class _Crossing:
    """The conversion of one request. ``_place`` is the path of the current block."""

    __slots__ = ("_body", "_keeps_thoughts", "_place", "_reasons", "dropped")

    def __init__(self, body: Json, *, keeps_thoughts: bool) -> None:
        self._body = body
        self._keeps_thoughts = keeps_thoughts
        self._place = "messages"
        self._reasons = is_reasoning_model(str(body.get("model")), {})
        self.dropped: set[str] = set()

    def _lost(self) -> InvalidField:
        return InvalidField(self._place, NOT_SUPPORTED)

    def chat(self) -> Json:
        body = self._body
        made = {name: value for name, value in body.items() if name not in TAKEN}
        system = body.get("system")
        self._place = "system"
        first = [{"role": "system", "content": self._system(system)}] if system else []
        made["messages"] = [*first, *self._messages(body.get("messages") or ())]
        tier = made.get("service_tier")
        if tier is not None:
            made["service_tier"] = OWN_TIERS.get(tier, tier)
        moved, dropped = from_api(
            body, "messages", {**CONVERSIONS, "reasoning_effort": self._effort}
        )
        self.dropped |= dropped
        made |= moved | self._tools()
        self._think(made)
        if is_reasoning_model(str(body.get("model")), made) and "max_tokens" in made:
            made["max_completion_tokens"] = made.pop("max_tokens")
        return made

    def _effort(self, effort: Any) -> str | None:
        if not self._reasons:
            self.dropped.add("output_config")
            return None
        if not isinstance(effort, str):
            raise InvalidField("output_config", NOT_SUPPORTED)
        return EFFORTS.get(effort, effort)

    def _think(self, made: Json) -> None:
        """Add the effort that corresponds to a budget of thoughts."""
        thinking = self._body.get("thinking")
        thinking = thinking if isinstance(thinking, dict) else {"type": "disabled"}
        budget = thinking.get("budget_tokens")
        if not self._reasons:
            self.dropped |= {"thinking"} if thinking.get("type") != "disabled" else set()
        elif type(budget) is int and "reasoning_effort" not in made:
            more = (budget >= LOW_BUDGET) + (budget >= HIGH_BUDGET)
            made["reasoning_effort"] = ("low", "medium", "high")[more]

    def _tools(self) -> Json:
        body, made = self._body, dict[str, Any]()
        if body.get("tools"):
            made["tools"] = [self._tool(at, tool) for at, tool in enumerate(body["tools"])]
        choice = body.get("tool_choice")
        if not isinstance(choice, dict):
            return made
        if choice.get("disable_parallel_tool_use") is True:
            made["parallel_tool_calls"] = False
        kind = choice.get("type")
        if kind == "tool":
            made["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
        elif isinstance(kind, str) and kind in OWN_CHOICES:
            made["tool_choice"] = OWN_CHOICES[kind]
        else:
            raise InvalidField("tool_choice", NOT_SUPPORTED)
        return made

    def _tool(self, at: int, tool: Json) -> Json:
        kind = tool.get("type")
        if kind not in (None, "custom"):  # a tool of Anthropic
            raise InvalidField(f"tools.{at}", unsupported_type(kind))
        self._note_beside(tool, {"type", *TOOL_MEMBERS.values()})
        known = {name: tool[own] for name, own in TOOL_MEMBERS.items() if tool.get(own) is not None}
        return {"type": "function", "function": {"name": None, "parameters": None, **known}}

    def _note_beside(self, item: Json, known: set[str]) -> None:
        """Record the members of an item that are left out."""
        self.dropped |= {name for name in item.keys() - known if item[name] not in (None, [], {})}

    def _system(self, content: Any) -> Any:
        """Return the content of the system message: a single text as it is, several as parts."""
        if not isinstance(content, list):
            return content
        parts = [part for block in self._each(content, "system") for part in self._words(block)]
        return parts[0]["text"] if len(parts) == 1 else parts

    def _each(self, content: list[Any], place: str) -> Iterator[Any]:
        """Yield blocks and set ``_place`` to the path of each."""
        for at, block in enumerate(content):
            self._place = f"{place}.{at}"
            yield block

    def _words(self, block: Any) -> list[Json]:
        """Return a block of texts as parts. Raises ``InvalidField`` for other content."""
        parts = self._parts(block)
        if any(part["type"] != "text" for part in parts):
            raise self._lost()
        return parts

    def _messages(self, messages: Any) -> Iterator[Json]:
        for at, message in enumerate(messages):
            content, role = message.get("content"), message["role"]
            place = f"messages.{at}.content"
            if not isinstance(content, list):
                yield {"role": role, "content": content}
            elif role == "assistant":
                yield self._assistant(self._each(content, place))
            else:
                yield from self._user(role, self._each(content, place))

    def _assistant(self, content: Iterator[Any]) -> Json:
        texts: list[Json] = []
        thoughts: list[str] = []
        calls: list[Json] = []
        for block in content:
            kind = _type(block)
            thought = block.get("thinking") if kind == "thinking" else None
            if self._keeps_thoughts and isinstance(thought, str):
                thoughts.append(thought)
            elif kind in ("thinking", "redacted_thinking"):
                self.dropped.add("thinking")
            elif kind == "tool_use":
                self._note_beside(block, {"type", "id", "name", "input"})
                calls.append(tool_call(block))
            else:
                texts += self._words(block)
        words = "".join(part["text"] for part in texts)
        message: Json = {"role": "assistant", "content": words if words or not calls else None}
        message |= {"reasoning_content": "".join(thoughts)} if any(thoughts) else {}
        return message | ({"tool_calls": calls} if calls else {})

    def _user(self, role: str, content: Iterator[Any]) -> Iterator[Json]:
        """Yield tool messages, then one message with the other blocks."""
        parts: list[Json] = []
        for block in content:
            if _type(block) != "tool_result":
                parts += self._parts(block)
                continue
            self._note_beside(block, {"type", "tool_use_id", "content", "is_error"})
            inner = block.get("content")
            if isinstance(inner, list):
                each_inner = self._each(inner, f"{self._place}.content")
                made = [part for each in each_inner for part in self._parts(each)]
                parts += [part for part in made if part["type"] != "text"]
                inner = "\n".join(part["text"] for part in made if part["type"] == "text")
            elif not isinstance(inner, str | None):
                raise self._lost()
            words = f"Error: {inner or ''}" if block.get("is_error") is True else inner or ""
            yield {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": words}
        if len(parts) == 1 and parts[0]["type"] == "text":
            yield {"role": role, "content": parts[0]["text"]}
        elif parts:
            yield {"role": role, "content": parts}

    def _parts(self, block: Any) -> list[Json]:
        """Return a block as parts of a chat's message. Raises ``InvalidField``."""
        kind = _type(block)
        if kind == "text" and isinstance(block.get("text"), str):
            self._note_beside(block, {"type", "text"})
            return [{"type": "text", "text": block["text"]}]
        if kind == "image":
            self._note_beside(block, {"type", "source"})
            return [{"type": "image_url", "image_url": {"url": self._url(block.get("source"))}}]
        if kind == "document":
            self._note_beside(block, {"type", "source", "title", "context"})
            return self._document(block)
        if kind == "tool_reference":
            return [{"type": "text", "text": f"tool loaded: {block.get('tool_name')}"}]
        if kind == "search_result":
            self._note_beside(block, {"type", "source", "title", "content"})
            return [*self._titles(block, "source", "title"), *self._inner(block.get("content"))]
        raise self._lost()

    def _inner(self, content: Any) -> list[Json]:
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        if not isinstance(content, list | None):
            raise self._lost()
        return [part for each in content or () for part in self._parts(each)]

    def _document(self, block: Json) -> list[Json]:
        source = block.get("source")
        source = source if isinstance(source, dict) else {}
        kind, beside = source.get("type"), self._titles(block, "title", "context")
        if kind == "text" and isinstance(source.get("data"), str):
            return [*beside, {"type": "text", "text": source["data"]}]
        if kind == "content":
            return [*beside, *self._inner(source.get("content"))]
        if kind == "base64":
            title = block.get("title")
            name = title if isinstance(title, str) and title else "document.pdf"
            return [
                *beside,
                {"type": "file", "file": {"filename": name, "file_data": self._url(source)}},
            ]
        raise self._lost()

    def _titles(self, block: Json, *names: str) -> list[Json]:
        titles = [block[name] for name in names if block.get(name)]
        if not all(isinstance(each, str) for each in titles):
            raise self._lost()
        return [{"type": "text", "text": each} for each in titles]

    def _url(self, source: Any) -> str:
        """Return a source as a web address or a data URL. Raises ``InvalidField``."""
        source = source if isinstance(source, dict) else {}
        kind, media_type, data = (source.get(name) for name in ("type", "media_type", "data"))
        if kind == "base64" and isinstance(media_type, str) and isinstance(data, str):
            return f"data:{media_type};base64,{data}"
        if kind == "url" and isinstance(source.get("url"), str):
            return str(source["url"])
        raise self._lost()


def _type(block: Any) -> Any:
    return block.get("type") if isinstance(block, dict) else None


def _schema(form: Any) -> Json | None:
    if not isinstance(form, dict):
        return None
    if form.get("type") != "json_schema":
        raise InvalidField("output_config", NOT_SUPPORTED)
    schema = {"name": "response", "schema": form.get("schema"), "strict": True}
    return {"type": "json_schema", "json_schema": schema}


CONVERSIONS: Conversions = {"response_format": _schema, "stop": lambda stop: stop or None}
