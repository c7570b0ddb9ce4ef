"""The ids of items as clients send them back: a reference stands for an item that its provider
keeps, and an item that is sent whole has the id that it was given.

A client knows them sealed, see ``sealing``. In the body of a call short names stand for them, so
that no guard takes one for a text. A request to an upstream has the provider's own in their places.
An id that nobody has sealed for the key is no name of anything there: clients make some up, but a
provider takes one of another tenant for that very item. A stand-in takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from proxy.dialects.responses import containers
from proxy.dialects.responses.request import SEND_ITEM, is_reference
from proxy.dialects.responses.sealing import (
    CONTAINERS,
    IN_ITEMS,
    NOT_SEALED,
    ResponseIds,
    at_pin,
    in_conversation,
    kind_of_item,
    pinned,
    unknown_id,
)
from proxy.dialects.responses.words import CONVERSATION, PREVIOUS, UNSTORED
from proxy.errors import BadField
from proxy.field_problems import STORED_AT_PROVIDER, missing
from proxy.types import Call, Json, OpenedId, Pin, RequestHead

STAND_IN_BYTES = 24  # nobody finds a text that leads to a given id of a provider
MOST_IDS = 4096  # that are looked at in one request: each takes some microseconds
ELSEWHERE = "is stored at another target than the other items of this request"
TOO_MANY = f"exceeds the limit of {MOST_IDS} item ids per request"
AFTER = "after"
ENCRYPTED = "encrypted_content"


def leaning(call: Call, ids: ResponseIds | None) -> Call:
    """Return a call with the place of the state that it leans on, or is about, if it does. Raises
    ``BadField``, for a reference or a background without a secret, too, and ``NotFound`` for an id
    that was not given to the very key that calls."""
    if call.head.endpoint == "stored":
        return after_item(pinned(call, ids), ids)
    if call.background and ids is None:
        raise BadField("background", NOT_SEALED)
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
    return with_containers(call, ids)


def _is_unstored(item: Json) -> bool:
    """True for a reference to an item that Headrace has made of a chat."""
    return is_reference(item) and f"_{UNSTORED}" in str(item.get("id"))


def with_containers(call: Call, ids: ResponseIds | None) -> Call:
    """Return a call with the provider's own ids of containers, which then goes to the upstream that
    has them. What was given to nobody of this key stays as it is, for the policy to refuse."""
    if ids is None:
        return call
    opening = _Containers(call, ids, call.pin)
    body = dict(call.body)
    for name, within in (("input", containers.in_item), ("tools", containers.in_tool)):
        if isinstance(body.get(name), list):
            body[name] = containers.in_each(body[name], within, opening.opened, name)
    if not opening.known or opening.pin is None:
        return call
    call = replace(call, body=body, item_ids=(*call.item_ids, *opening.pairs))
    return call if opening.pin is call.pin else at_pin(call, opening.pin)


def with_container_path(call: Call, ids: ResponseIds) -> Call:
    """Return a call for a path that is passed on with the provider's own id of the container that
    it names, if this key was given that; it goes to the upstream that has it. One that was not is
    for an upstream to take whose containers are all of one tenant."""
    head, passed = call.head, call.head.passed
    if passed is None:
        return call
    opening = _Containers(call, ids, None)
    steps = [opening.opened(step, containers.ID) for step in passed.path.split("/")]
    unopened = next((text for text, pin in opening.known.items() if pin is None), "")
    passed = replace(passed, path="/".join(steps), unopened=unopened)
    if opening.pin is None:
        return replace(call, head=replace(head, passed=passed))
    named = head.deployment or opening.pin.deployment
    head = replace(head, passed=passed, deployment=named)
    return at_pin(replace(call, head=head, item_ids=opening.pairs), opening.pin)


@dataclass(slots=True)
class _Containers:
    """Opens ids of containers, all of which have to lead to one place."""

    call: Call
    ids: ResponseIds
    pin: Pin | None
    known: dict[str, Pin | None] = field(default_factory=dict)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        return tuple((text, pin.id) for text, pin in self.known.items() if pin is not None)

    def opened(self, text: str, place: str) -> str:
        """Return the provider's own id, or a text that was not given to this key. Raises
        ``BadField`` for one that leads elsewhere than others."""
        if not text.startswith(CONTAINERS.prefix):
            return text
        if text not in self.known:
            if len(self.known) == MOST_IDS:
                raise BadField(place, TOO_MANY)
            self.known[text] = self.ids.open(text, self.call.caller, CONTAINERS)
        found = self.known[text]
        if found is None:
            return text
        if self.pin is None:
            self.pin = replace(found, id="", param=place)
        elif not self.pin.is_beside(found):
            raise BadField(place, ELSEWHERE)
        return OpenedId(found.id)


def with_items(call: Call, items: list[Json], ids: ResponseIds | None) -> Call:
    """Return a call with the ids of its items, pinned where one of them is a reference."""
    if ids is None:
        _check_unreferred(items)
        return call
    known: dict[str, Pin | None] = {}
    pin = call.pin
    for place, text, refers in _ids_of(items):
        if text not in known:
            if len(known) == MOST_IDS:
                raise BadField(place, TOO_MANY)
            known[text] = ids.open_item(text, call.caller)
        if refers:
            pin = _one_place(call.head, pin, known[text], text, place)
    if pin is not None and pin is not call.pin:
        call = at_pin(call, pin)
    return _named(call, items, known)


def _check_unreferred(items: list[Json]) -> None:
    """Raise ``BadField`` for a reference: no id leads anywhere."""
    for at, item in enumerate(items):
        if is_reference(item):
            raise BadField(f"input.{at}", f"{STORED_AT_PROVIDER}. {SEND_ITEM}")


def _named(call: Call, items: list[Json], known: dict[str, Pin | None]) -> Call:
    """Return a call with names in place of all ids of its items. One that was not opened stands for
    an id of no item of a provider; what is encrypted is bound to an id, and passes without it."""
    if not known:
        return call
    names = {text: _name(at) for at, text in enumerate(known)}
    bare = {**names, **{text: None for text, pin in known.items() if pin is None}}
    made = [_renamed(item, bare if item.get(ENCRYPTED) else names) for item in items]
    own = ((text, pin.id if pin else _stand_in(call.caller, text)) for text, pin in known.items())
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
    Raises ``BadField`` for a reference that has none."""
    for at, item in enumerate(items):
        refers = is_reference(item)
        for name in IN_ITEMS:
            text = item.get(name)
            if isinstance(text, str) and (text or refers):
                yield f"input.{at}.{name}", text, refers and name == "id"
            elif refers and name == "id":
                raise BadField(f"input.{at}.{name}", missing("a string"))


def _one_place(
    head: RequestHead, pin: Pin | None, opened: Pin | None, text: str, place: str
) -> Pin:
    """Return where all references so far lead. Raises ``NotFound``, and ``BadField`` for one that
    leads elsewhere."""
    if opened is None:
        raise unknown_id(head, text, place)
    if pin is None:
        return replace(opened, id="", param=place)
    if not pin.is_beside(opened):
        raise BadField(place, ELSEWHERE)
    return pin


def after_item(call: Call, ids: ResponseIds | None) -> Call:
    """Return a call for a page of items that names the last one of another by the provider's id,
    where it knows that."""
    given, pin = call.head.parameter(AFTER), call.pin
    opened = None if given is None or ids is None else ids.open_item(given, call.caller)
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
