"""Collects the texts of documents of any API family, and weighs the work of inspecting them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from proxy.dialects.wire.strict_json import is_null_or_word
from proxy.fields.field_table import FIELDS
from proxy.guards.text import walk
from proxy.guards.text.member_names import MEMBERS
from proxy.guards.text.members import CHOICES, OPAQUE_MEMBERS, TEXTLESS_TYPES, is_ignored_member
from proxy.guards.text.walk import Node, Opaque, Path, Text, Texts, WalkItem
from proxy.types import Json
from proxy.types.events import FamilyName

_CHAT_FAMILIES = frozenset({"chat", "completions", "embeddings", "document"})


def inspects_every_string(family: FamilyName) -> bool:
    """Return True for a family whose documents are not chats: all their strings are texts."""
    return family not in _CHAT_FAMILIES


def walk_response_document(
    document: Json, family: FamilyName, *, is_event: bool
) -> Iterator[WalkItem]:
    """Walk over a response of any API family, or with ``is_event`` over one event of a stream."""
    if inspects_every_string(family):
        root = Node(path=(), value=document, kind="content", role="assistant")
        members = _iter_members(root, document)
        return walk.walk_values(members, _iter_members, is_response=True, is_event=False)
    return walk.walk_response(document, is_event=is_event)


def walk_response_value(path: Path, value: Any, kind: str) -> Iterator[WalkItem]:
    """Walk over one value of a response, and the values within it."""
    node = Node(path=path, value=value, kind=kind, role="assistant")
    return walk.walk_values(iter((node,)), _iter_members, is_response=True, is_event=False)


def _iter_members(node: Node, value: Json) -> Iterator[Node | Opaque]:
    remaining_members = value
    names = (step for step in node.path if isinstance(step, str))
    if node.kind == "content" and all(name in MEMBERS["container"] for name in names):
        remaining_members = {
            name: item
            for name, item in value.items()
            if not (name in MEMBERS["identifier"] and is_null_or_word(item))
        }
    if node.kind == "content" and "logprobs" in remaining_members:
        path, shown_text = (*node.path, "logprobs"), value.get("text", value.get("delta"))
        yield from walk.iter_joined_unshown_logprobs(path, value["logprobs"], shown_text)
        remaining_members = {**remaining_members}
        del remaining_members["logprobs"]
    yield from walk.iter_members(node, remaining_members, is_message_part=True)


VALUES_PER_STEP = 1024  # values that are read before other tasks run
MAX_TEXTS = 100_000  # strings and words inspected in all arguments of one document
LOOP_WEIGHT = 1024  # weight that is inspected without a thread, a few milliseconds of work
BATCH_CHARS = 32 * 1024  # characters that are inspected together
TEXT_WEIGHT = 32  # base weight of each text, because many small texts take long
NON_ASCII_WEIGHT = 4  # weight of a non-ASCII character
WEIGHT_PER_SECOND = 250_000  # weight that takes one second of CPU


def estimate_weight(text: str) -> int:
    return len(text) if text.isascii() else NON_ASCII_WEIGHT * len(text)


def split_by_char_count(text: str) -> Iterator[str]:
    """Yield a text in batches of at most ``BATCH_CHARS`` characters; an empty text is one batch."""
    return (text[start : start + BATCH_CHARS] for start in range(0, len(text) or 1, BATCH_CHARS))


def collect_request_texts(body: Json) -> Texts:
    return collect_texts(walk.walk_request(body))


def collect_response_texts(data: Json, *, is_event: bool = False) -> Texts:
    """Return all texts of a response; ``is_event``: of one event of a stream."""
    return collect_texts(walk.walk_response(data, is_event=is_event))


def collect_texts(walk: Iterator[WalkItem]) -> Texts:
    (walker := WalkCollector(walk)).advance_and_check_more()
    return walker.texts


async def collect_texts_in_steps(
    walk: Iterator[WalkItem], max_argument_values: int = MAX_TEXTS
) -> Texts:
    """Return the texts of a walk. Yields to other tasks between its steps."""
    walker = WalkCollector(walk, max_argument_values)
    while walker.advance_and_check_more(VALUES_PER_STEP):  # noqa: ASYNC110  # lets other tasks run
        await asyncio.sleep(0)
    return walker.texts


@dataclass(slots=True)
class WalkCollector:
    """Collects the texts of a walk step by step.

    It stops after ``remaining_argument_values`` values within the arguments of tool calls.
    """

    walk: Iterator[WalkItem]
    remaining_argument_values: int = MAX_TEXTS
    _texts: list[Text] = field(default_factory=list)
    _opaque: list[Opaque] = field(default_factory=list)

    def advance_and_check_more(self, steps: int | None = None) -> bool:
        """Read a number of values, or all. Return False at the end."""
        count = 0
        for item in islice(self.walk, steps):
            count += 1
            if isinstance(item, Text):
                self._texts.append(item)
            elif isinstance(item, Opaque):
                self._opaque.append(item)
            elif item is not None:
                self.remaining_argument_values -= 1
            if self.remaining_argument_values < 0:
                return False
        return count == steps

    @property
    def texts(self) -> Texts:
        """The texts collected so far."""
        incomplete_reason = "too_many_texts" if self.remaining_argument_values < 0 else None
        return Texts(tuple(self._texts), tuple(self._opaque), incomplete_reason)


MAX_MESSAGES = 256  # a chat with more messages is walked in steps

_NUMERIC_MEMBERS = walk.KNOWN_MEMBERS - OPAQUE_MEMBERS  # names whose numbers are not text
_STRING_FIELDS = frozenset({"input", "prompt", "suffix", "user"})
_MESSAGE = frozenset({"role", "content"})
_USAGE = {"include_usage": True}
_DATA = "data:"  # prefix of a text that may be base64

_LEVEL = (CHOICES,)
_SILENT_CHOICE = frozenset({"index", "finish_reason"})
_MESSAGES = frozenset({"delta", "message"})
_CHOICE = _SILENT_CHOICE | _MESSAGES | {"logprobs", "text"}
_KINDS: Mapping[str, str] = {
    "content": "content",
    "reasoning": "reasoning",
    "reasoning_content": "reasoning",
}
_MEMBERS = _KINDS.keys() | {
    "annotations", "audio", "function_call", "refusal", "role", "tool_calls",
}  # fmt: skip


def collect_plain_request_texts(body: Json) -> Texts | None:
    """Return the texts of a chat whose messages are a role and a text, else None."""
    texts: list[Text] = []
    is_apart = True
    for name, value in body.items():
        if name == "messages":
            roles = _collect_plain_messages(value, texts)
            if roles is None:
                return None
            is_apart = roles
        elif value.__class__ is str and name in _STRING_FIELDS:
            if value[:5] == _DATA:
                return None
            if value:
                texts.append(Text((name,), value, walk.KIND_BY_FIELD[name], role=FIELDS[name].role))
        elif not (
            name in walk.IGNORED_FIELDS
            or (value.__class__ in TEXTLESS_TYPES and name in _NUMERIC_MEMBERS)
            or (name == "stream_options" and value == _USAGE)
        ):
            return None
    return Texts(tuple(texts), has_no_joined_texts=is_apart)


RolesAlternate = bool


def _collect_plain_messages(messages: Any, texts: list[Text]) -> RolesAlternate | None:
    """Append the texts of messages. Return None unless all are plain, True if roles alternate."""
    if messages.__class__ is not list or len(messages) > MAX_MESSAGES:
        return None
    is_apart, last_role = True, None
    for place, message in enumerate(messages):
        if message.__class__ is not dict or message.keys() != _MESSAGE:
            return None
        role, text = message["role"], message["content"]
        if role.__class__ is not str or role not in walk.TYPE_WORDS:
            return None
        if text.__class__ is not str or text[:5] == _DATA:
            return None
        if text:
            is_apart, last_role = is_apart and role != last_role, role
            texts.append(Text(("messages", place, "content"), text, "content", role=role))
    return is_apart


def collect_plain_response_texts(data: Json) -> Texts | None:
    """Return the texts of a response or chunk with one choice of plain texts, else None."""
    choices = data.get(CHOICES)
    if choices.__class__ is not list or len(choices) != 1:
        return None
    choice = choices[0]
    if choice.__class__ is not dict or not choice.keys() <= _CHOICE:
        return None
    if not all([name == CHOICES or is_ignored_member((), name, data[name]) for name in data]):
        return None
    texts: list[Text] = []
    for name, value in choice.items():
        if value and not _collect_plain_choice_member(name, value, texts):
            return None
    return Texts(tuple(texts), has_no_joined_texts=True)


def _collect_plain_choice_member(choice_member: str, message: Any, texts: list[Text]) -> bool:
    if choice_member in _SILENT_CHOICE:
        return is_ignored_member(_LEVEL, choice_member, message)
    if choice_member == "text" and message.__class__ is str:
        texts.append(Text((CHOICES, 0, choice_member), message, "content", role="assistant"))
        return True
    if choice_member not in _MESSAGES or message.__class__ is not dict:
        return False
    for name, value in message.items():
        if value and name in _KINDS:
            if value.__class__ is not str:
                return False
            path = (CHOICES, 0, choice_member, name)
            texts.append(Text(path, value, _KINDS[name], role="assistant"))
        elif (value and (name != "role" or value != "assistant")) or name not in _MEMBERS:
            return False
    return True


PLAIN_READERS: Mapping[Callable[[Json], Iterator[WalkItem]], Callable[[Json], Texts | None]] = {
    walk.walk_request: collect_plain_request_texts,
    walk.walk_response: collect_plain_response_texts,
}
"""Faster readers of plain documents, by the walk that they replace."""
