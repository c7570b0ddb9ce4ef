"""The numbers of a stream's events where its server leaves them out, as llama.cpp's does.

A number that is given is believed. Where one is missing, events are counted; items are counted by
where they begin, and known again by their ids; parts are counted within their item. What is kept
of a stream is bounded, however long it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.dialects.responses.tables import (
    ADDED,
    ANNOTATED,
    BY_CALL,
    BY_DELTA,
    BY_DONE,
    BY_PART,
    DONE,
    ITEM_ID,
    OUTPUT,
    SEQUENCE,
    TEXTS,
    member,
    string,
)
from proxy.errors import UpstreamInvalid
from proxy.types import Json

MAX_ITEMS = 1024
MAX_NAMES = 2 * MAX_ITEMS
LONGEST_NAME = 512
"""Characters of an id; a longer one is taken for none."""
LARGEST = 2**53
"""No number is made that JSON's readers would round."""
PARTS: Mapping[str, str] = {
    "response.content_part": "content_index",
    "response.reasoning_summary_part": "summary_index",
}
"""The events of a part, and the member that numbers it."""
BEGINS = frozenset(f"{part}.added" for part in PARTS)
ENDS_PART = frozenset(f"{part}.done" for part in PARTS) | BY_DONE.keys()
PART_INDEX: Mapping[str, str] = {
    ANNOTATED: "content_index",
    **{f"{part}.{step}": index for part, index in PARTS.items() for step in ("added", "done")},
    **{
        f"{text.event}.{step}": text.numbered_by
        for text in TEXTS
        if text.numbered_by
        for step in ("delta", "done")
    },
}
"""The member by which an event says of which part it is, for the kinds that are of one."""
OF_ITEM = frozenset({ADDED, DONE}) | BY_DELTA.keys() | BY_DONE.keys() | PART_INDEX.keys()

TYPE_OF_ITEM: Mapping[str, str] = {
    ANNOTATED: "message",
    **{kind: text.item for kind, text in (*BY_DELTA.items(), *BY_DONE.items())},
}
"""The type of the items that events of a text are of."""


def _after(number: int) -> int:
    return min(number, LARGEST) + 1


def _type_of(value: Json) -> str:
    return string(value.get("type"))


def _names(event: Json) -> list[str]:
    """Return the ids by which an event says of which item it is. Some servers know a call of a tool
    by that of the call."""
    item = member(event.get("item"))
    ids = [event.get(ITEM_ID), item.get("id")]
    if _type_of(item) in BY_CALL:
        ids.append(item.get("call_id"))
    return [each for each in ids if isinstance(each, str) and 0 < len(each) <= LONGEST_NAME]


def _type_of_item(kind: str, event: Json) -> str:
    """Return the type of the item that an event is of, as far as it says that: of a tool's own
    events it is the beginning of what is returned."""
    if kind in TYPE_OF_ITEM:
        return TYPE_OF_ITEM[kind]
    if kind in (ADDED, DONE):
        return _type_of(member(event.get("item")))
    if kind in PART_INDEX:
        text = BY_PART.get(_type_of(member(event.get("part"))))
        return "" if text is None else text.item
    return kind.split(".")[1] if "." in kind else ""


class NumberedItem:
    """An item of a stream: ``at`` is its number, ``own`` the ids that it has begun with.

    It is ``claimed`` once an event has come by one of these, and has an ``alias`` once one by
    another id was taken for its own.
    """

    __slots__ = ("_parts", "alias", "at", "claimed", "own", "type")

    def __init__(self, at: int, kind: str) -> None:
        self.at = at
        self.type = kind
        self.own: list[str] = []
        self.claimed = False
        self.alias = False
        self._parts: dict[str, tuple[int, frozenset[str]]] = {}

    def fits(self, kind: str) -> bool:
        """True if an event of an item of this type may be of this one."""
        return kind.startswith(self.type) or self.type.startswith(kind)

    def part(self, index: str, kind: str, given: int | None) -> int:
        """Return the number of the part that an event is of. One begins with its event, or with the
        first text after the end of another, or where that ends twice."""
        number, ended = self._parts.get(index, (-1, frozenset()))
        if given is None and (number < 0 or kind in BEGINS or _follows(kind, ended)):
            number, ended = _after(number), frozenset()
        elif given is not None and given != number:
            number, ended = given, frozenset()
        self._parts[index] = number, ended | {kind} if kind in ENDS_PART else ended
        return number


