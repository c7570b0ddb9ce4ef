"""Resolves references of Responses requests to state that a provider stores.

Clients send sealed ids (see ``sealing``). In the body of a call, short names replace the ids of
items, so that guards do not read ids as text. A request to an upstream has the provider's ids. An
id that was not sealed for the key is replaced by a derived one, because a provider could resolve it
to another tenant's item.

Source: the typed models of OpenAI's Python SDK, 3.52.0, for ``POST /v1/responses``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from proxy.dialects.responses.schema import (
    CONVERSATION,
    PREVIOUS_RESPONSE_ID,
    UNSTORED_MARK,
    is_item_reference,
)
from proxy.dialects.responses.sealing import (
    CONVERSATIONS,
    ITEM_MEMBERS,
    ITEMS,
    RESPONSES,
    IdSealer,
    StateKind,
)
from proxy.errors import InvalidField, NotFound
from proxy.errors.field_problems import (
    STORED_AT_PROVIDER,
    describe_conflict,
    describe_missing_field,
)
from proxy.errors.words import MAX_ID, shorten_to_ascii
from proxy.types import Call, Endpoint, Json, RequestHead, StateRef

DERIVED_ID_BYTES = 24  # long enough that nobody finds a text with a given id
MAX_IDS = 4096  # ids per request; each takes a few microseconds
NOT_SEALED = "requires stored state. The operator can enable it with HEADRACE_SECRET."
SEND_ITEM = "Send the item itself: clients do so with store: false."
OTHER_TARGET = "is stored at another target than the other items of this request"
CURSOR_NAME = "after"


def resolve_state_refs(call: Call, sealer: IdSealer | None) -> Call:
    """Return a call with a ``state_ref`` if its ids name stored state.

    ``sealer`` is None without a secret. Raises ``InvalidField`` for a malformed reference or a
    missing secret, and ``NotFound`` for an id that was not sealed for the key of the call.
    """
    if call.head.endpoint == "stored":
        return resolve_page_cursor(resolve_response_id(call, sealer), sealer)
    if call.background and sealer is None:
        raise InvalidField("background", NOT_SEALED)
    if call.body.get(CONVERSATION) is not None:
        call = _resolve_conversation_id(call, sealer)
    elif call.body.get(PREVIOUS_RESPONSE_ID) is not None:
        call = resolve_response_id(call, sealer)
    items: Any = call.body.get("input")
    if not isinstance(items, list):
        return call
    # The proxy composed the unstored items from a chat response.
    stored = [
        item
        for item in items
        if not (is_item_reference(item) and f"_{UNSTORED_MARK}" in str(item.get("id")))
    ]
    if stored and len(stored) < len(items):
        items, warnings = stored, (*call.warnings, "item_reference dropped")
        call = replace(call, body={**call.body, "input": items}, warnings=warnings)
    return resolve_item_ids(call, items, sealer)


def resolve_response_id(call: Call, sealer: IdSealer | None) -> Call:
    """Resolve the id of a response in the path or in ``previous_response_id``."""
    if call.head.endpoint != "stored":
        ref = open_state_id(call, sealer, call.body[PREVIOUS_RESPONSE_ID])
        body = {name: value for name, value in call.body.items() if name != PREVIOUS_RESPONSE_ID}
        return use_stored_state(replace(call, body=body), ref)
    ref = open_state_id(call, sealer, call.head.get_url_parameter("id"))
    models, deployment = (ref.target,), ref.deployment
    return replace(call, requested_models=models, deployment=deployment, state_ref=ref)


def _resolve_conversation_id(call: Call, sealer: IdSealer | None) -> Call:
    if call.body.get(PREVIOUS_RESPONSE_ID) is not None:
        raise InvalidField(CONVERSATION, describe_conflict(PREVIOUS_RESPONSE_ID))
    conversation = call.body[CONVERSATION]
    client_id = conversation.get("id") if isinstance(conversation, dict) else conversation
    if not isinstance(client_id, str):
        raise InvalidField(f"{CONVERSATION}.id", describe_missing_field("a string"))
    ref = open_state_id(call, sealer, client_id, CONVERSATIONS, CONVERSATION)
    body = {name: value for name, value in call.body.items() if name != CONVERSATION}
    return use_stored_state(replace(call, body=body), replace(ref, param=CONVERSATION))


def open_state_id(
    call: Call,
    sealer: IdSealer | None,
    client_id: Any,
    kind: StateKind = RESPONSES,
    param: str | None = None,
) -> StateRef:
    """Return the reference in a sealed id of stored state.

    ``param`` is the place of an id of an item or a conversation. Raises ``InvalidField`` without a
    secret, and ``NotFound``.
    """
    if sealer is None:
        raise InvalidField(_get_place_and_label(call.head, param)[0], NOT_SEALED)
    ref = sealer.open(client_id, call.scheduling_key, kind)
    if ref is None:
        raise make_unknown_id_error(call.head, client_id, param)
    return ref


def use_stored_state(call: Call, ref: StateRef) -> Call:
    """Return a call that uses stored state, at its deployment unless the call names one."""
    deployment = call.deployment if call.head.deployment or call.deployment else ref.deployment
    return replace(call, state_ref=ref, deployment=deployment)


def resolve_item_ids(call: Call, items: list[Json], sealer: IdSealer | None) -> Call:
    """Resolve the ids of items. All must be stored at one target, which the call then uses."""
    if sealer is None:
        _check_no_item_references(items)
        return call
    refs: dict[str, StateRef | None] = {}
    call_ref = call.state_ref
    for place, client_id, is_referred in _find_item_ids(items):
        if client_id not in refs:
            if len(refs) == MAX_IDS:
                raise InvalidField(place, f"exceeds the limit of {MAX_IDS} item ids per request")
            refs[client_id] = sealer.open(client_id, call.scheduling_key, ITEMS)
        if is_referred:
            ref = refs[client_id]
            if ref is None:
                raise make_unknown_id_error(call.head, client_id, place)
            call_ref = _merge_refs(call_ref, ref, place)
    if call_ref is not None and call_ref is not call.state_ref:
        call = use_stored_state(call, call_ref)
    return _replace_item_ids(call, items, refs) if refs else call


def _merge_refs(call_ref: StateRef | None, ref: StateRef, place: str) -> StateRef:
    if call_ref is None:
        return replace(ref, id="", param=place)
    if not call_ref.can_share_target(ref):
        raise InvalidField(place, OTHER_TARGET)
    return call_ref


def _check_no_item_references(items: list[Json]) -> None:
    for index, item in enumerate(items):
        if is_item_reference(item):
            raise InvalidField(f"input.{index}", f"{STORED_AT_PROVIDER}. {SEND_ITEM}")


def _find_item_ids(items: list[Json]) -> Iterator[tuple[str, str, bool]]:
    """Yield the JSON path of each id, the id, and True if it refers to a stored item."""
    for index, item in enumerate(items):
        is_ref = is_item_reference(item)
        for name in ITEM_MEMBERS:
            text = item.get(name)
            if isinstance(text, str) and (text or is_ref):
                yield f"input.{index}.{name}", text, is_ref and name == "id"
            elif is_ref and name == "id":
                raise InvalidField(f"input.{index}.{name}", describe_missing_field("a string"))


def _replace_item_ids(call: Call, items: list[Json], refs: dict[str, StateRef | None]) -> Call:
    # Encrypted content is bound to its id, so an item with it loses an id that was not sealed.
    key = call.scheduling_key
    names = {client_id: f"item_{index}" for index, client_id in enumerate(refs)}
    sealed = {client_id: names[client_id] if ref else None for client_id, ref in refs.items()}
    renamed = [_replace_ids(i, sealed if i.get("encrypted_content") else names) for i in items]
    provider_ids = tuple(
        (client_id, ref.id if ref else _replace_unsealed_item_id(key, client_id))
        for client_id, ref in refs.items()
    )
    return replace(call, body={**call.body, "input": renamed}, item_ids=provider_ids)


def _replace_unsealed_item_id(key: str, client_id: str) -> str:
    """Return the id that an upstream gets instead of one that was not sealed for a key."""
    text = f"{len(key)} {key}{client_id}".encode("utf-8", "surrogatepass")
    digest = blake2b(text, digest_size=DERIVED_ID_BYTES, person=b"headrace item id").hexdigest()
    return ITEMS.get_prefix(client_id) + digest


def replace_short_item_ids(items: Any, item_ids: tuple[tuple[str, str], ...]) -> Any:
    """Return items with each ``item_N`` replaced by the provider's id in the pair at index N."""
    provider_ids = {f"item_{index}": provider_id for index, (_, provider_id) in enumerate(item_ids)}
    if not isinstance(items, list):
        return items
    return [_replace_ids(item, provider_ids) if isinstance(item, dict) else item for item in items]


