"""Writes the fields of request types of the installed SDKs, as lines of JSON
``[path, is_free, url, body]``.

Free are fields of any JSON. A path has ``[]`` after the name of a list. The body has a canary in
the field, and all fields that its types require.
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

CANARY = "canary"
REQUESTS = {
    "openai.types.responses.response_create_params.ResponseCreateParamsNonStreaming": (
        "/v1/responses"
    ),
    "openai.types.chat.completion_create_params.CompletionCreateParamsNonStreaming": (
        "/v1/chat/completions"
    ),
    "openai.types.conversations.conversation_create_params.ConversationCreateParams": (
        "/v1/conversations"
    ),
    "openai.types.conversations.item_create_params.ItemCreateParams": (
        "/v1/conversations/{id}/items"
    ),
    "anthropic.types.beta.message_create_params.MessageCreateParamsNonStreaming": "/v1/messages",
}
REQUIRED = (typing.Required, typing_extensions.Required)
OPTIONAL = (typing.NotRequired, typing_extensions.NotRequired)
WRAPPERS = (*REQUIRED, *OPTIONAL, typing.Annotated)
SAMPLES: dict[Any, Any] = {bool: True, int: 1, float: 1, type(None): None}
Path = tuple[str, ...]
Field = tuple[Path, bool, Any]


def fields_of(kind: Any, path: Path, outer: frozenset[Any]) -> Iterator[Field]:
    """Yield each path within a type, whether it may be any JSON, and a value with a canary."""
    kind = unwrapped(kind)
    if kind in (object, Any) or is_mapping(kind):
        yield path, True, {CANARY: CANARY}
        return
    base = {} if kind in outer else sample(kind)
    for name, member in [] if kind in outer else members_of(kind):
        yield (*path, name), False, {**base, name: with_canary(member)}
        for inner, is_free, value in fields_of(member, (*path, name), outer | {kind}):
            yield inner, is_free, {**base, name: value}
    is_list = not is_union(kind)
    inner_path = (*path[:-1], f"{path[-1]}[]") if path and is_list else path
    for part in () if get_origin(kind) is Literal or (is_list and not path) else get_args(kind):
        for inner, is_free, value in fields_of(part, inner_path, outer):
            yield inner, is_free, [value] if is_list else value


def is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def unwrapped(kind: Any) -> Any:
    while get_origin(kind) in WRAPPERS:
        kind = get_args(kind)[0]
    return kind


def is_mapping(kind: Any) -> bool:
    origin = get_origin(kind)
    return isinstance(origin, type) and hasattr(origin, "items")


def members_of(kind: Any) -> list[tuple[str, Any]]:
    """Return the fields of a typed dictionary or a model."""
    if typing_extensions.is_typeddict(kind):
        return [*get_type_hints(kind, include_extras=True).items()]
    fields = getattr(kind, "model_fields", {})
    return [(item.alias or name, item.annotation) for name, item in fields.items()]


def with_canary(kind: Any) -> Any:
    """Return a canary, nested in the lists of its type."""
    kind = unwrapped(kind)
    if is_union(kind):
        kind = unwrapped(get_args(kind)[0])
    is_list = get_origin(kind) not in (None, Literal) and not is_mapping(kind)
    return [with_canary(get_args(kind)[0])] if is_list and get_args(kind) else CANARY


def sample(kind: Any) -> Any:
    """Return a small value of a type."""
    kind, args = unwrapped(kind), get_args(unwrapped(kind))
    if members := members_of(kind):
        is_total = getattr(kind, "__total__", False)
        separate = OPTIONAL if is_total else REQUIRED
        return {
            name: sample(member)
            for name, member in members
            if (get_origin(member) in separate) is not is_total or name == "type"
        }
    if get_origin(kind) is Literal:
        return args[0]
    if is_union(kind):
        return sample(args[0])
    if args:
        return {} if is_mapping(kind) else [sample(args[0])]
    return SAMPLES.get(kind, "x")


def main() -> None:
    lines: set[str] = set()
    for name, url in REQUESTS.items():
        module, _, kind = name.rpartition(".")
        for path, is_free, body in fields_of(getattr(import_module(module), kind), (), frozenset()):
            lines.add(json.dumps([".".join(path), is_free, url, body]))
    for line in sorted(lines):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
