"""Walks over all texts of a request and of a response in OpenAI's format.

All names and values are texts, at any depth, unless a table lists them. ``KIND_BY_FIELD`` and
``KIND_BY_MEMBER`` contain the kinds of known texts. Unreadable content is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from proxy.fields.field_table import ROWS
from proxy.fields.member_table import MEMBERS as MEMBER_FIELDS
from proxy.guards.text.base64_text import (
    MIN_OPAQUE_CHARS,
    Payload,
    TextClaim,
    get_declared_type,
    parse_data,
)
from proxy.guards.text.json_strings import split_values
from proxy.guards.text.member_names import MEMBERS, VALUES
from proxy.guards.text.members import (
    CHOICES,
    ITEM_LISTS,
    MEMBERS_WITHOUT_TEXT,
    PAYLOAD_MEMBERS,
    get_chat_name,
    get_content_kind,
    get_item_role,
    holds_data,
    is_data_object,
    is_ignored_member,
    is_in_choice,
    is_opaque_member,
    list_unshown_logprobs,
    may_be_text,
)
from proxy.runtime.frozen import frozen
from proxy.types import Json

KIND_BY_FIELD: Mapping[str, str] = {row.name: row.text for row in ROWS if row.text is not None}
"""Kinds of texts in request fields; those of any other field are ``other``."""
ROLE_BY_FIELD: Mapping[str, str] = {row.name: row.role for row in ROWS if row.role is not None}
KIND_BY_MEMBER: Mapping[str, str] = {
    each.name: each.text for each in MEMBER_FIELDS.values() if each.text
}
"""Kinds of texts in members of messages and choices."""

IGNORED_FIELDS: Mapping[str, str] = {
    "model": "names a model of the policy; the target's name is sent"
}
"""Request fields that guards ignore, with the reason."""

TEXT_KINDS = frozenset(
    {"content", "other", "logprobs"} | {*KIND_BY_FIELD.values()} | {*KIND_BY_MEMBER.values()}
)
"""Kinds of texts that a rule may select."""

ROLES = VALUES["roles"]
TYPE_WORDS = ROLES | VALUES["types"]
KNOWN_MEMBERS = MEMBERS_WITHOUT_TEXT.union(
    (row.name for row in ROWS), (each.name for each in MEMBER_FIELDS.values() if each.is_api_name)
)
"""Known names of members; all others are inspected like values."""
_MAX_IGNORED_DEPTH = 6  # steps of a path; deeper members are never ignored
# Members with free-form numbers and names.
_FREE_FORM_KINDS = frozenset({"arguments", "metadata", "schema", "tool"})


@frozen
class MemberName:
    """The name of a member, as the last step of a path."""

    name: str


Path = tuple[str | int | MemberName | Payload, ...]
_IN_PARTS = frozenset({"content", "output", "parts", "summary", "system", "thinking"})
_OF_PART: tuple[Path, ...] = ((), ("text",))


class Text(NamedTuple):
    """One text and its path. The last step may be the index of a segment of its arguments.

    - An ``escaped`` text is inside of a JSON string.
    - A text that ``has_decoded_text`` is base64, and its content is a separate text.
    - A text ``in_data_member`` is searched, but not judged as a whole.
    - Texts of one ``run`` are also inspected as one, wherever they are in the document.
    """

    path: Path
    text: str
    kind: str
    role: str | None = None
    escaped: bool = False
    has_decoded_text: bool = False
    in_data_member: bool = False
    run: tuple[int, str] | None = None


@frozen
class Opaque:
    """Content that no guard can read: tokens, images, audio, files."""

    path: Path
    kind: str


@frozen
class Texts:
    """Texts in order, and unreadable content.

    ``unread`` is the reason if texts are missing. ``apart`` is True if no text is joined with
    another.
    """

    texts: tuple[Text, ...]
    opaque: tuple[Opaque, ...] = ()
    unread: str | None = None
    apart: bool = False


@frozen
class Value:
    """A value within arguments that are a string; its text follows, if it has one."""


VALUE = Value()


class Node(NamedTuple):
    """A value on the stack of a walk, and its path."""

    path: Path
    value: Any
    kind: str
    role: str | None
    in_opaque: bool = False  # True inside of reported content
    data_claim: TextClaim = None  # declared type of the data around the value


Found = Text | Opaque | Value | None
"""Result for one value of a walk."""
Members = Callable[[Node, Json], Iterator[Node | Opaque]]


def walk_request(body: Json, unknown: str = "other", role: str | None = None) -> Iterator[Found]:
    """Walk over a request in order.

    Unknown fields have the kind ``unknown`` and the role ``role``.
    """
    return walk_values(
        _iter_request_fields(body, unknown, role), iter_members, answer=False, is_event=False
    )


def walk_passthrough_request(body: Json) -> Iterator[Found]:
    """Walk over a request of an unknown form.

    Unknown fields are texts of the user, so that no rule for other roles skips them.
    """
    return walk_request(body, "content", "user")


def find_joined_parts_depth(path: Path) -> int | None:
    """Return the length of the path to a value whose parts form one text, else None."""
    if path[-1] in _IN_PARTS:
        return len(path)
    for index, step in enumerate(path[:-1]):
        is_list = isinstance(path[index + 1], int) and path[index + 2 :] in _OF_PART
        if is_list and (step in _IN_PARTS or step == "text"):  # ``text`` of a legacy completion
            return index + 1
    return None


def walk_response(data: Json, *, is_event: bool = False, unknown: str = "other") -> Iterator[Found]:
    """Walk over a response, or with ``is_event`` over one event of a stream."""
    nodes = _iter_response_members(data, unknown)
    return walk_values(nodes, partial(iter_members, answer=True), answer=True, is_event=is_event)


def _iter_response_members(data: Json, unknown: str) -> Iterator[Node]:
    for name, value in data.items():
        if is_ignored_member((), name, value):
            continue
        kind = "content" if name == CHOICES else unknown
        if name not in KNOWN_MEMBERS:
            yield Node(path=(MemberName(name),), value=name, kind=kind, role="assistant")
        yield Node(path=(name,), value=value, kind=kind, role="assistant")


def _iter_request_fields(
    body: Json, unknown: str, unknown_role: str | None
) -> Iterator[Node | Opaque]:
    plain = get_declared_type(body, None)
    for name, value in body.items():
        if name in IGNORED_FIELDS:
            continue
        kind, role = KIND_BY_FIELD.get(name, unknown), ROLE_BY_FIELD.get(name, unknown_role)
        sealed = (
            name != "audio" and kind not in _FREE_FORM_KINDS and is_opaque_member(name, value, body)
        )
        if sealed and value:  # ``audio`` of a request names the voice of the response
            yield Opaque((name,), get_content_kind(name))
        if name not in KNOWN_MEMBERS:
            yield Node(path=(MemberName(name),), value=name, kind="other", role=None)
        yield Node(
            path=(name,), value=value, kind=kind, role=role, in_opaque=sealed, data_claim=plain
        )


def walk_values(
    places: Iterator[Node | Opaque], members: Members, *, answer: bool, is_event: bool
) -> Iterator[Found]:
    """Walk over values, and over members of objects by ``members``."""
    stack = [places]  # no recursion: an upstream chooses the depth
    while stack:
        place = next(stack[-1], None)
        if place is None:
            stack.pop()
        elif isinstance(place, Opaque):
            yield place
        elif isinstance(place.value, str):
            yield from _read_string(place, answer, is_event)
        elif isinstance(place.value, dict):
            stack.append(members(place, place.value))
            yield None
        elif isinstance(place.value, list) and not _is_token_list(place, place.value):
            stack.append(_iter_items(place, place.value))
            yield None
        else:
            yield _read_number(place, is_event)


def _read_number(place: Node, is_event: bool) -> Found:
    """Return the text of a number in arguments, which may be a card number.

    In a stream, only a complete event has it.
    """
    if isinstance(place.value, list):
        return Opaque(place.path, "tokens")
    if place.kind != "arguments" or place.value.__class__ not in (int, float):
        return None
    if is_event and place.path[4:5] not in (("event",), ("start",)):
        return None
    return Text(place.path, str(place.value), place.kind, role=place.role)


def _read_string(place: Node, answer: bool, is_event: bool) -> Iterator[Found]:
    text, path, role = place.value, place.path, place.role
    name = path[-1]
    if not text or (text in TYPE_WORDS and name in MEMBERS["type"]):
        return
    decoded = placed = False
    bare = name in PAYLOAD_MEMBERS and (place.in_opaque or bool(place.data_claim))
    data = None if answer else parse_data(text, bare=bare, claim=place.data_claim)
    if data is not None:  # responses are inspected completely
        unsaid = place.data_claim is None and not data.has_known_type and may_be_text(path)
        sure = not data.has_white_space and (data.is_plain_utf8 or not (place.data_claim or unsaid))
        in_place = (
            place.in_opaque and sure and not isinstance(name, MemberName) and holds_data(path)
        )
        if in_place and data.odd_head:
            yield Text((*path, Payload(data.odd_head, True)), data.odd_head, place.kind, role=role)
        if data.text is not None:
            yield Text(
                (*path, data.payload),
                data.text,
                place.kind,
                role=role,
                in_data_member=data.has_invalid_bytes,
            )
        elif in_place and len(text) > MIN_OPAQUE_CHARS:
            return
        decoded, placed = data.is_plain_utf8, in_place
    if name == "arguments" and not is_event:
        yield from _read_arguments(place, decoded, placed)
    else:
        yield Text(
            path, text, place.kind, role=role, has_decoded_text=decoded, in_data_member=placed
        )


def _read_arguments(place: Node, decoded: bool, placed: bool) -> Iterator[Found]:
    number = 0
    for value in split_values(place.value):
        yield VALUE
        if value is None:
            continue
        yield Text(
            (*place.path, number),
            place.value[value.start : value.end],
            kind="arguments",
            role=place.role,
            escaped=value.kind == "string",
            has_decoded_text=decoded,
            in_data_member=placed,
        )
        number += 1


def _is_token_list(place: Node, value: list[Any]) -> bool:
    if not value or place.kind in _FREE_FORM_KINDS or place.path[-1] == "stop_token_ids":
        return False
    return all(type(item) is int for item in value)


def _iter_items(place: Node, value: list[Any]) -> Iterator[Node | Opaque]:
    for number, item in enumerate(value):
        path = (*place.path, number)
        sealed = place.in_opaque or (place.kind not in _FREE_FORM_KINDS and is_data_object(item))
        if sealed and not place.in_opaque:
            yield Opaque(path, "file")
        kind = "content" if path[:-1] == ("input",) and isinstance(item, dict) else place.kind
        yield Node(path, item, kind, role=place.role, in_opaque=sealed, data_claim=place.data_claim)


def iter_members(
    place: Node, value: Json, *, answer: bool = False, inside: bool = False
) -> Iterator[Node | Opaque]:
    """Yield the members of an object. ``inside`` is True for a part of a message."""
    role = place.role
    if len(place.path) == 2 and place.path[0] in ("messages", "input"):
        role = get_item_role(value) or role
    plain = get_declared_type(value, place.data_claim)
    level = _get_level(place.path) if answer and len(place.path) < _MAX_IGNORED_DEPTH else ()
    for name, item in value.items():
        path = (*place.path, name)
        if level and is_ignored_member(level, name, item):
            continue
        if name == "logprobs" and is_in_choice(path):
            message = value.get("message") or value.get("delta") or value
            if not isinstance(message, dict):
                message = {}
            yield from iter_logprob_nodes(path, item, message.get("content", message.get("text")))
            continue
        if name not in KNOWN_MEMBERS:
            key = (*place.path, MemberName(name))
            yield Node(key, name, kind=place.kind, role=role, in_opaque=place.in_opaque)
        sealed = place.in_opaque or (
            place.kind not in _FREE_FORM_KINDS and is_opaque_member(name, item, value)
        )
        if sealed and not place.in_opaque and item:
            yield Opaque(path, get_content_kind(name))
        chat_name = get_chat_name(name, value, place.path)
        has_kind = inside or place.path[0] in ITEM_LISTS
        has_kind = (has_kind and place.kind not in _FREE_FORM_KINDS) or chat_name == "arguments"
        kind = KIND_BY_MEMBER.get(chat_name, place.kind) if has_kind else place.kind
        yield Node(path=path, value=item, kind=kind, role=role, in_opaque=sealed, data_claim=plain)


def _get_level(path: Path) -> tuple[str, ...]:
    """Return the names in the path of a list item of a response, empty for any other value."""
    names = tuple(step for step in path if isinstance(step, str))
    return names if isinstance(path[-1], int) and len(path) in (2, 5) else ()


def iter_logprob_nodes(path: Path, logprobs: Any, shown_text: Any) -> Iterator[Node]:
    """Yield the texts of log probabilities that ``shown_text`` does not contain, as one text."""
    lines = list_unshown_logprobs(logprobs, shown_text)
    if any(lines):
        yield Node(path=path, value="\n".join(lines), kind="logprobs", role="assistant")
