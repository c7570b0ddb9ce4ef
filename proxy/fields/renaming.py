"""Fields of a chat under the names that other APIs have for them: see the column ``elsewhere``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from proxy.errors import InvalidField
from proxy.errors.field_problems import NOT_SUPPORTED
from proxy.fields.field_table import ROWS

Json = dict[str, Any]
Conversions = Mapping[str, Callable[[Any], Any]]
"""Functions that return a value as the other API has it, by the chat's name of the field. None
leaves the field out."""
PATHS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    api: tuple(
        (row.name, *row.elsewhere[api].partition(".")[::2]) for row in ROWS if api in row.elsewhere
    )
    for api in ("messages", "responses")
}
"""By API: names of a chat, and the field and its member that say the same in the API."""


def to_api(body: Json, api: str, conversions: Conversions) -> Json:
    """Return a copy of a request in which fields of a chat have their place in another API. Raises
    ``InvalidField``."""
    renamed = dict(body)
    for name, field, member in PATHS[api]:
        value = renamed.pop(name, None)
        if value is not None and name in conversions:
            value = conversions[name](value)
        if value is None:
            continue
        group = renamed.get(field) if member else None
        if not isinstance(group, dict | None):
            raise InvalidField(field, NOT_SUPPORTED)
        renamed[field] = {**(group or {}), member: value} if member else value
    return renamed


def from_api(body: Json, api: str, conversions: Conversions) -> tuple[Json, set[str]]:
    """Return the chat fields of a request of another API, and the fields with removed members."""
    chat: Json = {}
    members_by_field: dict[str, set[str]] = {}
    for name, field, member in PATHS[api]:
        value = body.get(field)
        if member:
            members_by_field.setdefault(field, set()).add(member)
            value = value.get(member) if isinstance(value, dict) else None
        if value is not None and name in conversions:
            value = conversions[name](value)
        if value is not None:
            chat[name] = value
    return chat, {
        field for field, members in members_by_field.items() if has_other(body.get(field), members)
    }


def has_other(value: Any, members: set[str]) -> bool:
    """Return True if an object has values in other members than these."""
    other_members = value.keys() - members if isinstance(value, dict) else ()
    return any(value[name] not in (None, [], {}) for name in other_members)