def _replace_ids(item: Json, new_ids: Mapping[str, str | None]) -> Json:
    ids = {name: item[name] for name in ITEM_MEMBERS if isinstance(item.get(name), str)}
    renamed = {name: new_ids[text] for name, text in ids.items() if text in new_ids}
    if not renamed:
        return item
    return {
        name: renamed.get(name, value)
        for name, value in item.items()
        if renamed.get(name, "") is not None
    }


def resolve_page_cursor(call: Call, sealer: IdSealer | None) -> Call:
    """Insert the provider's item id in the query parameter ``after``, if the target stores it."""
    cursor, call_ref = call.head.get_url_parameter(CURSOR_NAME), call.state_ref
    if cursor is None or sealer is None or call_ref is None:
        return call
    ref = sealer.open(cursor, call.scheduling_key, ITEMS)
    if ref is None or not call_ref.can_share_target(ref):
        return call
    parameters = tuple(
        (name, ref.id if (name, value) == (CURSOR_NAME, cursor) else value)
        for name, value in call.head.parameters
    )
    return replace(call, head=replace(call.head, parameters=parameters))


_PATH_IDS: Mapping[Endpoint, tuple[str, str]] = {
    "stored": ("response_id", "Response"),
    "conversations": ("conversation_id", "Conversation"),
}
"""Names and labels of the ids in a path."""


def make_unknown_id_error(head: RequestHead, client_id: str, param: str | None = None) -> NotFound:
    """Return the error for an id that cannot be opened. The message does not say why.

    ``param`` is the place of an id of an item or a conversation.
    """
    place, label = _get_place_and_label(head, param)
    message = f"{label} with id '{shorten_to_ascii(client_id, MAX_ID)}' not found."
    if place == PREVIOUS_RESPONSE_ID and client_id and not client_id.startswith(RESPONSES.prefix):
        message += (
            f" Responses whose id does not begin with {RESPONSES.prefix} are not stored. Send the "
            "whole conversation in input instead."
        )
    return NotFound(message, param=place)


def _get_place_and_label(head: RequestHead, param: str | None) -> tuple[str, str]:
    if param is not None:
        return param, "Conversation" if param == CONVERSATION else "Item"
    return _PATH_IDS.get(head.endpoint, (PREVIOUS_RESPONSE_ID, "Previous response"))
