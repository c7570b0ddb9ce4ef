"""Checks of a Responses request beyond the types of its fields.

Source: the typed models of OpenAI's Python SDK, 3.52.0, for ``POST /v1/responses``.
"""

from __future__ import annotations

from typing import Any

from proxy.errors import InvalidField
from proxy.errors.field_problems import missing
from proxy.types import Json

SEND_ITEM = "Send the item itself: clients do so with store: false."
NOT_STREAMED = "cannot be combined with stream: true. Retrieve the response by its id."
NOT_STORED = "cannot be combined with store: false, because the response could not be retrieved"
NO_CONVERSATION = "cannot be combined with conversation, as its usage cannot be charged"


def is_reference(item: Json) -> bool:
    """Return True if an item is the id of one that the provider stores."""
    return item.get("type") == "item_reference" or item.keys() == {"id"}


def check_items(body: Json) -> None:
    """Raise ``InvalidField`` for an item without a type or a role. The upstream checks other
    members; references are resolved with the key of the call."""
    items: Any = body.get("input")
    for at, item in enumerate(items if isinstance(items, list) else ()):
        kind, place = item.get("type"), f"input.{at}"
        if kind is not None and not isinstance(kind, str):
            raise InvalidField(f"{place}.type", "must be a string")
        if is_reference(item) or kind not in (None, "message"):
            continue
        if not isinstance(item.get("role"), str):
            raise InvalidField(f"{place}.role", missing("a string"))


def check_background(body: Json) -> None:
    """Raise ``InvalidField`` for a background response that could not be retrieved."""
    if body.get("background"):
        if body.get("stream"):
            raise InvalidField("background", NOT_STREAMED)
        if body.get("store") is False:
            raise InvalidField("background", NOT_STORED)
        if body.get("conversation") is not None:
            raise InvalidField("background", NO_CONVERSATION)


RULES = (check_items, check_background)
RULED = frozenset({"background", "input"})