def _follows(kind: str, ended: frozenset[str]) -> bool:
    return bool(ended) if kind in BY_DELTA else kind in ended


class EventNumbers:
    """Numbers the events of one stream."""

    __slots__ = ("_following", "_items", "_named", "_open", "sequence")

    def __init__(self) -> None:
        self.sequence = -1  # of the event before
        self._following = 0  # the number of the next item
        self._items: dict[int, NumberedItem] = {}
        self._open: dict[int, NumberedItem] = {}
        self._named: dict[str, NumberedItem] = {}

    def feed(self, event: Json) -> Json | None:
        """Return an event with the numbers that it lacks; None for one that lacks none. Raises
        ``UpstreamInvalid`` where a number is missing and there are too many items to tell."""
        kind, sequence = event.get("type"), event.get(SEQUENCE)
        if not isinstance(kind, str) or not kind.isprintable():  # which is read by nobody
            return None
        missing = self._numbers(kind, event)
        self.sequence = sequence if type(sequence) is int else _after(self.sequence)
        if type(sequence) is not int:
            missing[SEQUENCE] = self.sequence
        return {**event, **missing} if missing else None

    def _numbers(self, kind: str, event: Json) -> dict[str, int]:
        """Return the missing numbers of the item and the part that an event is of."""
        if kind not in OF_ITEM and not isinstance(event.get(ITEM_ID), str):
            return {}
        given = event.get(OUTPUT)
        item = self._item(kind, event, given if type(given) is int else None)
        if kind == DONE:
            self._open.pop(item.at, None)
        missing = {} if type(given) is int else {OUTPUT: item.at}
        index = PART_INDEX.get(kind)
        if index is None:
            return missing
        given = event.get(index)
        number = item.part(index, kind, given if type(given) is int else None)
        return missing if type(given) is int else missing | {index: number}

    def _item(self, kind: str, event: Json, given: int | None) -> NumberedItem:
        names, wanted = _names(event), _type_of_item(kind, event)
        begins = kind == ADDED
        found = self._items.get(given) if given is not None else None
        if given is None:
            if len(self._items) >= MAX_ITEMS:
                raise UpstreamInvalid("The upstream sent too many items without output_index.")
            found = None if begins else self._known(names, wanted) or self._unknown(names, wanted)
        item = found or self._begun(self._following if given is None else given, wanted)
        self._name(item, names, own=begins or found is None, begins=begins)
        return item

    def _begun(self, at: int, kind: str) -> NumberedItem:
        """Return a new item. One too many, whose number is given, is forgotten."""
        item = NumberedItem(at, kind)
        self._following = max(self._following, _after(at))
        if len(self._items) < MAX_ITEMS:
            self._items[at] = self._open[at] = item
        return item

    def _name(self, item: NumberedItem, names: list[str], *, own: bool, begins: bool) -> None:
        """Note by which ids an item was named."""
        if own:
            item.own = names
        for name in names:
            is_own = name in item.own
            item.claimed = item.claimed or (is_own and not begins)
            item.alias = item.alias or not is_own
            if name in self._named or len(self._named) < MAX_NAMES:
                self._named[name] = item

    def _known(self, names: list[str], wanted: str) -> NumberedItem | None:
        """Return the item that has an id; of several with one id that of the right type."""
        for name in names:
            item = self._named.get(name)
            if item is not None and not item.fits(wanted):
                like = (each for each in self._open.values() if name in each.own)
                item = next((each for each in like if each.fits(wanted)), item)
            if item is not None:
                return item
        return None

    def _unknown(self, names: list[str], wanted: str) -> NumberedItem | None:
        """Return the item that an event is of that names none, or one that nobody knows: the last
        that is open, or else the first that no event has named, as some servers have an id for the
        item and another for its events."""
        fitting = [item for item in self._open.values() if item.fits(wanted)]
        if not names:
            return fitting[-1] if fitting else None
        free = [item for item in fitting if not item.claimed]
        fresh = [item for item in free if not item.alias]
        return fresh[0] if fresh else free[-1] if free else None
