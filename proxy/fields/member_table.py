"""The table of members: fields within tools, items, messages and blocks, at any depth.

A row declares a member once, wherever it occurs. A member that is not here is inspected like any
other JSON: guards read its name and its texts, and rules for fields apply in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from proxy.runtime.frozen import frozen


@frozen
class Member:
    """A member of objects within a request or a response."""

    name: str
    text: str | None = None
    """Kind of its texts in messages and items for guards. None: that of the enclosing field."""
    free_form: tuple[str, ...] = ()
    """Ends of the paths at which it holds JSON with names that the client defines.

    Arguments of a tool call are such JSON. ``**`` matches any path, an empty end the top of a
    request and groups of options.
    """
    is_schema: bool = False
    """It holds a JSON schema. All members whose names end in ``schema`` do."""
    is_schema_map: bool = False
    """It is a member of a JSON schema whose names the client defines."""
    messages_name: str = ""
    """Name in Messages of this member of a function tool. Empty for other members."""
    is_api_name: bool = True
    """False if guards also inspect its name, as they do for unknown members."""


def _members(*names: str) -> Iterator[Member]:
    return map(Member, names)


_QUOTED = ("content[]", "messages[]")
ROWS: tuple[Member, ...] = (
    Member("annotations", free_form=_QUOTED),
    Member("arguments", text="arguments",
           free_form=("tool_calls[].function", "function_call", "input[]")),
    Member("attributes", free_form=("", "files[]"), is_api_name=False),
    Member("citations", free_form=(*_QUOTED, "system[]")),
    Member("description", messages_name="description"),
    Member("documents", free_form=("",), is_api_name=False),
    Member("env", free_form=("action",), is_api_name=False),
    Member("from", free_form=("content[]",), is_api_name=False),
    Member("function_call", text="tool"),
    Member("guided_json", is_schema=True),
    Member("input", text="arguments", free_form=("content[]",)),
    Member("input_examples", free_form=("tools[]", "definition"), is_api_name=False),
    Member("json", is_schema=True, is_api_name=False),
    Member("metadata", free_form=("**",)),
    Member("name", text="name", messages_name="name"),
    Member("parameters", is_schema=True, messages_name="input_schema"),
    Member("partial_json", text="arguments"),
    Member("reasoning", text="reasoning"),
    Member("reasoning_content", text="reasoning"),
    Member("refusal", text="refusal"),
    Member("results", free_form=("input[]",), is_api_name=False),
    Member("strict", messages_name="strict"),
    Member("summary", text="reasoning"),
    Member("svg_usage", free_form=("input[]",), is_api_name=False),
    Member("thinking", text="reasoning"),
    Member("to", free_form=("content[]",), is_api_name=False),
    Member("tool_calls", text="tool"),
    Member("value", is_schema=True, is_api_name=False),
    *(Member(name, is_schema_map=True) for name in ("default", "enum", "examples", "properties")),
    *(Member(name, is_schema_map=True, is_api_name=False) for name in (
        "$defs", "const", "definitions", "dependent_schemas", "pattern_properties")),
    *_members("additionalProperties", "anyOf", "choices", "content", "data", "delta", "detail"),
    *_members("error", "file", "format", "function", "image_url", "include_usage", "input_audio"),
    *_members("items", "json_schema", "maximum", "message", "minimum", "obfuscation", "object"),
    *_members("required", "role", "schema", "tool_call_id", "type", "url"),
)  # fmt: skip
MEMBERS: Mapping[str, Member] = MappingProxyType({member.name: member for member in ROWS})

FREE_FORM = frozenset(
    f"{end}.{member.name}".removeprefix(".")
    for member in MEMBERS.values()
    for end in member.free_form
)
"""Ends of paths to JSON whose names the client defines."""

TOOL_MEMBERS: Mapping[str, str] = {
    member.name: member.messages_name for member in MEMBERS.values() if member.messages_name
}
"""Members of a function tool: their names in a chat and in Responses, and in Messages."""
