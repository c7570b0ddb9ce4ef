"""Conversations that a provider keeps: made, read, changed and deleted, and the items in them.

The items that a client adds stand in a call as ``input``, as those of a response do, so that guards
and the policy read them so. Ids are sealed: that of a conversation leads to the upstream that has
it.

Source: OpenAI's API reference for conversations, and the typed models of its Python SDK, 3.52.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal, NamedTuple
from urllib.parse import quote

from proxy.dialects.bounds import SPELLINGS
from proxy.dialects.document import Content
from proxy.dialects.responses.item_ids import after_item, with_items
from proxy.dialects.responses.request import check_items
from proxy.dialects.responses.sealing import (
    CONVERSATIONS,
    NOT_SEALED,
    AnswerIds,
    ResponseIds,
    at_pin,
    unknown_id,
)
from proxy.dialects.responses.stored import DELETED, LIST, check_kind
from proxy.errors import InvalidField, NotFound, UpstreamInvalid
from proxy.fields.checks import check_body
from proxy.fields.field_table import fields_of
from proxy.types import Call, Json, RequestHead

PATH = "/conversations"
NAME, ITEM_NAME = "conversation_id", "item_id"
FIELDS = fields_of("conversations")


class ConversationKind(NamedTuple):
    """What a call about conversations says in its body, and what it is answered with."""

    takes: tuple[str, ...]
    shows: Literal["conversation", "deleted", "items", "item"]


KINDS: Mapping[tuple[str, str], ConversationKind] = {
    ("POST", ""): ConversationKind(("items", "metadata"), "conversation"),
    ("GET", "/{id}"): ConversationKind((), "conversation"),
    ("POST", "/{id}"): ConversationKind(("metadata",), "conversation"),
    ("DELETE", "/{id}"): ConversationKind((), "deleted"),
    ("GET", "/{id}/items"): ConversationKind((), "items"),
    ("POST", "/{id}/items"): ConversationKind(("items",), "items"),
    ("GET", "/{id}/items/{item}"): ConversationKind((), "item"),
    ("DELETE", "/{id}/items/{item}"): ConversationKind((), "conversation"),
}
"""By method and the end of the path."""


def end_of(route: str) -> str:
    """Return what follows the name of all conversations in a route."""
    return route.partition(PATH)[2]


def kind_of(head: RequestHead) -> ConversationKind:
    """Return what a call wants, by its method and its path."""
    return KINDS[head.method, end_of(head.route)]


def conversation_call(head: RequestHead, body: Json, size: int = 0, caller: str = "") -> Call:
    """Return the call of a body. Raises ``InvalidField``."""
    check_body(FIELDS, body, SPELLINGS)
    takes = kind_of(head).takes
    made = {name: body[name] for name in takes if name in body}
    if made.get("items") is None:
        made.pop("items", None)
    else:
        made["input"] = made.pop("items")
        with named_items():
            check_items(made)
    return Call(
        head=head,
        body=made,
        warnings=tuple(f"{name} dropped" for name in body if name not in takes),
        size=size,
        scheduling_key=caller,
    )


@contextmanager
def named_items() -> Iterator[None]:
    """Call items in a ``InvalidField`` or a ``NotFound`` as the client does."""
    try:
        yield
    except (InvalidField, NotFound) as error:
        name = error.param or ""
        if name != "input" and not name.startswith(("input.", "input[")):
            raise
        name = "items" + name.removeprefix("input")
        if isinstance(error, InvalidField):
            raise InvalidField(name, error.problem) from None
        raise NotFound(error.message, param=name) from None


def placed(call: Call, ids: ResponseIds | None) -> Call:
    """Return a call with the place of the conversation that it is about, and with the ids of items
    in it. Raises ``InvalidField``, without a secret always, and ``NotFound`` for an id that was not
    given to the very key that calls."""
    head = call.head
    if ids is None:
        raise InvalidField(NAME, NOT_SEALED)
    given, items = head.parameter("id"), call.body.get("input")
    if given is not None:
        pin = ids.open(given, call.scheduling_key, CONVERSATIONS)
        if pin is None:
            raise unknown_id(head, given)
        call = after_item(_with_item(at_pin(replace(call, state_ref=pin), pin), ids), ids)
    if isinstance(items, list):
        with named_items():
            call = with_items(call, items, ids)
    return call


def _with_item(call: Call, ids: ResponseIds) -> Call:
    """Return a call with the provider's own id of the item that its path names, if it does."""
    given, pin = call.head.parameter("item"), call.state_ref
    if given is None or pin is None:
        return call
    opened = ids.open_item(given, call.scheduling_key)
    if opened is None or not pin.is_beside(opened):
        raise unknown_id(call.head, given, ITEM_NAME)
    return replace(call, item_ids=((given, opened.id),))


def path_of(call: Call) -> str:
    """Return the path of a call, with the provider's own ids."""
    end = end_of(call.head.route)
    own = {"{id}": "" if call.state_ref is None else call.state_ref.id}
    own["{item}"] = call.item_ids[0][1] if "{item}" in end else ""
    for place, text in own.items():
        end = end.replace(place, quote(text, safe=""))
    return PATH + end


def sealed(document: Json, ids: AnswerIds) -> Json | None:
    """Return a document with sealed ids; None where none stands in it."""
    if isinstance(document.get("data"), list):
        return ids.page(document)
    if "type" in document:
        return ids.item(document)
    own = document.get("id")
    return {**document, "id": ids.conversation(own)} if isinstance(own, str) else None


def check_document(document: Json, head: RequestHead) -> Content:
    """Return nothing for the meter. Raises ``UpstreamInvalid`` for a document of another kind."""
    shows = kind_of(head).shows
    if shows == "item":
        if not isinstance(document.get("type"), str):
            raise UpstreamInvalid("The upstream's response is not a conversation item.")
    elif shows in ("items", "deleted"):
        check_kind(document, LIST if shows == "items" else DELETED)
    elif not isinstance(document.get("id"), str) or document.get("object") != "conversation":
        raise UpstreamInvalid("The upstream's response is not a conversation.")
    return Content()
