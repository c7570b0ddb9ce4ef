"""The numbers of a stream's events where its server leaves them out, as llama.cpp's does.

A number that is given is believed. Where one is missing, events are counted; items are counted by
where they begin, and known again by their ids; parts are counted within their item. What is kept
of a stream is bounded, however long it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import NamedTuple

from proxy.dialects.responses.reading import member, type_of
from proxy.dialects.responses.words import BY_DELTA, BY_DONE, BY_PART, CALLS, KINDS
from proxy.errors import UpstreamInvalid
from proxy.types import Json

MAX_ITEMS = 1024
MAX_NAMES = 2 * MAX_ITEMS
LONGEST_NAME = 512
"""Characters of an id; a longer one is taken for none."""
LARGEST = 2**53
"""No number is made that JSON's readers would round."""
SEQUENCE, OUTPUT, ITEM_ID = "sequence_number", "output_index", "item_id"
ADDED, DONE = "response.output_item.added", "response.output_item.done"
ANNOTATED = "response.output_text.annotation.added"

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
        f"{kind.event}.{step}": kind.part_index
        for kind in KINDS.values()
        if kind.part_index is not None
        for step in ("delta", "done")
    },
}
"""The member by which an event says of which part it is, for the kinds that are of one."""
OF_ITEM = frozenset({ADDED, DONE}) | BY_DELTA.keys() | BY_DONE.keys() | PART_INDEX.keys()

_ITEM_OF: Mapping[str, str] = {
    "text": "message",
    "refusal": "message",
    "thought": "reasoning",
    "summary": "reasoning",
    **{name: item for item, name in CALLS.items()},
}
"""The type of the items that have a kind of text."""
TYPE_OF_ITEM: Mapping[str, str] = {
    ANNOTATED: "message",
    **{kind: _ITEM_OF[name] for kind, name in (*BY_DELTA.items(), *BY_DONE.items())},
}


def _after(number: int) -> int:
    return min(number, LARGEST) + 1


def _names(event: Json) -> list[str]:
    """Return the ids by which an event says of which item it is. Some servers know a call of a tool
    by that of the call."""
    item = member(event.get("item"))
    ids = [event.get(ITEM_ID), item.get("id")]
    if type_of(item) in CALLS:
        ids.append(item.get("call_id"))
    return [each for each in ids if isinstance(each, str) and 0 < len(each) <= LONGEST_NAME]


def _type_of_item(kind: str, event: Json) -> str:
    """Return the type of the item that an event is of, as far as it says that: of a tool's own
    events it is the beginning of what is returned."""
    if kind in TYPE_OF_ITEM:
        return TYPE_OF_ITEM[kind]
    if kind in (ADDED, DONE):
        return type_of(member(event.get("item")))
    if kind in PART_INDEX:
        return _ITEM_OF.get(BY_PART.get(type_of(member(event.get("part"))), ""), "")
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


class DeltaPlace(NamedTuple):
    """Of what item and part a delta is; ``where`` returns the same of another, or raises
    ``KeyError``."""

    kind: str
    where: Callable[[Json], object]
    place: object


def _place_of(kind: str, event: Json) -> DeltaPlace:
    where = itemgetter(OUTPUT, *[each for each in (ITEM_ID, PART_INDEX.get(kind)) if each in event])
    return DeltaPlace(kind, where, where(event))


class EventNumbers:
    """Numbers the events of one stream."""

    __slots__ = ("_following", "_items", "_last", "_named", "_open", "sequence")

    def __init__(self) -> None:
        self.sequence = -1  # of the event before
        self._following = 0  # the number of the next item
        self._items: dict[int, NumberedItem] = {}
        self._open: dict[int, NumberedItem] = {}
        self._named: dict[str, NumberedItem] = {}
        self._last: DeltaPlace | None = None  # of the event before, if it is one with its numbers

    def feed(self, event: Json) -> Json | None:
        """Return an event with the numbers that it lacks; None for one that lacks none. Raises
        ``UpstreamInvalid`` where a number is missing and there are too many items to tell."""
        kind, sequence = event.get("type"), event.get(SEQUENCE)
        last = self._last
        if last is not None and kind == last.kind and type(sequence) is int:
            try:
                if last.where(event) == last.place:  # as most events are, at little cost
                    self.sequence = sequence
                    return None
            except KeyError:
                pass
        if not isinstance(kind, str) or not kind.isprintable():  # which is read by nobody
            return None
        missing = self._numbers(kind, event)
        self.sequence = sequence if type(sequence) is int else _after(self.sequence)
        if type(sequence) is not int:
            missing[SEQUENCE] = self.sequence
        self._last = _place_of(kind, event) if not missing and kind in BY_DELTA else None
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
