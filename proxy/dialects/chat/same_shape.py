"""Recognizes a chunk that differs from the one before it in nothing but its text."""

from __future__ import annotations

from typing import Final

from proxy.dialects.chat.tables import ChatForm
from proxy.dialects.findings import DETECTIONS, HOOKS
from proxy.types import Json
from proxy.types.events import Delta, Slot

_new: Final = tuple.__new__
"""Makes a named tuple of all of its fields, in a third of the time that its class takes."""


class SameShape:
    """The shape of a chunk with one choice and one text. With `exact`, all other values of the
    document are compared too; otherwise only those are that can make an event."""

    __slots__ = (
        *("_choice", "_exact", "_head", "_index", "_member", "_name", "_part", "_rest", "_size"),
        "_slot",
    )

    def __init__(self, doc: Json, form: ChatForm, delta: Delta, *, exact: bool) -> None:
        choice: Json = doc["choices"][0]
        holder: Json = choice[form.holder] if form.holder else choice
        self._exact = exact
        self._part, _, self._slot = delta
        self._name = form.holder
        self._member = str(delta.slot[-1])
        self._index = choice.get("index")
        self._head = {**doc, "choices": None}
        self._choice = {**choice, form.holder: None}
        self._rest = {**holder, self._member: None}
        self._size = len(holder)

    def delta(self, doc: Json) -> Delta | None:
        """Return the delta of a chunk of this shape, None for any other chunk."""
        try:
            [choice] = doc["choices"]
            holder = choice[self._name] if self._name else choice
            text = holder[self._member]
        except (KeyError, TypeError, ValueError):
            return None
        if type(text) is not str or not text or len(holder) != self._size:
            return None
        if self._size > 1 and {**holder, self._member: None} != self._rest:
            return None
        if self._exact:
            if {**doc, "choices": None} != self._head:
                return None
            if self._name and {**choice, self._name: None} != self._choice:
                return None
        elif choice.get("finish_reason") or choice.get("index") != self._index or _has_more(doc):
            return None
        return _new(Delta, (self._part, text, self._slot))


def _has_more(doc: Json) -> bool:
    """Return True if a document makes events beside those of its choices."""
    return ("usage" in doc and doc["usage"] is not None) or DETECTIONS in doc or HOOKS in doc


def is_shape(slot: Slot, form: ChatForm) -> bool:
    """Return True for the slot of a text that is a member of the holder of a choice."""
    return len(slot) == (4 if form.holder else 3) and slot[1] == 0
