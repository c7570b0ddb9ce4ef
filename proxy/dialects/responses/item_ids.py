"""The ids of items as clients send them back: a reference stands for an item that its provider
keeps, and an item that is sent whole has the id that it was given.

A client knows them sealed, see ``sealing``. In the body of a call short names stand for them, so
that no guard takes one for a text. A request to an upstream has the provider's own in their places.
An id that nobody has sealed for the key is no name of anything there: clients make some up, but a
provider takes one of another tenant for that very item. A stand-in takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from proxy.dialects.responses.request import SEND_ITEM, is_reference
from proxy.dialects.responses.sealing import (
    IN_ITEMS,
    NOT_SEALED,
    ResponseIds,
    at_pin,
    in_conversation,
    kind_of_item,
    pinned,
    unknown_id,
)
from proxy.dialects.responses.tables import CONVERSATION, PREVIOUS, UNSTORED
from proxy.errors import InvalidField
from proxy.errors.field_problems import STORED_AT_PROVIDER, missing
from proxy.types import Call, Json, RequestHead, StateRef

STAND_IN_BYTES = 24  # nobody finds a text that leads to a given id of a provider
MOST_IDS = 4096  # that are looked at in one request: each takes some microseconds
ELSEWHERE = "is stored at another target than the other items of this request"
AFTER = "after"
ENCRYPTED = "encrypted_content"


def leaning(call: Call, ids: ResponseIds | None) -> Call:
    """Return a call with the place of the state that it leans on, or is about, if it does. Raises
    ``InvalidField``, for a reference or a background without a secret, too, and ``NotFound`` for an
    id that was not given to the very key that calls."""
    if call.head.endpoint == "stored":
        return after_item(pinned(call, ids), ids)
    if call.background and ids is None:
        raise InvalidField("background", NOT_SEALED)
    if call.body.get(CONVERSATION) is not None:
        call = in_conversation(call, ids)
    elif call.body.get(PREVIOUS) is not None:
        call = pinned(call, ids)
    items: Any = call.body.get("input")
    if isinstance(items, list):
        kept = [item for item in items if not _is_unstored(item)]
        if kept and len(kept) < len(items):
            items, warnings = kept, (*call.warnings, "item_reference dropped")
            call = replace(call, body={**call.body, "input": kept}, warnings=warnings)
        call = with_items(call, items, ids)
    return call


def _is_unstored(item: Json) -> bool:
    """True for a reference to an item that Headrace has made of a chat."""
    return is_reference(item) and f"_{UNSTORED}" in str(item.get("id"))


def with_items(call: Call, items: list[Json], ids: ResponseIds | None) -> Call:
    """Return a call with the ids of its items, pinned where one of them is a reference."""
    if ids is None:
        _check_unreferred(items)
        return call
    known: dict[str, StateRef | None] = {}
    pin = call.state_ref
    for place, text, refers in _ids_of(items):
        if text not in known:
            if len(known) == MOST_IDS:
                raise InvalidField(place, f"exceeds the limit of {MOST_IDS} item ids per request")
            known[text] = ids.open_item(text, call.scheduling_key)
        if refers:
            pin = _one_place(call.head, pin, known[text], text, place)
    if pin is not None and pin is not call.state_ref:
        call = at_pin(call, pin)
    return _named(call, items, known)


def _check_unreferred(items: list[Json]) -> None:
    """Raise ``InvalidField`` for a reference: no id leads anywhere."""
    for at, item in enumerate(items):
        if is_reference(item):
            raise InvalidField(f"input.{at}", f"{STORED_AT_PROVIDER}. {SEND_ITEM}")


def _named(call: Call, items: list[Json], known: dict[str, StateRef | None]) -> Call:
    """Return a call with names in place of all ids of its items. One that was not opened stands for
    an id of no item of a provider; what is encrypted is bound to an id, and passes without it."""
    if not known:
        return call
    names = {text: _name(at) for at, text in enumerate(known)}
    bare = {**names, **{text: None for text, pin in known.items() if pin is None}}
    made = [_renamed(item, bare if item.get(ENCRYPTED) else names) for item in items]
    own = (
        (text, pin.id if pin else _stand_in(call.scheduling_key, text))
        for text, pin in known.items()
    )
    return replace(call, body={**call.body, "input": made}, item_ids=tuple(own))


def _stand_in(caller: str, text: str) -> str:
    """Return the id that an upstream gets for one that was not sealed for a caller: of its kind,
    the same each time, and no other's."""
    whole = f"{len(caller)} {caller}{text}".encode("utf-8", "surrogatepass")
    hashed = blake2b(whole, digest_size=STAND_IN_BYTES, person=b"headrace item id")
    return kind_of_item(text) + hashed.hexdigest()


def _name(at: int) -> str:
    """Return what stands for an id in a body, in which no other id is left."""
    return f"item_{at}"


def _ids_of(items: list[Json]) -> Iterator[tuple[str, str, bool]]:
    """Yield each id of an item: where it stands, what it says, and whether it is a reference.
    Raises ``InvalidField`` for a reference that has none."""
    for at, item in enumerate(items):
        refers = is_reference(item)
        for name in IN_ITEMS:
            text = item.get(name)
            if isinstance(text, str) and (text or refers):
                yield f"input.{at}.{name}", text, refers and name == "id"
            elif refers and name == "id":
                raise InvalidField(f"input.{at}.{name}", missing("a string"))


def _one_place(
    head: RequestHead, pin: StateRef | None, opened: StateRef | None, text: str, place: str
) -> StateRef:
    """Return where all references so far lead. Raises ``NotFound``, and ``InvalidField`` for one
    that leads elsewhere."""
    if opened is None:
        raise unknown_id(head, text, place)
    if pin is None:
        return replace(opened, id="", param=place)
    if not pin.is_beside(opened):
        raise InvalidField(place, ELSEWHERE)
    return pin


def after_item(call: Call, ids: ResponseIds | None) -> Call:
    """Return a call for a page of items that names the last one of another by the provider's id,
    where it knows that."""
    given, pin = call.head.parameter(AFTER), call.state_ref
    opened = None if given is None or ids is None else ids.open_item(given, call.scheduling_key)
    if opened is None or pin is None or not pin.is_beside(opened):
        return call
    named = [
        (name, opened.id if (name, value) == (AFTER, given) else value)
        for name, value in call.head.parameters
    ]
    return replace(call, head=replace(call.head, parameters=tuple(named)))


def own_items(items: Any, ids: tuple[tuple[str, str], ...]) -> Any:
    """Return the items of a call with the provider's own ids in place of their names."""
    known = {_name(at): own for at, (_, own) in enumerate(ids)}
    if not isinstance(items, list):
        return items
    return [_renamed(item, known) if isinstance(item, dict) else item for item in items]


def _renamed(item: Json, known: Mapping[str, str | None]) -> Json:
    """Return an item with other ids, or without those that have none."""
    texts = {name: item[name] for name in IN_ITEMS if isinstance(item.get(name), str)}
    made = {name: known[text] for name, text in texts.items() if text in known}
    if not made:
        return item
    return {
        name: made.get(name, value)
        for name, value in item.items()
        if made.get(name, "") is not None
    }
