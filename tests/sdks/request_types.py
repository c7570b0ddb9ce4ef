"""Writes the fields of request types of the installed SDKs, as lines of JSON ``[path, is_free]``.

Free are fields of any JSON. A path has ``[]`` after the name of a list.
"""

from __future__ import annotations

import json
import sys
import types
import typing
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typing_extensions

REQUESTS = {
    "openai.types.responses.response_create_params": "ResponseCreateParamsNonStreaming",
    "openai.types.chat.completion_create_params": "CompletionCreateParamsNonStreaming",
    "openai.types.conversations.conversation_create_params": "ConversationCreateParams",
    "openai.types.conversations.item_create_params": "ItemCreateParams",
    "anthropic.types.beta.message_create_params": "MessageCreateParamsNonStreaming",
}
WRAPPERS = (
    typing.Required,
    typing.NotRequired,
    typing.Annotated,
    typing_extensions.Required,
    typing_extensions.NotRequired,
)
Path = tuple[str, ...]


def fields_of(kind: Any, path: Path, outer: frozenset[Any]) -> Iterator[tuple[Path, bool]]:
    """Yield the paths within a type, each with whether it may be any JSON."""
    while get_origin(kind) in WRAPPERS:
        kind = get_args(kind)[0]
    origin = get_origin(kind)
    if kind in (object, Any) or (isinstance(origin, type) and hasattr(origin, "items")):
        yield path, True
        return
    for name, member in {} if kind in outer else members_of(kind):
        yield (*path, name), False
        yield from fields_of(member, (*path, name), outer | {kind})
    is_union = origin in (Union, types.UnionType)
    within = path if is_union else (*path[:-1], f"{path[-1]}[]") if path else None
    if origin is not None and origin is not Literal and within is not None:
        for each in get_args(kind):
            yield from fields_of(each, within, outer)


def members_of(kind: Any) -> list[tuple[str, Any]]:
    """Return the fields of a typed dictionary or a model."""
    if typing_extensions.is_typeddict(kind):
        return [*get_type_hints(kind, include_extras=True).items()]
    fields = getattr(kind, "model_fields", {})
    return [(each.alias or name, each.annotation) for name, each in fields.items()]


def main() -> None:
    found: set[tuple[Path, bool]] = set()
    for module, name in REQUESTS.items():
        found |= set(fields_of(getattr(import_module(module), name), (), frozenset()))
    for path, is_free in sorted(found):
        sys.stdout.write(json.dumps([".".join(path), is_free]) + "\n")


if __name__ == "__main__":
    main()
