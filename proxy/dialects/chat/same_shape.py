"""Recognizes a chunk that differs from the one before it in nothing but its text."""

from __future__ import annotations

from proxy.dialects.chat.tables import ChatForm, is_number
from proxy.types import Json
from proxy.types.events import Delta, Slot


class SameShape:
    """The shape of a chunk with one choice and one text. With `exact`, all other values of the
    document are compared too; otherwise only the names of its members are."""

    __slots__ = ("_choice", "_delta", "_exact", "_form", "_head", "_holder", "_keys", "_member")

    def __init__(self, doc: Json, form: ChatForm, delta: Delta, *, exact: bool) -> None:
        choice: Json = doc["choices"][0]
        self._exact = exact
        self._form = form
        self._keys = doc.keys()
        self._head = {**doc, **self._varying(doc)}
        self._member = str(delta.slot[-1])
        self._delta = delta
        self._holder = {**self._holder_of(choice), self._member: None}
        self._choice = {**choice, form.holder: None}

    def delta(self, doc: Json) -> Delta | None:
        """Return the delta of a chunk of this shape, None for any other chunk."""
        if doc.keys() != self._keys or doc.get("usage") is not None:
            return None
        if self._exact and {**doc, **self._varying(doc)} != self._head:
            return None
        choices = doc["choices"]
        if type(choices) is not list or len(choices) != 1 or type(choices[0]) is not dict:
            return None
        holder = self._same_holder(choices[0])
        text = None if holder is None else holder.get(self._member)
        if type(text) is not str or not text:
            return None
        return Delta(self._delta.part, text, self._delta.slot)

    def _same_holder(self, choice: Json) -> Json | None:
        """Return the holder of the text if nothing else in the choice has changed."""
        name, known = self._form.holder, self._holder
        holder = choice
        if name:
            if {**choice, name: None} != self._choice:
                return None
            holder = choice[name]
        if type(holder) is not dict or len(holder) != len(known):
            return None
        if len(holder) > 1 and {**holder, self._member: None} != known:
            return None
        return holder

    def _holder_of(self, choice: Json) -> Json:
        holder: Json = choice[self._form.holder] if self._form.holder else choice
        return holder

    @staticmethod
    def _varying(doc: Json) -> Json:
        """Return members that may differ: the choices, and a time, which some servers update."""
        if "created" in doc and is_number(doc["created"]):
            return {"choices": None, "created": None}
        return {"choices": None}


def is_shape(slot: Slot, form: ChatForm) -> bool:
    """Return True for the slot of a text that is a member of the holder of a choice."""
    return len(slot) == (4 if form.holder else 3) and slot[1] == 0
