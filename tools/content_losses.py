"""Results of translating content of messages between the Messages and chat APIs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from proxy.dialects import read_call
from proxy.dialects.requests.upstream_request import build_request
from proxy.errors import InvalidField
from proxy.types import RequestHead
from tools.losses import MESSAGES, target

SOURCES: dict[str, dict[str, Any]] = {
    "base64": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
    "url": {"type": "url", "url": "https://a.test/a"},
    "file": {"type": "file", "file_id": "f"},
    "text": {"type": "text", "media_type": "text/plain", "data": "x"},
    "content": {"type": "content", "content": [{"type": "text", "text": "x"}]},
}
TEXT = {"type": "text", "text": "x"}
TOOL_USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
TOOL_RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
CACHE_CONTROL = {"cache_control": {"type": "ephemeral"}}
BLOCKS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("user", TEXT),
    "text with cache_control": ("user", TEXT | CACHE_CONTROL),
    "text with citations": ("assistant", TEXT | {"citations": [{"type": "char_location"}]}),
    **{f"image, {kind}": ("user", {"type": "image", "source": SOURCES[kind]}) for kind in SOURCES},
    **{f"document, {k}": ("user", {"type": "document", "source": SOURCES[k]}) for k in SOURCES},
    "search_result": ("user", {"type": "search_result", "source": "a", "content": [TEXT]}),
    "tool_use": ("assistant", TOOL_USE),
    "tool_result": ("user", TOOL_RESULT),
    "tool_result with tool_reference": (
        "user",
        TOOL_RESULT | {"content": [{"type": "tool_reference", "tool_name": "f"}]},
    ),
    "tool_result with is_error": ("user", TOOL_RESULT | {"is_error": True}),
    "thinking": ("assistant", {"type": "thinking", "thinking": "x", "signature": "s"}),
    "redacted_thinking": ("assistant", {"type": "redacted_thinking", "data": "x"}),
    "server_tool_use": ("assistant", {**TOOL_USE, "type": "server_tool_use"}),
    "web_search_tool_result": ("assistant", {"type": "web_search_tool_result", "content": []}),
    "container_upload": ("user", {"type": "container_upload", "file_id": "f"}),
}
"""Blocks of Messages with the role of their message."""
del BLOCKS["image, text"], BLOCKS["image, content"]

PARTS: dict[str, dict[str, Any]] = {
    "text": TEXT,
    "image_url, data": {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    "image_url, address": {"type": "image_url", "image_url": {"url": "https://a.test/a"}},
    "file, data": {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}},
    "file, id": {"type": "file", "file": {"file_id": "f"}},
    "input_audio": {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    "refusal": {"type": "refusal", "refusal": "x"},
    "thinking": {"type": "thinking", "thinking": [{"type": "text", "text": "x"}]},
    "redacted_thinking": {"type": "redacted_thinking", "data": "x"},
}
"""Parts of chat messages."""
ASSISTANT_PARTS = frozenset({"redacted_thinking", "refusal", "thinking"})


def translate_content(client: str, upstream: str, role: str, item: dict[str, Any]) -> str:
    """Return the result of a block or a part in the other API."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "p"}]
    if item["type"] == "tool_result":
        messages.append({"role": "assistant", "content": [TOOL_USE]})
    messages.append({"role": role, "content": [TEXT, item]})
    call = read_call(RequestHead(client, "chat", "/", "r"), {**MESSAGES, "messages": messages})
    try:
        request = build_request(call, target(upstream))
    except InvalidField:
        return "refused"
    dropped = ", ".join(f"`{name}`" for name in request.dropped_fields)
    translated = orjson.loads(request.body)["messages"]
    has_only_text = len(translated) == len(messages) and translated[-1].get("content") in (
        "x",
        [TEXT],
    )
    if dropped and has_only_text:
        return f"dropped ({dropped})"
    return f"mapped, without {dropped}" if dropped else "mapped"


def blocks() -> Iterator[str]:
    """Yield a row per result, with the content of both APIs that has it."""
    yield "| result | Messages to chat | chat to Messages |"
    yield "|---|---|---|"
    titles: dict[str, tuple[list[str], list[str]]] = {}
    for title, (role, block) in BLOCKS.items():
        result = translate_content("anthropic", "openai", role, block)
        titles.setdefault(result, ([], []))[0].append(_format_title(title))
    for title, part in PARTS.items():
        role = "assistant" if part["type"] in ASSISTANT_PARTS else "user"
        result = translate_content("openai", "anthropic", role, part)
        titles.setdefault(result, ([], []))[1].append(_format_title(title))
    for result, (to_chat, from_chat) in titles.items():
        yield f"| {result} | {'; '.join(to_chat)} | {'; '.join(from_chat)} |"


def _format_title(title: str) -> str:
    """Mark the names of a title as code: ``text with citations``, ``image, url``."""
    names, comma, kind = title.partition(",")
    marked = [name if name == "with" else f"`{name}`" for name in names.split()]
    return " ".join(marked) + comma + kind
