"""Every text of a request and of an answer, in OpenAI's form, and a copy with texts changed.

What is not known to be without text is text: names no table has, at any depth, keys and values.
``REQUEST`` and ``NESTED`` only say of which kind the fields are that are known; what is never
looked at stands in ``SILENT`` with its reason. What cannot be read is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from proxy.fields.field_table import ROWS
from proxy.fields.member_table import MEMBERS
from proxy.frozen import frozen
from proxy.guardrails.text.frame import NO_TEXTS, is_silent, name_in_chat, role_of_item
from proxy.guardrails.text.json_strings import values
from proxy.guardrails.text.logprobs import beside
from proxy.guardrails.text.opaque import (
    PAYLOAD,
    TextClaim,
    is_data,
    is_for_data,
    is_opaque,
    kind_of,
    may_be_text,
    says_text,
)
from proxy.guardrails.text.payloads import LEAST_OPAQUE, Payload, data_of
from proxy.types import Json

REQUEST: Mapping[str, str] = {row.name: row.text for row in ROWS if row.text is not None}
"""The kinds of the texts of request fields; those of any other field are ``other``."""
ROLE_OF: Mapping[str, str] = {row.name: row.role for row in ROWS if row.role is not None}
NESTED: Mapping[str, str] = {each.name: each.text for each in MEMBERS.values() if each.text}
"""The kinds of texts in members of messages and choices."""

SILENT: Mapping[str, str] = {"model": "names a model of the policy; the target's name is sent"}
"""Request fields that are never looked at, and why."""

KINDS = frozenset({"content", "other", "logprobs"} | {*REQUEST.values()} | {*NESTED.values()})
"""The kinds of text that a rule can be narrowed to."""

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})

_SAYS_TYPE = frozenset({"type", "role", "object", "detail", "encoding_format"})
WORDS = ROLES | {  # that say of which type a value is
    "array", "auto", "boolean", "custom", "ephemeral", "float", "function", "high", "image_url",
    "function_call", "function_call_output", "input_audio", "input_text", "integer",
    "item_reference", "json_object", "json_schema", "low", "message", "null", "number", "object",
    "output_text", "reasoning", "reasoning_text", "refusal", "string", "summary_text", "text",
    "thinking", "tool_result", "tool_use",
}  # fmt: skip
KNOWN = NO_TEXTS.union(
    (row.name for row in ROWS), (each.name for each in MEMBERS.values() if each.is_api_word)
)
"""The names of members that are no texts: all others are read like values."""
_DEEP = 6  # steps: nothing that is silent stands so deep
_FORMS = frozenset({"arguments", "metadata", "schema", "tool"})  # numbers and names of any meaning


@frozen
class MemberName:
    """The name of a member, as the last step of a path."""

    name: str


Path = tuple[str | int | MemberName | Payload, ...]


class Text(NamedTuple):
    """One text and its place. A number after a text's place is a segment of its arguments.

    ``escaped`` is True if it stands inside of a JSON string, and is written as there; ``decoded``
    if what its base64 says is a text beside it; ``placed`` if it is data in a place for data, so
    that its letters are no text to judge, and are only looked through. Texts of one ``run`` are
    also read as one text, in their order, wherever they are in the document.
    """

    path: Path
    text: str
    kind: str
    role: str | None = None
    escaped: bool = False
    decoded: bool = False
    placed: bool = False
    run: tuple[int, str] | None = None


@frozen
class Opaque:
    """A place that no guard of texts can read: tokens, images, audio, files."""

    path: Path
    kind: str


@frozen
class Texts:
    """What there is to read, in its order, and what cannot be. ``unread`` says why not all was
    read, if there is more; ``apart`` that no text is read together with another."""

    texts: tuple[Text, ...]
    opaque: tuple[Opaque, ...] = ()
    unread: str | None = None
    apart: bool = False


@frozen
class Value:
    """There is a value within arguments that are a string; its text, if it has one, follows."""


VALUE = Value()


class Node(NamedTuple):
    """A value that is still to be walked, and its place."""

    path: Path
    value: Any
    kind: str
    role: str | None
    sealed: bool = False  # inside of what is reported as opaque
    plain: TextClaim = None  # what is around it says that it is a text, or that it is none


Found = Text | Opaque | Value | None
"""What a value yields: a text, what cannot be read, or nothing by itself."""
Members = Callable[[Node, Json], Iterator[Node | Opaque]]


def request_walk(body: Json, unknown: str = "other", whose: str | None = None) -> Iterator[Found]:
    """Walk over a request, value by value, in the order in which they stand. A field that is not
    known is of the kind ``unknown``, and says what somebody of the role ``whose`` does."""
    return walk_values(_fields(body, unknown, whose), members, answer=False, cut=False)


def answer_walk(data: Json, *, cut: bool = False, unknown: str = "other") -> Iterator[Found]:
    """Walk over an answer, or with ``cut`` over one chunk of a stream."""
    return walk_values(_members_of(data, unknown), _answer_members, answer=True, cut=cut)


def _members_of(data: Json, unknown: str) -> Iterator[Node]:
    for name, value in data.items():
        if is_silent((), name, value):
            continue
        kind = "content" if name == "choices" else unknown
        if name not in KNOWN:
            yield Node(path=(MemberName(name),), value=name, kind=kind, role="assistant")
        yield Node(path=(name,), value=value, kind=kind, role="assistant")


def _fields(body: Json, unknown: str, whose: str | None) -> Iterator[Node | Opaque]:
    plain = says_text(body, None)
    for name, value in body.items():
        if name in SILENT:
            continue
        kind, role = REQUEST.get(name, unknown), ROLE_OF.get(name, whose)
        sealed = name != "audio" and kind not in _FORMS and is_opaque(name, value, body)
        if sealed and value:  # ``audio`` is how an answer is to sound
            yield Opaque((name,), kind_of(name))
        if name not in KNOWN:
            yield Node(path=(MemberName(name),), value=name, kind="other", role=None)
        yield Node(path=(name,), value=value, kind=kind, role=role, sealed=sealed, plain=plain)


def walk_values(
    places: Iterator[Node | Opaque], members: Members, *, answer: bool, cut: bool
) -> Iterator[Found]:
    """Walk over values and, by `members`, over those of objects."""
    stack = [places]  # no recursion: an upstream chooses how deep its answers are
    while stack:
        place = next(stack[-1], None)
        if place is None:
            stack.pop()
        elif isinstance(place, Opaque):
            yield place
        elif isinstance(place.value, str):
            yield from _read(place, answer, cut)
        elif isinstance(place.value, dict):
            stack.append(members(place, place.value))
            yield None
        elif isinstance(place.value, list) and not _tokens(place, place.value):
            stack.append(_items(place, place.value))
            yield None
        else:
            yield _unwritten(place, cut)


def _unwritten(place: Node, cut: bool) -> Found:
    """Return what a value says that is no text, nor has any: a number in the arguments of a call
    may be that of a card. Of a stream an event has it, where that has all of them."""
    if isinstance(place.value, list):
        return Opaque(place.path, "tokens")
    if place.kind != "arguments" or place.value.__class__ not in (int, float):
        return None
    if cut and place.path[4:5] not in (("event",), ("start",)):
        return None
    return Text(place.path, str(place.value), place.kind, role=place.role)


def _read(place: Node, answer: bool, cut: bool) -> Iterator[Found]:
    text, path, role = place.value, place.path, place.role
    last = path[-1]
    if not text or (text in WORDS and last in _SAYS_TYPE):
        return
    decoded = placed = False
    bare = last in PAYLOAD and (place.sealed or bool(place.plain))
    data = None if answer else data_of(text, bare=bare, claim=place.plain)
    if data is not None:  # of an answer nothing is skipped
        unsaid = place.plain is None and not data.signed and may_be_text(path)
        sure = not data.loose and (data.exact or not (place.plain or unsaid))
        in_place = place.sealed and sure and not isinstance(last, MemberName) and is_for_data(path)
        if in_place and data.odd_head:
            yield Text((*path, Payload(data.odd_head, True)), data.odd_head, place.kind, role=role)
        if data.text is not None:
            yield Text((*path, data.payload), data.text, place.kind, role=role, placed=data.rough)
        elif in_place and len(text) > LEAST_OPAQUE:
            return
        decoded, placed = data.exact, in_place
    if last == "arguments" and not cut:
        yield from _of_arguments(place, decoded, placed)
    else:
        yield Text(path, text, place.kind, role=role, decoded=decoded, placed=placed)


def _of_arguments(place: Node, decoded: bool, placed: bool) -> Iterator[Found]:
    number = 0
    for value in values(place.value):
        yield VALUE
        if value is None:
            continue
        yield Text(
            (*place.path, number), place.value[value.start : value.end], kind="arguments",
            role=place.role, escaped=value.kind == "string", decoded=decoded, placed=placed,
        )  # fmt: skip
        number += 1


def _tokens(place: Node, value: list[Any]) -> bool:
    if not value or place.kind in _FORMS or place.path[-1] == "stop_token_ids":
        return False
    return all(type(each) is int for each in value)


def _items(place: Node, value: list[Any]) -> Iterator[Node | Opaque]:
    for number, each in enumerate(value):
        path = (*place.path, number)
        sealed = place.sealed or (place.kind not in _FORMS and is_data(each))
        if sealed and not place.sealed:
            yield Opaque(path, "file")
        kind = "content" if path[:-1] == ("input",) and isinstance(each, dict) else place.kind
        yield Node(path, each, kind, role=place.role, sealed=sealed, plain=place.plain)


def members(
    place: Node, value: Json, *, answer: bool = False, inside: bool = False
) -> Iterator[Node | Opaque]:
    """Yield the members of an object. `inside`: it is a part of a message."""
    role = place.role
    if len(place.path) == 2 and place.path[0] in ("messages", "input"):
        role = role_of_item(value) or role
    plain = says_text(value, place.plain)
    level = _level(place.path) if answer and len(place.path) < _DEEP else ()
    for name, each in value.items():
        path = (*place.path, name)
        if level and is_silent(level, name, each):
            continue
        if name == "logprobs" and place.path[0] == "choices":
            yield from _logprobs(path, each, value, role)
            continue
        if name not in KNOWN:
            key = (*place.path, MemberName(name))
            yield Node(key, name, kind=place.kind, role=role, sealed=place.sealed)
        sealed = place.sealed or (place.kind not in _FORMS and is_opaque(name, each, value))
        if sealed and not place.sealed and each:
            yield Opaque(path, kind_of(name))
        named = name_in_chat(name, value, place.path)
        known = inside or place.path[0] in ("choices", "input", "messages")
        known = (known and place.kind not in _FORMS) or named == "arguments"
        kind = NESTED.get(named, place.kind) if known else place.kind
        yield Node(path=path, value=each, kind=kind, role=role, sealed=sealed, plain=plain)


def _answer_members(place: Node, value: Json) -> Iterator[Node | Opaque]:
    return members(place, value, answer=True)


def _level(path: Path) -> tuple[str, ...]:
    """Return the names on the way to an item of a list in an answer; else none."""
    names = tuple(step for step in path if isinstance(step, str))
    return names if isinstance(path[-1], int) and len(path) in (2, 5) else ()


def _logprobs(path: Path, logprobs: Any, choice: Json, role: str | None) -> Iterator[Node]:
    """Return one text of all that log-probs say beside the text that is shown."""
    message = choice.get("message") or choice.get("delta") or choice
    shown = message.get("content", message.get("text")) if isinstance(message, dict) else None
    lines = beside(logprobs, shown)
    if any(lines):
        yield Node(path=path, value="\n".join(lines), kind="logprobs", role=role)
