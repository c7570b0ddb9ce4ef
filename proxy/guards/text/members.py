"""Members of API documents that contain data or no text, and unshown log probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import orjson

from proxy.dialects import family
from proxy.dialects.wire.strict_json import is_null_or_word
from proxy.guards.text.base64_text import MIN_OPAQUE_CHARS, parse_encoded_data
from proxy.guards.text.member_names import MEMBERS, VALUES
from proxy.types import Json

OPAQUE_MEMBERS, PAYLOAD_MEMBERS = MEMBERS["opaque"], MEMBERS["payload"]
DATA_MEMBERS = OPAQUE_MEMBERS | PAYLOAD_MEMBERS | {"url"}
_SOURCE = "source"  # member with the content of a part


def get_opaque_kind(name: str) -> str:
    """Return the kind that is reported for the opaque content of a member."""
    return name if name in OPAQUE_MEMBERS else "file"


def is_opaque_member(name: str, value: Any, item: Json) -> bool:
    """Return True if a member of an item is not text, by its name, type or value."""
    if name in OPAQUE_MEMBERS or is_data_object(value):
        return True
    kind = item.get("type")
    return name == _SOURCE and isinstance(kind, str) and kind in OPAQUE_MEMBERS


def is_data_object(value: Any) -> bool:
    """Return True if a value is an object with data and its media type."""
    names = value.keys() if isinstance(value, dict) else ()
    return not MEMBERS["media"].isdisjoint(names) and not PAYLOAD_MEMBERS.isdisjoint(names)


def is_data_member_path(path: Sequence[object]) -> bool:
    """Return True if the innermost name of a path is a member for data."""
    return next((step for step in reversed(path) if isinstance(step, str)), "") in DATA_MEMBERS


def may_be_text_data(names: Iterable[object]) -> bool:
    """Return True unless one of the member names around data belongs to an image or audio."""
    return MEMBERS["never_text"].isdisjoint(names)


Level = tuple[str, ...]

CHOICES = "choices"
"""Member of a chat's response with its choices."""
ITEM_LISTS = frozenset({CHOICES, "input", "messages"})
"""Members of requests and responses whose items are messages."""


def is_in_choice(path: Sequence[object]) -> bool:
    """Return True if a path leads to a value in a choice of a chat response."""
    return path[0] == CHOICES and len(path) > 2


def infer_item_role(item: Mapping[str, Any]) -> str | None:
    """Return the role of a message or an item of a request, or None.

    Outputs belong to the tool, all other typed items to the assistant.
    """
    role, kind = item.get("role"), item.get("type")
    if isinstance(role, str):
        return role
    if not isinstance(kind, str) or kind == "message":
        return None
    return "tool" if kind.endswith("_output") else "assistant"


def get_chat_member_name(name: str, item: Mapping[str, Any], path: Sequence[object]) -> str:
    """Return the name that the chat format has for a member of an item.

    It decides the kind of the member's texts, which is the same in every API family.
    """
    if name == "input" and path[-1:] == ("custom",) and path[0] in ITEM_LISTS:
        return "arguments"
    if name in ("content", "name"):
        kind = item.get("type")
        if name == "content" and kind == "reasoning":
            return "reasoning"
        if name == "name" and isinstance(kind, str) and kind in VALUES["tool_calls"]:
            return "tool_calls"
    return name


TEXTLESS_TYPES = frozenset({bool, float, int, type(None)})
"""Types of JSON values without texts."""


def _is_opaque_base64(value: Any) -> bool:
    """Return True if a value is base64 without a text."""
    data = parse_encoded_data(value, allow_bare_base64=True) if isinstance(value, str) else None
    return data is not None and data.text is None and not value.startswith("data:")


def _is_numbers_or_opaque_base64(value: Any) -> bool:
    """Return True if a value is numbers, or more than 256 characters of base64 without a text."""
    if isinstance(value, str):
        return len(value) > MIN_OPAQUE_CHARS and _is_opaque_base64(value)
    if isinstance(value, orjson.Fragment):  # unparsed JSON of numbers
        return True
    return isinstance(value, list) and all(isinstance(number, int | float) for number in value)


def _is_signature(value: Any) -> bool:
    return is_null_or_word(value) or _is_opaque_base64(value)


_FILTER = "content_filter_results"
_IS_VERDICT = {
    "severity": family.make_word_check("safe", "low", "medium", "high"),
    **dict.fromkeys(("filtered", "detected"), lambda value: value.__class__ is bool),
}
IgnoreRule = tuple[Callable[[Any], bool], str]
_NAME: IgnoreRule = (is_null_or_word, "null or at most 128 characters without white space")
_NUMBER: IgnoreRule = (family.is_null_or_number, "null or a number")
_CALL: Mapping[str, IgnoreRule] = {
    "id": _NAME,
    "index": _NUMBER,
    "extra_content": (
        family.allow_null({"google": {"thought_signature": _is_signature}}),
        "only a thought signature of Gemini",
    ),
}

