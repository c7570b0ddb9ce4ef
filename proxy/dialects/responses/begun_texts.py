"""Texts of a stream that begin with their part or their item, not with their first delta.

SDKs put what both of them say together. So does this, as guards and clients of another form read
deltas alone. Some servers say in the first delta again what the part has said.
"""

from __future__ import annotations

from proxy.dialects.responses.words import BY_PART, CALLS, KINDS, Place
from proxy.types import Json

_NAMES = {**BY_PART, **CALLS}


class BegunTexts:
    """What the parts and items of one stream have said of their texts where they began."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[Place, str] = {}

    def take(self, value: Json, at: int, part_at: int = 0) -> Json:
        """Return a part or an item that begins without what it says of its text."""
        kind = value.get("type")
        name = _NAMES.get(kind) if isinstance(kind, str) else None
        if name is None:
            return value
        member = KINDS[name].member
        text = value.get(member)
        if isinstance(text, str) and text:
            self._texts[at, name, part_at] = text
        return {**value, member: ""}

    def with_delta(self, place: Place, delta: str) -> str:
        """Return a delta with what its text began with, if it is the first one."""
        text = self._texts.pop(place, "") if self._texts else ""
        is_again = text.startswith(delta) or delta.startswith(text)
        return delta if is_again else text + delta
