"""Walks over all texts of a request and of a response in OpenAI's format.

All names and values are texts, at any depth, unless a table lists them. ``KIND_BY_FIELD`` and
``KIND_BY_MEMBER`` contain the kinds of known texts. Unreadable content is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from proxy.fields.field_table import ROWS
from proxy.fields.member_table import MEMBERS as MEMBER_FIELDS
from proxy.guards.text import base64_text, members
from proxy.guards.text.base64_text import IsTextOrCharset, PayloadPathStep
from proxy.guards.text.json_strings import iter_text_span_per_value
from proxy.guards.text.member_names import MEMBERS, VALUES
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
KNOWN_MEMBERS = members.MEMBERS_WITHOUT_TEXT.union(
    (row.name for row in ROWS), (each.name for each in MEMBER_FIELDS.values() if each.is_api_name)
)
"""Known names of members; all others are inspected like values."""
# Members with free-form numbers and names.
_FREE_FORM_KINDS = frozenset({"arguments", "metadata", "schema", "tool"})


@frozen
class MemberName:
    """Last step of the path to the name of a member, rather than to its value."""

    name: str


Path = tuple[str | int | MemberName | PayloadPathStep, ...]
_IN_PARTS = frozenset({"content", "output", "parts", "summary", "system", "thinking"})
_OF_PART: tuple[Path, ...] = ((), ("text",))


class Text(NamedTuple):
    """One text and its path. The last step may be the index of a text span in its arguments.

    - A text ``in_json`` is inside of a JSON string, so its characters are escaped.
    - A text that ``has_decoded_text`` is base64, and its content is a separate text.
    - A text ``in_data_member`` is searched, but not judged as a whole.
    - Texts with one ``join_key``, a choice and a kind, are also inspected as one.
    """

    path: Path
    text: str
    kind: str
    role: str | None = None
    in_json: bool = False
    has_decoded_text: bool = False
    in_data_member: bool = False
    join_key: tuple[int, str] | None = None


@frozen
class Opaque:
    """Content that no guard can read: tokens, images, audio, files."""

    path: Path
    kind: str


@frozen
class Texts:
    """Texts in order, and unreadable content.

    ``incomplete_reason`` is the reason if texts are missing. ``has_no_joined_texts`` is True if no
    text is joined with another.
    """

    texts: tuple[Text, ...]
    opaque: tuple[Opaque, ...] = ()
    incomplete_reason: str | None = None
    has_no_joined_texts: bool = False


ARGUMENT_VALUE: Final = "argument value"
"""Marks a value in the arguments of a tool call. Its text follows, if it has one."""


class Node(NamedTuple):
    """A value on the stack of a walk, and its path."""

    path: Path
    value: Any
    kind: str
    role: str | None
    in_opaque: bool = False  # True inside of reported content
    data_claim: IsTextOrCharset = None  # declared type of the data around the value


WalkItem = Text | Opaque | Literal["argument value"] | None
"""Result for one value of a walk."""
Members = Callable[[Node, Json], Iterator[Node | Opaque]]


def walk_request(
    body: Json, unknown_kind: str = "other", unknown_role: str | None = None
) -> Iterator[WalkItem]:
    """Walk over a request in order.

    Unknown fields have the kind ``unknown_kind`` and the role ``unknown_role``.
    """
    nodes = _iter_request_fields(body, unknown_kind, unknown_role)
    return walk_values(nodes, iter_members, is_response=False, is_event=False)


def walk_passthrough_request(body: Json) -> Iterator[WalkItem]:
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


def walk_response(
    data: Json, *, is_event: bool = False, unknown_kind: str = "other"
) -> Iterator[WalkItem]:
    """Walk over a response, or with ``is_event`` over one event of a stream."""
    nodes = _iter_response_members(data, unknown_kind)
    return walk_values(
        nodes, partial(iter_members, is_response=True), is_response=True, is_event=is_event
    )


def _iter_response_members(data: Json, unknown_kind: str) -> Iterator[Node]:
    for name, value in data.items():
        if not members.is_ignored_member((), name, value):
            kind = "content" if name == members.CHOICES else unknown_kind
            if name not in KNOWN_MEMBERS:
                yield Node(path=(MemberName(name),), value=name, kind=kind, role="assistant")
            yield Node(path=(name,), value=value, kind=kind, role="assistant")


def _iter_request_fields(
    body: Json, unknown_kind: str, unknown_role: str | None
) -> Iterator[Node | Opaque]:
    plain = base64_text.get_declared_type(body, None)
    for name, value in body.items():
        if name in IGNORED_FIELDS:
            continue
        kind, role = KIND_BY_FIELD.get(name, unknown_kind), ROLE_BY_FIELD.get(name, unknown_role)
        sealed = (
            name != "audio"
            and kind not in _FREE_FORM_KINDS
            and members.is_opaque_member(name, value, body)
        )
        if sealed and value:  # ``audio`` of a request names the voice of the response
            yield Opaque((name,), members.get_opaque_kind(name))
        if name not in KNOWN_MEMBERS:
            yield Node(path=(MemberName(name),), value=name, kind="other", role=None)
        yield Node(
            path=(name,), value=value, kind=kind, role=role, in_opaque=sealed, data_claim=plain
        )


def walk_values(
    nodes: Iterator[Node | Opaque],
    iter_object_members: Members,
    *,
    is_response: bool,
    is_event: bool,
) -> Iterator[WalkItem]:
    """Walk over values, and over members of objects by ``iter_object_members``."""
    stack = [nodes]  # no recursion: an upstream chooses the depth
    while stack:
        node = next(stack[-1], None)
        if node is None:
            stack.pop()
        elif isinstance(node, Opaque):
            yield node
        elif isinstance(node.value, str):
            yield from _read_string(node, is_response, is_event)
        elif isinstance(node.value, dict):
            stack.append(iter_object_members(node, node.value))
            yield None
        elif isinstance(node.value, list) and not _is_token_list(node, node.value):
            stack.append(_iter_items(node, node.value))
            yield None
        else:
            yield _read_number_or_tokens(node, is_event)


def _read_number_or_tokens(node: Node, is_event: bool) -> WalkItem:
    """Return the text of a number in arguments, which may be a card number.

    In a stream, only complete arguments have one. A list of tokens is opaque.
    """
    if isinstance(node.value, list):
        return Opaque(node.path, "tokens")
    if node.kind != "arguments" or node.value.__class__ not in (int, float):
        return None
    if is_event and node.path[4:5] not in (("event",), ("start",)):
        return None
    return Text(node.path, str(node.value), node.kind, role=node.role)


def _read_string(node: Node, is_response: bool, is_event: bool) -> Iterator[WalkItem]:
    text, path, role = node.value, node.path, node.role
    name = path[-1]
    if not text or (text in TYPE_WORDS and name in MEMBERS["type"]):
        return
    whole = Text(path, text, node.kind, role=role)
    bare = name in members.PAYLOAD_MEMBERS and (node.in_opaque or bool(node.data_claim))
    data = None
    if not is_response:  # responses are inspected completely
        data = base64_text.parse_encoded_data(text, allow_bare_base64=bare, claim=node.data_claim)
    if data is not None:
        unsaid = (
            node.data_claim is None and not data.has_known_type and members.may_be_text_data(path)
        )
        sure = not data.has_white_space and (data.is_plain_utf8 or not (node.data_claim or unsaid))
        is_value = node.in_opaque and not isinstance(name, MemberName)
        in_place = is_value and sure and members.is_data_member_path(path)
        if in_place and (head := data.head_with_text):
            yield Text((*path, PayloadPathStep(head, True)), head, node.kind, role=role)
        if data.text is not None:
            decoded = Text((*path, data.payload), data.text, node.kind, role=role)
            yield decoded._replace(in_data_member=data.has_invalid_bytes)
        elif in_place and len(text) > base64_text.MIN_OPAQUE_CHARS:
            return
        whole = whole._replace(has_decoded_text=data.is_plain_utf8, in_data_member=in_place)
    if name == "arguments" and not is_event:
        yield from _split_arguments(whole)
    else:
        yield whole


def _split_arguments(whole: Text) -> Iterator[WalkItem]:
    """Yield the texts within the arguments of a tool call."""
    number = 0
    for span in iter_text_span_per_value(whole.text):
        yield ARGUMENT_VALUE
        if span is not None:
            path, text = (*whole.path, number), whole.text[span.start : span.end]
            in_json = span.kind == "string"
            yield whole._replace(path=path, text=text, kind="arguments", in_json=in_json)
            number += 1


def _is_token_list(node: Node, value: list[Any]) -> bool:
    if not value or node.kind in _FREE_FORM_KINDS or node.path[-1] == "stop_token_ids":
        return False
    return all(type(item) is int for item in value)


def _iter_items(node: Node, value: list[Any]) -> Iterator[Node | Opaque]:
    for number, item in enumerate(value):
        path = (*node.path, number)
        sealed = node.in_opaque or (
            node.kind not in _FREE_FORM_KINDS and members.is_data_object(item)
        )
        if sealed and not node.in_opaque:
            yield Opaque(path, "file")
        kind = "content" if path[:-1] == ("input",) and isinstance(item, dict) else node.kind
        yield Node(path, item, kind, role=node.role, in_opaque=sealed, data_claim=node.data_claim)


def iter_members(
    node: Node, value: Json, *, is_response: bool = False, is_message_part: bool = False
) -> Iterator[Node | Opaque]:
    """Yield the members of an object. ``is_message_part`` is True for a part of a message."""
    role = node.role
    if len(node.path) == 2 and node.path[0] in ("messages", "input"):
        role = members.infer_item_role(value) or role
    plain = base64_text.get_declared_type(value, node.data_claim)
    level = _get_item_level(node.path) if is_response else ()
    for name, item in value.items():
        path = (*node.path, name)
        if level and members.is_ignored_member(level, name, item):
            continue
        if name == "logprobs" and members.is_in_choice(path):
            message = value.get("message") or value.get("delta") or value
            is_message = isinstance(message, dict)
            shown_text = message.get("content", message.get("text")) if is_message else None
            yield from iter_joined_unshown_logprobs(path, item, shown_text)
            continue
        if name not in KNOWN_MEMBERS:
            key = (*node.path, MemberName(name))
            yield Node(key, name, kind=node.kind, role=role, in_opaque=node.in_opaque)
        sealed = node.in_opaque or (
            node.kind not in _FREE_FORM_KINDS and members.is_opaque_member(name, item, value)
        )
        if sealed and not node.in_opaque and item:
            yield Opaque(path, members.get_opaque_kind(name))
        chat_name = members.get_chat_member_name(name, value, node.path)
        has_kind = is_message_part or node.path[0] in members.ITEM_LISTS
        has_kind = (has_kind and node.kind not in _FREE_FORM_KINDS) or chat_name == "arguments"
        kind = KIND_BY_MEMBER.get(chat_name, node.kind) if has_kind else node.kind
        yield Node(path=path, value=item, kind=kind, role=role, in_opaque=sealed, data_claim=plain)


def _get_item_level(path: Path) -> tuple[str, ...]:
    """Return the names in the path of a list item of a response, empty for any other value."""
    is_item = len(path) in (2, 5) and isinstance(path[-1], int)
    return tuple(step for step in path if isinstance(step, str)) if is_item else ()


def iter_joined_unshown_logprobs(path: Path, logprobs: Any, shown_text: Any) -> Iterator[Node]:
    """Yield the texts of log probabilities that ``shown_text`` does not contain, as one text."""
    lines = members.list_unshown_logprob_texts(logprobs, shown_text)
    if any(lines):
        yield Node(path=path, value="\n".join(lines), kind="logprobs", role="assistant")