IGNORED_RESPONSE_MEMBERS: Mapping[Level, Mapping[str, IgnoreRule]] = {
    (): {
        **dict.fromkeys(("id", "object", "model", "system_fingerprint", "service_tier"), _NAME),
        "created": _NUMBER,
        "usage": (family.is_count_tree, "numbers under known names of usage"),
    },
    (CHOICES,): {
        "index": _NUMBER,
        "finish_reason": (
            family.make_word_check(*VALUES["finish_reasons"]),
            "null or a finish reason of a dialect",
        ),
        # https://learn.microsoft.com/azure/ai-foundry/openai/concepts/content-filter
        _FILTER: (
            family.allow_null(dict.fromkeys(VALUES["content_filter"], _IS_VERDICT)),
            "null or a result of Azure's content filter",
        ),
    },
    (CHOICES, "message", "content"): {"call_id": _NAME, "id": _NAME},
    (CHOICES, "message", "tool_calls"): _CALL,
    (CHOICES, "delta", "tool_calls"): _CALL,
    ("data",): {
        "index": _NUMBER,
        "object": _NAME,
        "embedding": (
            _is_numbers_or_opaque_base64,
            "numbers, or more than 256 characters of base64 without a text",
        ),
    },
}
"""Ignored members of responses by path, with a check and a description of their value."""

MEMBERS_WITHOUT_TEXT = (
    frozenset(
        name for names in IGNORED_RESPONSE_MEMBERS.values() for name in names if name != _FILTER
    )
    | family.COUNT_NAMES
    | MEMBERS["block"]
    | MEMBERS["item"]
)
"""Names of members whose numbers guards ignore."""


def is_ignored_member(level: Level, name: str, value: Any) -> bool:
    """Return True if guards ignore a member at a ``level`` (place) of a response."""
    silence = IGNORED_RESPONSE_MEMBERS.get(level, {}).get(name)
    return silence is not None and silence[0](value)


_LISTS = ("tokens", "content", "refusal")


def list_unshown_logprob_texts(logprobs: Any, shown_text: Any) -> list[str]:
    """Return the texts of log probabilities that the text ``shown_text`` does not contain."""
    lists = [logprobs.get(name) for name in _LISTS] if isinstance(logprobs, dict) else [logprobs]
    chosen_entries = [item for items in lists if isinstance(items, list) for item in items]
    tokens = [_read_token(entry) for entry in chosen_entries]
    spelled = raw = "".join(tokens)
    runs = [_read_token_bytes(entry) for entry in chosen_entries]
    if any(run is not None for run in runs):  # a character may be split over several tokens
        raw = b"".join(
            token.encode("utf-8", "surrogatepass") if run is None else run
            for token, run in zip(tokens, runs, strict=True)
        ).decode("utf-8", "replace")
    strings = _iter_unshown_strings(logprobs, set(tokens), set(map(id, chosen_entries)))
    return [
        *dict.fromkeys(text for text in (spelled, raw) if text != shown_text),
        *dict.fromkeys(strings),
    ]


def _iter_unshown_strings(logprobs: Any, tokens: Set[str], chosen_ids: Set[int]) -> Iterator[str]:
    """Yield strings and undocumented member names of log probabilities that are not in ``tokens``.

    The bytes of an entry whose id is not in ``chosen_ids`` are included if they differ from its
    token.
    """
    stack, known_names = [logprobs], MEMBERS["logprob"]
    while stack:  # no recursion: an upstream chooses the depth
        value = stack.pop()
        if isinstance(value, str):
            if value not in tokens:
                yield value
        elif isinstance(value, list):
            stack += [item for item in value if item.__class__ not in TEXTLESS_TYPES]
        elif isinstance(value, dict):
            run = None if id(value) in chosen_ids else _read_token_bytes(value)
            if run is not None and run != _read_token(value).encode("utf-8", "surrogatepass"):
                yield run.decode("utf-8", "replace")
            if not known_names.issuperset(value):
                yield from (
                    name for name in value if name not in tokens and name not in known_names
                )
            stack += [item for item in value.values() if item.__class__ not in TEXTLESS_TYPES]


def _read_token(item: Any) -> str:
    token = item.get("token") if isinstance(item, dict) else item
    return token if isinstance(token, str) else ""


def _read_token_bytes(item: Any) -> bytes | None:
    steps = item.get("bytes") if isinstance(item, dict) else None
    if not isinstance(steps, list):
        return None
    try:
        return bytes(steps)
    except (TypeError, ValueError):
        return bytes(step for step in steps if isinstance(step, int) and 0 <= step < 256)
