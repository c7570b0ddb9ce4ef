"""Walks over documents of any API family, and over single values.

In a document of a family without the form of a chat, as Messages and Responses, all strings are
texts, except the identifiers of an event or an item.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proxy.dialects.shapes import is_name
from proxy.guards.text.logprobs import beside
from proxy.guards.text.walk import Found, Node, Opaque, Path, Text, answer_walk, members
from proxy.guards.text.walk import walk_values as walk
from proxy.types import Json
from proxy.types.events import FamilyName

_CONTAINERS = frozenset(
    {"content", "content_block", "data", "item", "message", "output", "part", "response", "summary"}
)
_IDENTIFIERS = frozenset({"call_id", "id", "item_id", "model", "object", "service_tier"})


_CHAT_FORM = frozenset({"chat", "completions", "embeddings", "document"})


def is_native(family: FamilyName) -> bool:
    """Return True for a family whose documents do not have the form of a chat's: all their strings
    are texts."""
    return family not in _CHAT_FORM


def native_walk(document: Json, family: FamilyName, *, cut: bool) -> Iterator[Found]:
    """Walk over a document of a response. ``cut``: it is an event of a stream."""
    if is_native(family):
        root = Node(path=(), value=document, kind="content", role="assistant")
        return walk(_members(root, document), _members, answer=True, cut=False)
    return answer_walk(document, cut=cut)


def value_walk(path: Path, value: Any, kind: str) -> Iterator[Found]:
    """Walk over a value of a document."""
    node = Node(path=path, value=value, kind=kind, role="assistant")
    return walk(iter((node,)), _members, answer=True, cut=False)


def logprobs_text(path: Path, logprobs: Any, shown: Any) -> Text | None:
    """Return the texts of log probabilities that ``shown`` does not contain, as one text."""
    lines = beside({"content": logprobs} if isinstance(logprobs, list) else logprobs, shown)
    return Text(path, "\n".join(lines), "logprobs", role="assistant") if any(lines) else None


def _members(place: Node, value: Json) -> Iterator[Node | Opaque]:
    rest = value
    names = (step for step in place.path if isinstance(step, str))
    if place.kind == "content" and all(name in _CONTAINERS for name in names):
        rest = {
            name: each
            for name, each in value.items()
            if not (name in _IDENTIFIERS and is_name(each))
        }
    if place.kind == "content" and "logprobs" in rest:
        path = (*place.path, "logprobs")
        text = logprobs_text(path, rest["logprobs"], value.get("text", value.get("delta")))
        if text is not None:
            yield Node(path=path, value=text.text, kind=text.kind, role=text.role)
        rest = {name: each for name, each in rest.items() if name != "logprobs"}
    yield from members(place, rest, inside=True)
