"""Items and texts of a Responses stream that have begun and not ended."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any, NamedTuple
from weakref import proxy

from proxy.dialects.responses.tables import ITEM_ID, ITEM_KINDS, OUTPUT, TextType, string
from proxy.errors import ResponseTooLarge, UpstreamInvalid
from proxy.types import Json
from proxy.types.events import CALLS, Begin, End, Event, Part, ToolCall

MAX_ITEMS = 4096
"""Items of a stream, and texts of those that are open."""

_PLACES = (OUTPUT, ITEM_ID, "content_index", "summary_index")


class SameDelta(NamedTuple):
    """A delta whose successors differ from it in nothing but text and sequence number."""

    keys: Any
    where: Callable[[Json], object]
    place: object
    part: Part

    @classmethod
    def of(cls, doc: Json, part: Part) -> SameDelta:
        where = itemgetter("type", *[name for name in _PLACES if name in doc])
        return cls(doc.keys(), where, where(doc), part)


class OpenText:
    """A text of an item.

    `has_delta`: a delta has carried it. `beginning` is the text that its part or item began with,
    until the first delta.
    """

    __slots__ = ("beginning", "has_delta", "has_ended", "part", "type")

    def __init__(self, part: Part, text_type: TextType) -> None:
        self.part = part
        self.type = text_type
        self.has_delta = self.has_ended = False
        self.beginning = ""

    def with_beginning(self, delta: str) -> str:
        """Return a delta with the beginning of the text. Some servers repeat that in the first
        delta."""
        text, self.beginning = self.beginning, ""
        is_repeated = text.startswith(delta) or delta.startswith(text)
        return delta if is_repeated else text + delta


class OpenItem:
    """An open item with its texts: those of the API by kind and number, and all others."""

    __slots__ = ("_items", "others", "part", "texts")

    def __init__(self, part: Part, items: OpenItems) -> None:
        self.part = part
        self.texts: dict[tuple[str, int], OpenText] = {}
        self.others: dict[object, Part] = {}
        self._items: OpenItems = proxy(items)  # which refer to this: a cycle would stay after a cut

    def text(self, text_type: TextType, number: int) -> OpenText:
        """Return a text, which begins or goes on if it is not open."""
        kind = text_type.kind
        text = self.texts.get((kind, number))
        if text is None:
            part = self.part
            if text_type.part or part.kind != kind:
                part = self._items.new_part(Part(kind, number, parent=part))
            text = self.texts[kind, number] = OpenText(part, text_type)
        elif text.has_ended:
            text.part = self._items.new_part(
                Part(kind, number, parent=self.part, continues=text.part)
            )
            text.has_ended = False
        return text

    def end_text(self, text: OpenText) -> None:
        if not text.has_ended and text.part is not self.part:
            text.has_ended = True
            self._items.out.append(End(text.part))


class OpenItems:
    """The items of a stream. Adds events that begin and end parts to `out`.

    If `is_strict`, an item that begins twice raises `UpstreamInvalid`, and too many items raise
    `ResponseTooLarge`. If the answer `crosses` to a client of another family, tools that the
    provider runs are left out.
    """

    __slots__ = (
        *("__weakref__", "_crosses", "_is_strict", "_items", "_part_count", "has_calls", "out"),
    )

    def __init__(self, out: list[Event], *, is_strict: bool, crosses: bool) -> None:
        self.out = out
        self.has_calls = False
        self._is_strict = is_strict
        self._crosses = crosses
        self._items: dict[int, OpenItem | None] = {}  # None: the item has ended
        self._part_count = 0

    def get(self, at: Any) -> OpenItem | None:
        return self._items.get(at) if type(at) is int else None

    def is_done(self, at: int) -> bool:
        return at in self._items and self._items[at] is None

    def of_text(self, at: int, text_type: TextType) -> OpenItem | None:
        """Return the item of a text, which begins if no event has begun it. None for one that has
        ended; and, for clients of other families, for one that cannot have the text there."""
        item = self._items.get(at)
        if item is None:
            is_unnamed_call = self._crosses and not text_type.part
            if at in self._items or is_unnamed_call:
                return None
            return self.begin(at, {"type": text_type.item})
        is_call = not text_type.part and item.part.kind == text_type.kind
        is_part = bool(text_type.part) and item.part.kind != "opaque"
        return item if is_call or is_part or not self._crosses else None

    def begin(self, at: int, item: Json, *, is_new: bool = False) -> OpenItem:
        """Begin an item. `is_new`: an event says so, which has its name."""
        if is_new and at in self._items:
            if self._is_strict:
                raise UpstreamInvalid(f"The upstream began the output item {at} twice.")
            if (known := self._items[at]) is not None:
                self.end(at, known)
        event = begin_item(item, at)
        begun = OpenItem(event.part, self)
        if len(self._items) < MAX_ITEMS:
            self._items[at] = begun
        elif self._is_strict:
            raise ResponseTooLarge("The upstream sent too many output items.")
        if event.call is not None:
            self.has_calls = True
            slot = ("item", "name") if is_new and isinstance(item.get("name"), str) else ()
            self.out.append(event._replace(slot=slot))
        elif not (self._crosses and event.part.kind == "opaque"):
            self.out.append(event)
        return begun

    def new_part(self, part: Part) -> Part:
        self._part_count += 1
        if self._is_strict and self._part_count > MAX_ITEMS:
            raise ResponseTooLarge("The upstream sent too many parts of output items.")
        self.out.append(Begin(part))
        return part

    def other(
        self, texts: dict[object, Part], key: object, item: OpenItem | None, *, is_json: bool
    ) -> Part:
        """Return the part of a text that the API has no place for."""
        part = texts.get(key)
        if part is None:
            part = Part(
                "server_arguments" if is_json else "code",
                len(texts),
                closing="implicit",
                parent=None if item is None else item.part,
            )
            texts[key] = self.new_part(part)
        return part

    def end(self, at: int, item: OpenItem) -> None:
        """End an item and what is open of it."""
        for text in item.texts.values():
            item.end_text(text)
        self.out += [End(part) for part in item.others.values()]
        if not (self._crosses and item.part.kind == "opaque"):
            self.out.append(End(item.part))
        self._part_count -= len(item.texts) + len(item.others)
        if at in self._items:
            self._items[at] = None

    def end_all(self) -> None:
        for at, item in [*self._items.items()]:
            if item is not None:
                self.end(at, item)


def begin_item(item: Json, at: int) -> Begin:
    """Return the event that begins an item."""
    kind = ITEM_KINDS.get(string(item.get("type")), "opaque")
    part = Part(kind, at, id=string(item.get("id")))
    if kind not in CALLS:
        return Begin(part)
    call = ToolCall(
        id=string(item.get("call_id")),
        name=string(item.get("name")),
        type="custom" if kind == "input" else "function",
    )
    return Begin(part, call)
