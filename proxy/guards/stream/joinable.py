"""Texts of a stream that a client may join to others, though they were inspected separately.

While a rule acts, only the first value of a place without a text filter passes, and the same one
again. No text passes after its choice has finished, in a second form of a choice, or in a part of
a message with another number than the first.
"""

from __future__ import annotations

from proxy.guards.stream.first_values import FirstValues
from proxy.guards.stream.text_filters import TextFilters
from proxy.guards.stream.texts import (
    CHAT,
    FrameText,
    Place,
    choice_of,
    is_of_event,
    numbered,
)
from proxy.guards.text.walk import MemberName, Path, Text, parts_of
from proxy.types import Json
from proxy.types.events import Frame, Part
from proxy.types.index import index_of

MAX_PLACES = 1024
_FORMS = frozenset({"delta", "message", "text"})
_FORM_OF = {"chat": "delta", "completions": "text"}


class Joinable:
    """The places and forms of the texts of one stream so far. `ended` are finished choices."""

    __slots__ = ("_filters", "_firsts", "_forms", "_numbers", "ended")

    def __init__(self, filters: TextFilters) -> None:
        self._filters = filters
        self._firsts = FirstValues()
        self._forms: dict[int, str] = {}
        self._numbers: dict[Place, int] = {}
        self.ended: set[int] = set()

    def is_unsure(self, frame: Frame, text: Text) -> bool:
        """Return True if a complete text may have to be read as repeated many times."""
        place = _place(frame, text.path)
        return place is not None and self._firsts.is_unsure(place)

    def omits(self, frame: Frame, text: Text) -> bool:
        """Return True if a complete text is to be left out. Without an acting rule, note that it
        was not inspected together with others."""
        acts = self._filters.acts(text)
        if text.kind == "logprobs" and acts:
            return True
        place = _place(frame, text.path)
        if place is None or self._firsts.passes(place, text, self._filters.says_more):
            return False
        if not acts:
            self._filters.leave_unread(text)
        return acts

    def omits_going(self, frame: Frame, going: FrameText) -> bool:
        """Return True if a text that goes on is to be left out. Without an acting rule, note that
        it was inspected in two if its choice has finished."""
        place, choice = going.place, choice_of(going.place)
        has_ended = choice in self.ended
        if not self._filters.acts(going.text):
            if has_ended and self._filters.ends(going.text):
                self._filters.miss(going.text)
            return False
        if frame.family not in CHAT:
            return has_ended
        if isinstance(place, Part):
            form = _FORM_OF[frame.family]
            return self._forms.setdefault(choice, form) != form or has_ended
        path, doc = going.text.path, frame.doc or {}
        return (
            has_ended
            or self._is_other_part(place, doc, path)
            or self._is_other_form(choice, doc, path)
        )

    def _is_other_part(self, place: Place, doc: Json, path: Path) -> bool:
        steps = parts_of(path)
        if steps is None or (len(self._numbers) >= MAX_PLACES and place not in self._numbers):
            return False
        value = doc
        for step in path[: steps + 1]:
            value = value[step]  # type: ignore[index]
        number = 0 if steps == len(path) else index_of(value, 0)
        return self._numbers.setdefault(place, number) != number

    def _is_other_form(self, choice: int, doc: Json, path: Path) -> bool:
        form = str(path[2])
        if form not in _FORMS:
            return False
        usual = "delta" if isinstance(doc["choices"][path[1]].get("delta"), dict) else form
        return self._forms.setdefault(choice, usual) != form


def _place(frame: Frame, path: Path) -> tuple[object, ...] | None:
    """Return the place of a complete text that later documents may have, too."""
    doc = frame.doc
    if doc is None or isinstance(path[-1], MemberName):
        return None
    if frame.family in CHAT and path[0] == "choices" and path[-1] == "name":
        return numbered(doc, path)  # clients join the names of all chunks
    if is_of_event(frame, path):
        return None
    if frame.family in CHAT:
        return numbered(doc, path) if path[0] == "choices" and len(path) > 2 else path
    kind = doc.get("type")
    return (kind, *path) if isinstance(kind, str) and kind.endswith("delta") else None
