"""Recognizes chunks that differ from the one before only in one text, which most chunks do."""

from __future__ import annotations

from typing import Final

from proxy.dialects.findings import DETECTIONS_MEMBER, HOOKS_MEMBER
from proxy.types import Json
from proxy.types.events import Delta

MAKE_TUPLE: Final = tuple.__new__
"""Creates a named tuple from all of its fields, three times as fast as its class does."""


class ChunkShape:
    """The shape of a chunk with one choice and one text, to recognize the next such chunk.

    With ``exact``, all other values of the document must be equal, otherwise only those that can
    make an event.
    """

    def __init__(self, doc: Json, holder: str, delta: Delta, *, exact: bool) -> None:
        choice: Json = doc["choices"][0]
        message: Json = choice[holder] if holder else choice
        self._exact = exact
        self._part, _, self._slot = delta
        self._holder = holder
        self._member = str(delta.slot[-1])
        self._index = choice.get("index")
        self._rest = {**doc, "choices": None}
        self._choice = {**choice, holder: None}
        self._message = {**message, self._member: None}
        self._size = len(message)

    def read_matching_delta(self, doc: Json) -> Delta | None:
        """Return the delta of a chunk of this shape, None for any other chunk."""
        try:
            [choice] = doc["choices"]
            message = choice[self._holder] if self._holder else choice
            text = message[self._member]
        except (KeyError, TypeError, ValueError):
            return None
        if type(text) is not str or not text or len(message) != self._size:
            return None
        if self._size > 1 and {**message, self._member: None} != self._message:
            return None
        if self._exact:
            if {**doc, "choices": None} != self._rest:
                return None
            other_members = {**choice, self._holder: None} if self._holder else self._choice
            # 0 == False: an index of another type may compare equal
            if other_members != self._choice or type(choice.get("index")) is not int:
                return None
        elif (
            choice.get("finish_reason")
            or choice.get("index") != self._index
            or _has_events_outside_choices(doc)
        ):
            return None
        return MAKE_TUPLE(Delta, (self._part, text, self._slot))


def _has_events_outside_choices(doc: Json) -> bool:
    """Return True if a document yields events outside of its choices."""
    return doc.get("usage") is not None or DETECTIONS_MEMBER in doc or HOOKS_MEMBER in doc
